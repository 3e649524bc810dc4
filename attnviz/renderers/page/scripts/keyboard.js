/** Keys for everything, listed by ?. */

import { chosenHeads, chosenMap, spellHeads } from "./state.js";
import { offeredViews } from "./controls.js";
import { headsOfLayer } from "./model.js";
import { make } from "./surface.js";

const HEADS = '[data-switch="layer"], [data-switch="head"]';
/** Keys, what they do, and what of the page must be there for it. */
const KEYS = [
  ["1 2 …", "the views, from left to right"],
  ["[ ]", "the head before, the next head", HEADS],
  ["{ }", "the layer before, the next layer", '[data-switch="layer"]'],
  ["m", "all heads of the layer together; again: one head", '[data-switch="head"]'],
  ["x", "mean or maximum of several heads", '[data-switch="several as"]'],
  ["w", "tokens or words", '[data-switch="by"]:enabled'],
  ["s", "special tokens: keep, drop, renormalise", '[data-switch="special tokens"]:enabled'],
  ["t", "the next stream or lens", '#switches :is([data-switch="stream"], [data-switch="lens"], [data-switch="step"])'],
  ["c", "the next colours", '[data-switch="colours"]:enabled'],
  ["r", "colour scale: shared, or up to the largest here", '[data-switch="scale"]'],
  ["↑ ↓ ← →", "in a view: from cell to cell, from token to token"],
  ["+ − 0", "in the heat map: closer, farther, all of it", "#view .plot"],
  ["Esc", "let go of the pinned cell"],
  ["u U", "undo; redo (also Ctrl + z, Ctrl + Shift + z)"],
  ["p", "save a picture of what is seen"],
  ["?", "this list"],
];

const LIVE_KEYS = [
  ["o", "the heads looked at: off, and on again"],
  ["a", "all heads of the stream off but these"],
  ["k", "cut the pinned link, or mend it"],
  ["h", "hide the pinned token, or show it"],
  ["y", "to why the pinned link is there"],
  ["i", "what the head does in other texts", '.acts [aria-keyshortcuts="i"]:enabled, #corpus:not([hidden])'],
  ["n", "everything on"],
  ["b d", "two sentences side by side; as a difference"],
  ["g", "guided tour", '[aria-keyshortcuts="g"]:not([hidden])'],
  ["/", "to the sentence"],
];

const STORE_KEY = "attnviz keys";
/** Whether single letters are keys; who speaks to the machine switches them off. */
let letters = readMemory() !== "off";

/** What this browser remembers; a frame of another page may not ask. */
function readMemory() {
  try {
    return localStorage.getItem(STORE_KEY);
  } catch {
    return null;
  }
}

/** @param {boolean} on */
function switchLetters(on) {
  letters = on;
  try {
    localStorage.setItem(STORE_KEY, on ? "on" : "off");
  } catch {
    // It holds until the page is closed.
  }
}

/** The keys that do something here, now. @param {HTMLDialogElement} dialog @param {boolean} live whether the page answers */
export function openHelp(dialog, live) {
  const rows = [...KEYS, ...(live ? LIVE_KEYS : [])].filter(([, , needs]) => !needs || document.querySelector(needs)).map(([key, words]) => make("tr", {}, [make("th", {}, [make("kbd", {}, [key])]), make("td", {}, [words])]));
  const box = make("input", { type: "checkbox", checked: letters, onchange: ({ target }) => switchLetters(target.checked) });
  dialog.replaceChildren(
    make("button", { type: "button", onclick: () => dialog.close() }, ["Close"]), // first: a small screen begins where the focus is
    make("h2", {}, ["Keys"]),
    make("table", {}, [make("tbody", {}, rows)]),
    ...(document.querySelector(HEADS) ? [make("p", { class: "hint" }, ["Click a head to look at it; Shift or Ctrl + click adds it to the chosen ones: lines then show each in a colour, the other views their mean or maximum."])] : []),
    make("p", {}, [make("label", {}, [box, "Letters, digits and signs are keys"])]),
  );
  dialog.showModal();
}

/**
 * @param {() => PageDocument} current
 * @param {Store} store
 * @param {HTMLDialogElement} dialog
 * @param {() => Record<string, () => unknown>} more keys
 * @param {boolean} live
 */
export function listen(current, store, dialog, more, live) {
  addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("select, input:not([type=range]), textarea")) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "z") return;
      if (event.shiftKey) store.redo();
      else store.undo();
      return event.preventDefault();
    }
    const page = current();
    if (event.key.length === 1 && !letters) return;
    if (event.key === "?") openHelp(dialog, live);
    else if (target.getAttribute("role") === "tab" && event.key.startsWith("Arrow")) nextTab(event.key, page, store);
    else {
      const action = actions(page, store)[event.key] ?? more()[event.key];
      if (!action) return;
      action();
    }
    event.preventDefault();
  });
}

/** @param {string} key @param {PageDocument} page @param {Store} store */
function nextTab(key, page, store) {
  const names = offeredViews(chosenMap(page.maps, store.state)).map(([name]) => name);
  const step = key === "ArrowRight" || key === "ArrowDown" ? 1 : names.length - 1;
  store.set({ view: names[(names.indexOf(store.state.view) + step) % names.length] });
}

/** @param {PageDocument} page @param {Store} store @returns {Record<string, (() => void) | undefined>} */
function actions(page, store) {
  const { state } = store;
  const map = chosenMap(page.maps, state);
  /** Turn a switch of the page to its next choice, if it is there. @param {string} name */
  const turn = (name) => {
    const field = /** @type {HTMLSelectElement | null} */ (document.querySelector(`select[data-switch="${name}"]:enabled`));
    if (!field) return;
    field.selectedIndex = (field.selectedIndex + 1) % field.length;
    field.dispatchEvent(new Event("change"));
  };
  const viewKeys = offeredViews(map).map(([name], place) => [String(place + 1), () => store.set({ view: name })]);
  return {
    ...Object.fromEntries(viewKeys),
    "]": () => stepHead(map, store, 1),
    "[": () => stepHead(map, store, -1),
    "}": () => stepLayer(map, store, 1),
    "{": () => stepLayer(map, store, -1),
    m: () => {
      const heads = chosenHeads(map, state);
      const layer = heads[0][0];
      store.set({ heads: heads.length > 1 ? `${layer}.0` : spellHeads(headsOfLayer(map, layer)) });
    },
    x: () => turn("several as"),
    w: () => turn("by"),
    s: () => turn("special tokens"),
    t: page.maps.length > 1 ? () => store.set({ map: (page.maps.indexOf(map) + 1) % page.maps.length, heads: "", measure: "", filter: "", row: -1, column: -1, zoom: "" }) : undefined,
    c: () => turn("colours"),
    r: () => turn("scale"),
    u: store.undo,
    U: store.redo,
    Escape: () => store.set({ row: -1, column: -1 }),
  };
}

/** @param {PageMap} map @param {Store} store @param {number} step */
function stepHead(map, store, step) {
  const heads = chosenHeads(map, store.state);
  const [layer, head] = step > 0 ? heads[heads.length - 1] : heads[0];
  const count = map.layers.length * map.heads.length;
  const place = heads.length > 1 ? layer * map.heads.length + (step > 0 ? 0 : map.heads.length - 1) : (layer * map.heads.length + head + step + count) % count;
  store.set({ heads: `${Math.floor(place / map.heads.length)}.${place % map.heads.length}` });
}

/** @param {PageMap} map @param {Store} store @param {number} step */
function stepLayer(map, store, step) {
  const heads = chosenHeads(map, store.state);
  const layer = (heads[0][0] + step + map.layers.length) % map.layers.length;
  store.set({ heads: heads.length > 1 ? spellHeads(headsOfLayer(map, layer)) : `${layer}.${heads[0][1]}` });
}
