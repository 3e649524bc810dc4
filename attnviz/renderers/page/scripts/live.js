/** The page that answers: what is asked, what is switched off, and where the answers go. */

import { LANGUAGES, createSentence, isText } from "./sentence.js";
import { createPicture } from "./picture.js";
import { createSource } from "./source.js";
import { createPane, secondStage } from "./pane.js";
import { createTour } from "./tour.js";
import { select } from "./controls.js";
import { receive } from "./model.js";
import { beginning } from "./labels.js";
import { places, readOff } from "./off.js";
import { ASKED, chosenHeads, chosenMap } from "./state.js";
import { make, part } from "./surface.js";
import { createWhy } from "./why.js";

/** @typedef {import("./types.js").PageDocument} PageDocument */
/** @typedef {import("./types.js").Reply} Reply */
/** @typedef {ReturnType<typeof createLive>} Live */

const EXAMPLES = [
  "The red car is fast.",
  "The professor who supervised the student published the paper.",
  "She gave her brother the old book that he had lost.",
  "Le petit chat noir dort sur la chaise.",
];
/** Milliseconds without a question after which the effects of all heads are asked for. */
const QUIET = 250;
/** What is said of a command or an option is for the shell. @param {string} note */
const inPage = (note) => note.replace(/[,:] (so there is nothing to explain: )?(use )?('attnviz|--\w).*$/, "");
/** More heads than these that are off are named together. */
const NAMED = 5;

/**
 * @param {PageDocument} fixed what of the page no answer changes
 * @param {import("./types.js").Store} store
 * @param {import("./off.js").Switches} off
 * @param {import("./pane.js").Pane} pane
 */
export function createLive(fixed, store, off, pane) {
  const served = document.body.dataset.source === "serve";
  const source = createSource();
  const picture = createPicture(() => store.set({ text: "", into: "", off: "" }), () => ask(new Set(ASKED)));
  const sentences = [createSentence(0, store, off), createSentence(1, store, off)];
  /** @type {PageDocument[]} */
  const pages = [];
  /** @type {Reply["answer"][]} */
  const answers = [];
  const second = secondStage();
  /** @type {import("./pane.js").Pane | undefined} */
  let secondPane;
  /** @type {Record<string, (number | null)[][]>} by stream */
  let effects = {};
  let [timer, stale] = [0, true];
  let [answered, effected] = [(/** @type {PageDocument} */ _) => {}, () => {}];
  /** @type {(page: PageDocument) => void} */
  let begin;
  const first = /** @type {Promise<PageDocument>} */ (new Promise((resolve) => (begin = resolve)));
  const chosenTools = make("div", { class: "asking tools" });
  const offList = make("ul", { class: "off-list", "aria-label": "Switched off" });
  const undo = button("Undo", "u", () => off.undo());
  const reset = button("Everything on", "n", () => off.reset());
  const offBar = make("div", { class: "off-bar", role: "group", "aria-label": "What is switched off" }, [offList, undo, reset]);
  const acts = part("acts");
  const status = make("span", { class: "hint status" });
  const guide = button("Guided tour", "g", () => store.set({ tour: 1 }));
  const tour = createTour(store, off, () => (answers[0]?.to ? pages[0] : undefined));
  part("ask").append(chosenTools, ...sentences.map(({ element }) => element), offBar, tour.element);
  const why = createWhy(store, () => pages[0].maps, (asked) => source.why(asked));
  part("stage").after(why.element, second.stage);

  const modelName = () => store.state.model || (fixed.models?.[0] ?? "pocket");
  const used = () => (store.state.beside ? [0, 1] : [0]);
  /** @param {number} which */
  const question = (which) => {
    const { text, into, text2, into2, lens, model, to, explain } = store.state;
    const target = (which ? into2 : into).trim();
    return { pane: which, source: which ? text2 : text, target: target || null, lens, off: off.now(), ...(model ? { model } : {}), ...(to ? { to } : {}), ...(explain && !which ? { explain: Number(explain) || explain } : {}), ...picture.given() };
  };

  /** Ask anew what the state now asks. @param {Set<string>} changed */
  function ask(changed) {
    clearTimeout(timer);
    stale = true;
    showTools();
    showOff();
    sentences.forEach((sentence) => sentence.refill(modelName()));
    const both = [...changed].some((name) => !isText(name));
    for (const which of used()) {
      const concerns = both || [...changed].some((name) => name.endsWith("2") === (which === 1));
      const asked = question(which);
      if (!concerns) continue;
      if (asked.source.trim() || asked.picture) {
        sentences[which].wait();
        source.ask(asked);
      } else sentences[which].fail("Write a sentence: the model answers as you write.");
    }
    if (changed.has("beside")) pages.length = Math.min(pages.length, used().length);
  }

  /** @param {Reply} reply */
  function hear(reply) {
    const which = reply.pane ?? 0;
    if (reply.kind === "why") why.hear(reply);
    else if (reply.doing) status.textContent = reply.doing;
    else if (reply.error) {
      status.textContent = "";
      sentences[which].fail(inPage(reply.error));
    } else if (reply.kind === "heads") takeEffects(reply);
    else if (reply.document && used().includes(which)) {
      pages[which] = receive({ ...fixed, ...reply.document }, reply.codes ?? reply.blobs ?? {});
      answers[which] = reply.answer;
      showTools();
      off.allow(Boolean(reply.answer?.pieces.length));
      if (reply.answer?.seconds) status.textContent = `${fixed.models?.length ? "" : "the model runs in this page · "}answered in ${Math.max(Math.round(reply.answer.seconds * 1000), 1)} ms`;
      pages[which].notes = [...new Set([...(reply.document.notes ?? []), ...(reply.answer?.notes ?? [])].map(inPage))];
      sentences[which].show(reply.answer, pages[which]);
      if (reply.more) sentences[which].wait(); // something newer was asked meanwhile
      if (which === 0) {
        guide.hidden = !reply.answer?.to; // it tells of a translation
        addEffects();
        begin(pages[0]);
        clearTimeout(timer);
        if (off.able) timer = setTimeout(() => source.heads(question(0)), QUIET);
      }
      if (pages[0]) answered(pages[0]);
      showOff();
      tour.show();
    }
  }

  /** @param {Reply} reply */
  function takeEffects({ stream, values }) {
    if (!stream || !values) return;
    if (stale) effects = {};
    stale = false;
    effects[stream] = values.map((layer) => layer.map((value) => (Number.isFinite(value) ? value : null)));
    addEffects();
    effected();
    tour.learn(effects);
  }

  /** The effects as a measure of heads, where the map has a head for each. */
  function addEffects() {
    for (const map of pages[0].maps) {
      const values = effects[map.stream];
      const fits = values?.length === map.layers.length && values[0]?.length === map.heads.length;
      map.measures = map.measures.filter(({ name }) => name !== "effect");
      if (!fits) continue;
      const of = stale ? " (of the sentence before: being computed)" : "";
      map.measures.unshift({ name: "effect", unit: `nats that log p of the output loses without the head${of}`, low: "it hurts", high: "it is needed", values });
    }
  }

  /** @param {string} words @param {string} key @param {() => void} action */
  function button(words, key, action) {
    const made = make("button", { type: "button", title: `${words} (${key})`, "aria-keyshortcuts": key }, [words]);
    made.addEventListener("click", action);
    return made;
  }

  function showTools() {
    const { lens, beside, model, to, explain } = store.state;
    const pieces = ["effect", "gradient"].includes(lens) && answers[0]?.to ? answers[0].pieces : null;
    const now = JSON.stringify([lens, beside, model, to, explain, pieces?.map(({ text }) => text)]);
    if (chosenTools.dataset.shown === now) return;
    chosenTools.dataset.shown = now;
    const [lenses, models] = [fixed.lenses ?? ["raw", "rollout", "effect"], fixed.models ?? []];
    const examples = select("example", [["", "choose …"], ...EXAMPLES.map((text) => [text, text])], "", (text) => {
      if (text) store.set({ text, into: "", off: off.withoutPlaces() });
      /** @type {HTMLSelectElement} */ (chosenTools.querySelector('[data-switch="example"]')).value = "";
    });
    const two = make("button", { type: "button", "aria-pressed": String(beside === "on"), title: "Two sentences (b)" }, ["Two sentences"]);
    two.addEventListener("click", besides);
    const focused = document.activeElement;
    const place = [...chosenTools.querySelectorAll("select, button")].indexOf(/** @type {Element} */ (focused));
    chosenTools.replaceChildren(
      ...(models.length > 1 ? [select("model", models.map((name) => [name, name.split("/").slice(-2).join("/")]), model || models[0], (name) => store.set({ model: name, off: "", to: "", explain: "" }))] : []),
      examples,
      select("lens", lenses.map((name) => [name, name]), lens, (name) => store.set({ lens: name, explain: "" })),
      ...(pieces ? [select("explain", [...(served ? [["", "usual"]] : []), [served ? "all" : "", "all tokens"], ...pieces.map((piece, place) => [String(place + 1), beginning(piece.text, 14)])], explain, (name) => store.set({ explain: name }))] : []),
      ...(modelName() === "pocket" ? [select("to", [["", "guessed"], ...Object.entries(LANGUAGES)], to, (name) => store.set({ to: name }))] : []),
      ...(served ? [picture.element] : []), two, guide, status,
    );
    if (place >= 0) /** @type {HTMLElement} */ (chosenTools.querySelectorAll("select, button")[place])?.focus();
  }

  const besides = () => store.set({ beside: store.state.beside ? "" : "on" });

  function showOff() {
    undo.disabled = !off.canUndo;
    reset.disabled = !off.any;
    offBar.hidden = !off.any && !off.canUndo;
    const parts = off.parts();
    const heads = parts.filter((spelt) => spelt.split(":").length === 3);
    const others = parts.filter((spelt) => !heads.includes(spelt));
    /** @param {string} words @param {() => void} restore */
    const item = (words, restore) => {
      const again = make("button", { type: "button", "aria-label": `Switch on again: ${words}` }, [make("bdi", {}, [words]), make("span", { "aria-hidden": "true" }, [" ×"])]);
      again.addEventListener("click", restore);
      return make("li", {}, [again]);
    };
    const grouped = heads.length > NAMED
      ? [item(`${heads.length} heads`, () => off.restore(...heads))]
      : heads.map((spelt) => item(spellPart(spelt), () => off.restore(spelt)));
    offList.replaceChildren(
      make("li", {}, [off.any ? "Off:" : "Nothing is off."]), ...grouped,
      ...others.map((spelt) => item(spellPart(spelt), () => off.restore(spelt))),
    );
  }

  /** A head, a link or a token, in words. @param {string} spelt */
  function spellPart(spelt) {
    const { heads, links, tokens } = readOff(spelt);
    for (const [stream, layer, head] of heads) return `${stream} layer ${layer} head ${head}`;
    for (const [stream, layer, head, query, key] of links) {
      const map = pages[0]?.maps.find((item) => item.stream === stream);
      const [from, to] = [map?.queries.tokens[query]?.text ?? query, map?.keys.tokens[key]?.text ?? key];
      return `${from} → ${to} in ${stream} ${layer}·${head}`;
    }
    const [side, position] = tokens[0] ?? ["", 0];
    return wordAt(side, position);
  }

  /** @param {string} side @param {number} position */
  function wordAt(side, position) {
    const axes = pages[0]?.maps.flatMap(({ queries, keys }) => [queries, keys]) ?? [];
    return axes.find((axis) => axis.side === side)?.tokens[position]?.text ?? `${side} ${position}`;
  }

  /** What can be done with what is looked at: its heads, its pinned link, its token. */
  function showChoice() {
    const { scene } = pane;
    why.show(scene, question(0));
    const { map, heads, shown, state } = scene;
    const [query, key] = [shown.queries[state.row], shown.keys[state.column]];
    const [off1, one] = [heads.every((head) => off.headOff(map, head)), heads.length === 1];
    const name = one ? `layer ${map.layers[heads[0][0]]} head ${map.heads[heads[0][1]]}` : `these ${heads.length} heads`;
    const cut = query && key && scene.cut.some(([row, column]) => row === state.row && column === state.column);
    const hidden = key ?? query;
    const short = (/** @type {{text: string}} */ token) => beginning(token.text, 14);
    const fits = off.fits(map);
    /** @type {[string, string, boolean][]} */
    const told = [
      [off1 ? `Switch ${name} on` : `Switch ${name} off`, "o", fits],
      [one ? "All heads off but this one" : "All heads off but these", "a", fits],
      [query && key ? `${cut ? "Mend" : "Cut"} ${short(query)} → ${short(key)}` : "Cut a link", "k", Boolean(fits && query && key)],
      [hidden ? `Hide ${short(hidden)}` : "Hide a token", "h", Boolean(hidden) && off.able],
    ];
    const place = [...acts.children].indexOf(/** @type {Element} */ (document.activeElement));
    acts.replaceChildren(...told.map(([words, letter, can]) => {
      const made = button(words, letter, keys()[letter]);
      made.disabled = !can;
      if (!can && fits) made.title = "Choose a cell of the heat map, or two tokens, first";
      return made;
    }));
    if (place >= 0) /** @type {HTMLElement} */ (acts.children[place]).focus();
  }

  /** @returns {Record<string, () => void>} */
  function keys() {
    const map = pages[0] && chosenMap(pages[0].maps, store.state);
    const heads = map ? chosenHeads(map, store.state) : [];
    const { row, column } = store.state;
    return {
      o: () => {
        const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.head?.split(".").map(Number);
        if (map && off.fits(map)) off.toggleHeads(map, focused ? [[focused[0], focused[1]]] : heads);
      },
      a: () => map && off.fits(map) && off.only(map, heads),
      k: () => pane.toggleLink(row, column),
      h: () => {
        const { shown } = pane.scene;
        const [token, side] = shown.keys[column] ? [shown.keys[column], map.keys.side] : [shown.queries[row], map.queries.side];
        if (token) off.toggleTokens(side, places(token));
      },
      y: () => why.focus(),
      u: () => off.undo(),
      n: () => off.reset(),
      b: besides,
      g: () => store.set({ tour: 1 }),
      "/": () => sentences[0].focus(),
    };
  }

  store.onChange((changed) => {
    if (changed.has("tour")) tour.show();
  });
  document.body.dataset.beside = store.state.beside;
  source.listen(hear);
  ask(new Set(ASKED));
  tour.show();

  return {
    first,
    ask(/** @type {Set<string>} */ changed) {
      document.body.dataset.beside = store.state.beside;
      ask(changed);
    },
    keys,
    showChoice,
    switchedOff: () => off.parts().map(spellPart),
    get texts() {
      const given = store.state.into.trim();
      return { source: store.state.text, target: given ? store.state.into : answers[0]?.written };
    },
    /** @param {typeof answered} listener told of every answer about the first sentence */
    onAnswer(listener) {
      answered = listener;
    },
    /** @param {() => void} listener */
    onEffects(listener) {
      effected = listener;
    },
    /** The second sentence, looked at as the first is. */
    async showSecond() {
      second.stage.hidden = !store.state.beside;
      if (!store.state.beside || !pages[1]) return;
      secondPane ??= createPane(second, store, off);
      await secondPane.show(pages[1], () => {});
    },
  };
}
