/** A sentence, its tokens, and what the model makes of it: written, scored, and what changed. */

import { sumOf } from "./rows.js";
import { LANGUAGES } from "./state.js";
import { reload } from "./broken.js";
import { pairTokens } from "./difference.js";
import { beginning } from "./labels.js";
import { linkWords } from "./look.js";
import { decimals, spell, spellShort } from "./numbers.js";
import { make, patch } from "./surface.js";

/** @typedef {ReturnType<typeof createSentence>} Sentence */

/** A language in words. @param {string} name */
const nameOf = (name) => /** @type {Record<string, string>} */ (LANGUAGES)[name] ?? `language ${name}`;
/** @type {Record<string, string>} what the shipped models read */
const READS = { pocket: " in English or French", "pocket-lm": " in English", "pocket-vit": ", to which a picture is added" };
/** Nats by which a piece's log p may move before that is shown. */
const LEAST_CHANGE = 0.05;

/** @param {number} pane 0, or 1 for the sentence beside it @param {Store} store @param {import("./off.js").Switches} off */
export function createSentence(pane, store, off) {
  const [textName, intoName] = pane ? /** @type {const} */ (["text2", "into2"]) : /** @type {const} */ (["text", "into"]);
  const [name, tongue, other, what] = [make("span"), make("small"), make("small"), make("span", {}, ["Translation "])];
  const text = field(textName, "A sentence");
  const into = field(intoName, "Left empty, the model writes it");
  const tokens = make("p", { class: "running tokens", role: "group", "aria-label": "Tokens of the sentence" });
  const output = make("p", { class: "running written", role: "group", "aria-label": "Tokens of the translation" });
  const score = make("p", { class: "score" });
  const change = make("p", { class: "changed" });
  const notes = make("p", { class: "hint" });
  const failure = make("p", { class: "failed", role: "alert" });
  const spoken = make("p", { class: "unseen", role: "status" });
  const element = make("div", { class: "sentence" }, [
    make("div", { class: "side" }, [make("label", { for: text.id }, [name, tongue]), text, tokens, notes]),
    make("div", { class: "side" }, [make("label", { for: into.id }, [what, other]), into, output, score, change]),
    failure, spoken,
  ]);
  let timer = 0;
  if (!pane) linkWords(element);

  /** @param {typeof textName | typeof intoName} name @param {string} hint */
  function field(name, hint) {
    const area = make("textarea", { id: name, rows: 1, placeholder: hint, spellcheck: "false", autocomplete: "off" });
    area.value = store.state[name];
    // Positions in words that are no longer there would mean others.
    area.addEventListener("input", () => store.set({ [name]: area.value, off: off.withoutPlaces(), explain: "", word: "", row: -1, column: -1 }));
    return area;
  }

  /** @param {string} side @param {number} place @returns {Record<string, string>} */
  const pointing = (side, place) => (pane || !side ? {} : { "data-token": `${side}:${place}` });

  /**
   * A token that a click hides, or one that a click explains and Alt + click hides; without a side it is read by no head.
   * @param {Token} token @param {string} side @param {number} place @param {string} number @param {number} [word] of the output, from 1
   */
  function chip(token, side, place, number, word = 0) {
    const hidden = off.tokenOff(side, place);
    const [parts, canHide] = [[make("bdi", {}, [beginning(token.text, 60)]), make("span", { class: "number" }, [number])], side && off.able];
    if (!canHide && !word) return make("span", { class: `word${token.special ? " special" : ""}`, ...pointing(side, place) }, parts);
    return make("button", {
      type: "button", class: `word${token.special ? " special" : ""}${hidden ? " hidden-token" : ""}`, "aria-pressed": String(word ? store.state.word === String(word) : hidden), ...pointing(side, place),
      title: word ? `a click asks why the model says it${canHide ? `, Alt + click ${hidden ? "shows it to" : "hides it from"} every head` : ""}` : hidden ? "hidden from every head; a click shows it again" : "a click hides it from every head",
      onclick: (/** @type {MouseEvent} */ event) => {
        if (canHide && (event.altKey || !word)) off.toggleTokens(side, [place]);
        else store.set({ word: store.state.word === String(word) ? "" : String(word) });
      },
    }, parts);
  }

  /** @param {PageDocument} page */
  function showTokens(page) {
    const [side, axis] = readAxis(page);
    patch(tokens, joinItems(axis, (token, place) => chip(token, side, place, "")));
  }

  /** @param {Answer} answer @param {PageDocument} page */
  function showWritten({ pieces, changed: after, to }, page) {
    const target = readsTwo(page);
    const noun = to ? "translation" : "output";
    what.textContent = to ? "Translation " : "Output ";
    const total = sumOf(pieces.map(({ logp }) => logp));
    patch(output, joinItems(pieces, (piece, place) => {
      const shift = after ? after.pieces[place].logp - piece.logp : 0;
      const number = after ? (Math.abs(shift) < LEAST_CHANGE ? "" : `${shift < 0 ? "−" : "+"}${Math.abs(shift).toFixed(1)}`) : spellShort(Math.exp(piece.logp));
      const item = chip(piece, target ? "target" : "", place + 1, number, pane ? 0 : place + 1);
      item.classList.toggle("worse", shift <= -LEAST_CHANGE);
      item.classList.toggle("better", shift >= LEAST_CHANGE);
      item.style.setProperty("--p", String(Math.exp(after ? after.pieces[place].logp : piece.logp)));
      const words = `probability ${spell(Math.exp(piece.logp))}${after ? `, now ${spell(Math.exp(after.pieces[place].logp))}` : ""}`;
      item.setAttribute("aria-description", words);
      item.title = [words, item.title].filter(Boolean).join("; ");
      return item;
    }));
    score.hidden = !pieces.length;
    const changes = after ? [" → ", make("b", {}, [decimals(after.total)]), make("span", { class: after.effect >= 0.005 ? "below" : "" }, [` ${spellEffect(after.effect)}`])] : [];
    const under = after ? `the change of its log p, where ${spell(LEAST_CHANGE)} or more` : "its probability";
    score.replaceChildren("log p ", make("b", {}, [decimals(total)]), ...changes, make("small", {}, [` of the ${noun}, in nats; under each token ${under}`]));
  }

  /** @param {Answer} answer */
  function showChanged({ written: before, changed: after }) {
    change.hidden = !after || !(before || after.written);
    if (!after) return;
    const same = after.written === before;
    change.replaceChildren(make("span", { class: "hint" }, [same ? "Switched off, and it still writes " : "Switched off, it writes "]), ...markChanges(before, after.written));
  }

  return {
    element,
    /** Fields as the state has them, unless someone is writing there. @param {string} model @param {boolean} readsPictures whether it reads pictures alone */
    refill(model, readsPictures) {
      name.textContent = readsPictures ? "Picture: a sample, until you choose one above " : pane ? "Sentence beside it " : "Sentence ";
      text.hidden = readsPictures;
      text.placeholder = `A sentence${READS[model] ?? ""}`;
      for (const area of [text, into]) {
        const value = store.state[/** @type {typeof textName} */ (area.id)];
        if (area.value !== value) area.value = value;
      }
    },
    focus: () => text.focus(),
    /** @param {Answer | undefined} answer @param {PageDocument} page */
    show(answer, page) {
      failure.textContent = "";
      element.classList.remove("waiting", "outdated");
      showTokens(page);
      into.hidden = !into.value && !readsTwo(page);
      notes.textContent = page.notes.join("; ");
      if (!answer) return;
      tongue.textContent = answer.language ? nameOf(answer.language) : "";
      other.textContent = answer.to ? `${nameOf(answer.to)}${store.state[intoName].trim() ? ", as given" : ", written by the model"}` : "";
      [into.lang, text.lang] = [answer.to, answer.language].map((name) => (name && name in LANGUAGES ? name : ""));
      showWritten(answer, page);
      showChanged(answer);
      clearTimeout(timer);
      timer = setTimeout(() => (spoken.textContent = summary(answer)), 700);
    },
    /** @param {string} error @param {boolean} [fatal] whether only a new start helps */
    fail(error, fatal = false) {
      const before = tokens.firstChild ? ". What is shown is of the sentence before." : "";
      failure.replaceChildren(error.replace(/\.$/, "") + before, ...(fatal ? [" ", reload()] : []));
      element.classList.toggle("outdated", Boolean(before));
      element.classList.remove("waiting");
    },
    wait: () => element.classList.add("waiting"),
  };
}

/** Whether there is a second text. @param {PageDocument} page */
const readsTwo = (page) => page.maps.some(({ queries }) => queries.side === "target");

/** The tokens that are read, and which side they are. @param {PageDocument} page @returns {[string, Token[]]} */
function readAxis(page) {
  const map = page.maps.find(({ keys, queries }) => keys.side === queries.side && keys.side !== "target") ?? page.maps[0];
  return [map.keys.side, map.keys.tokens];
}

/** @template {{gap: string}} Item @param {Item[]} items @param {(item: Item, place: number) => Node} build */
function joinItems(items, build) {
  return items.flatMap((item, place) => (item.gap ? [make("span", { class: "gap" }), build(item, place)] : [build(item, place)]));
}

/** What switching off did, in words. @param {number} effect log p before − log p after */
export const spellEffect = (effect) => (Math.abs(effect) < 0.005 ? "(no change)" : `(${Math.abs(effect).toFixed(2)} nats ${effect > 0 ? "lower" : "higher"})`);

/** @param {Answer} answer */
function summary({ written, changed, to }) {
  const noun = to ? "Translation" : "Output";
  if (!changed) return written && `${noun}: ${written}`;
  const now = changed.written === written ? "unchanged" : `now: ${changed.written}`;
  return `${noun} ${now}. Log probability of the ${noun.toLowerCase()} before ${spellEffect(changed.effect)}`;
}

/** Words of the second that are not in the first are marked, and the other way round. @param {string} one @param {string} two */
export function markChanges(one, two) {
  const [before, after] = [one, two].map((text) => text.split(/\s+/).filter(Boolean));
  return pairTokens(before, after).flatMap(([at, opposite]) => {
    const [old, now] = [before[at], after[opposite]].map((word) => make("bdi", {}, [word ?? ""]));
    if (before[at] === after[opposite]) return [now, " "];
    return [...(at < 0 ? [] : [make("del", {}, [old]), " "]), ...(opposite < 0 ? [] : [make("ins", {}, [now]), " "])];
  });
}
