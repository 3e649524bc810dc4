/** A tour in six steps for who sees attention for the first time; each step shows what it says. */

import { spellEffect } from "./sentence.js";
import { firstHeads } from "./model.js";
import { spellHeads } from "./state.js";
import { make } from "./surface.js";

/** @typedef {Record<string, (number | null)[][]>} Effects by stream, a row for each layer */
/** @typedef {{stream: string, layer: number, head: number, value: number}} HeadEffect */

/** @param {Store} store @param {import("./off.js").Switches} off @param {() => PageDocument | undefined} page */
export function createTour(store, off, page) {
  const element = make("aside", { id: "tour", "aria-label": "Guided tour", hidden: true });
  /** The effects of a text while nothing was off. @type {{text: string, effects: Effects} | null} */
  let record = null;
  let [lastStep, timer] = ["", 0];
  /** @type {Element | null} */
  let target = null;
  /** What the reader had before the tour. @type {Partial<State> | null} */
  let before = null;

  /** @param {string} stream */
  const mapOf = (stream) => page()?.maps.findIndex((map) => map.stream === stream) ?? -1;

  /** The head of least or of greatest effect; null while that is not known. @param {"least" | "most"} which */
  function findExtreme(which) {
    if (!record || record.text !== store.state.text) return null;
    const stream = "cross";
    /** @type {HeadEffect[]} */
    const every = (record.effects[stream] ?? []).flatMap((heads, layer) => heads.map((value, head) => ({ stream, layer, head, value: value ?? NaN })));
    /** @param {HeadEffect} found */
    const size = ({ value }) => (which === "least" ? -Math.abs(value) : value);
    return every.filter(({ value }) => !Number.isNaN(value)).sort((one, other) => size(other) - size(one))[0] ?? null;
  }

  /** @param {"least" | "most"} which @returns {Partial<State>} */
  function switchOff(which) {
    const choice = findExtreme(which);
    if (!choice) return { off: "", lens: "raw" };
    const { stream, layer, head } = choice;
    const map = /** @type {PageDocument} */ (page()).maps[mapOf(stream)];
    return { ...LOOK, map: mapOf(stream), heads: `${layer}.${head}`, off: off.headPart(map, [layer, head]) };
  }

  /** @param {"least" | "most"} which */
  function effectOf(which) {
    const choice = findExtreme(which);
    return choice ? `Layer ${choice.layer} head ${choice.head} of the cross-attention is off now: log p of the translation: ${spellEffect(choice.value).slice(1, -1)}.` : "The model is being run without each of its heads, one by one …";
  }

  /** @type {{title: string, at: string, look: () => Partial<State>, words: () => string}[]} */
  const steps = [
    { title: "Tokens", at: ".sentence .side", look: () => ({ ...LOOK, off: "" }),
      words: () => "The model reads no letters and no words but tokens: the pieces below your sentence. A rare word becomes several; <eos> says that the sentence ends." },
    { title: "One head", at: "#view", look: () => ({ ...LOOK, map: Math.max(mapOf("encoder"), 0), heads: "1.0" }),
      words: () => "A head is one way of looking around. Each row is a token that looks, each column one that it can look at; the darker a cell, the more of its attention goes there. A row sums to 1. Every small picture is another head: click one to look at it." },
    { title: "Cross-attention", at: "#view", look: () => ({ ...LOOK, map: Math.max(mapOf("cross"), 0), heads: "0.0" }),
      words: () => "While it writes the translation, the model looks back at the sentence. Here rows are tokens of the translation and columns those of the sentence. In an early layer that look is often vague." },
    { title: "A head trained to align", at: "#view", look: () => ({ ...LOOK, map: Math.max(mapOf("cross"), 0), heads: alignment() }),
      words: () => "Here each word of the translation looks at the word that it translates. Attention did not find this out by itself: in training this one head was shown which words belong together." },
    { title: "A head that does nothing here", at: ".sentence", look: () => switchOff("least"),
      words: () => `${effectOf("least")} A picture with strong colours can still be of a head that this sentence does not need.` },
    { title: "A head that matters", at: ".sentence", look: () => switchOff("most"),
      words: () => `${effectOf("most")} Compare the translation. Where a head looks and what it is needed for are two questions; here you can ask both. Now write a sentence of your own.` },
  ];

  /** The head in focus, as an address spells it. */
  function alignment() {
    const map = page()?.maps[mapOf("cross")];
    return map ? spellHeads(firstHeads(map)) : "";
  }

  /** Leave, and give back what the reader looked at and had switched off. */
  const leave = () => {
    store.set({ ...before, tour: 0 });
    document.getElementById("text")?.focus();
  };

  function show() {
    const { tour: number } = store.state;
    const step = steps[number - 1];
    element.hidden = !step || !page();
    target?.classList.remove("toured");
    if (!step || !page()) {
      lastStep = "";
      if (!step) before = null;
      return;
    }
    before ??= Object.fromEntries(RESTORED_KEYS.map((name) => [name, store.state[name]]));
    const ready = number < 5 || findExtreme("most") !== null;
    const now = `${number} ${ready} ${store.state.text}`;
    if (now !== lastStep) {
      const isNew = lastStep.split(" ")[0] !== String(number);
      lastStep = now;
      build(step, number, isNew);
      store.set(step.look(), true);
    }
    target = document.querySelector(step.at);
    target?.classList.add("toured");
  }

  /** @param {typeof steps[number]} step @param {number} number @param {boolean} isNew */
  function build(step, number, isNew) {
    /** @param {string} words @param {() => void} action @param {string} [kind] */
    const button = (words, action, kind = "") => make("button", { type: "button", class: kind, onclick: action }, [words]);
    const last = number === steps.length;
    const heading = make("h2", { tabindex: -1 }, [step.title]);
    element.replaceChildren(
      make("p", { class: "hint" }, [`Guided tour, ${number} of ${steps.length}`]), heading,
      make("p", { "aria-live": "polite" }, [step.words()]),
      make("p", { class: "steps" }, [
        ...(last ? [] : [button("Skip the tour", leave, "quiet")]),
        ...(number > 1 ? [button("Back", () => store.set({ tour: number - 1 }))] : []),
        last ? button("Done", leave, "main") : button("Next", () => store.set({ tour: number + 1 }), "main"),
      ]),
    );
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    clearTimeout(timer);
    // What the step shows is laid out first.
    timer = setTimeout(() => document.querySelector(step.at)?.scrollIntoView({ block: innerWidth < 821 ? "start" : "nearest", behavior: still ? "auto" : "smooth" }), 150);
    if (isNew) heading.focus({ preventScroll: true });
  }

  return {
    element,
    show,
    /** Take effects that were measured while nothing was off. @param {Effects} effects */
    learn(effects) {
      if (store.state.off === "") record = { text: store.state.text, effects };
      show();
    },
  };
}

/** @type {(keyof State)[]} */
const RESTORED_KEYS = ["view", "map", "heads", "unit", "specials", "row", "column", "zoom", "lens", "explain", "off"];
/** @type {Partial<State>} */
const LOOK = { view: "heatmap", unit: "tokens", specials: "keep", row: -1, column: -1, zoom: "", lens: "raw" };
