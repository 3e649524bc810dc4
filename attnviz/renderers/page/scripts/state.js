/** What the reader has chosen, kept in the address behind the #, so that a link reopens it. */

import { clamp } from "./numbers.js";
import { firstHeads } from "./model.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").PageMap} PageMap */

/** @type {State} */
export const DEFAULTS = {
  view: "heatmap",
  map: 0,
  heads: "",
  mix: "mean",
  unit: "tokens",
  specials: "keep",
  colors: "blue",
  range: "auto",
  row: -1,
  column: -1,
  zoom: "",
  least: -1,
  direction: "from",
  measure: "",
  order: "layout",
  filter: "",
  text: "The red car is fast.",
  into: "",
  text2: "The blue car is fast.",
  into2: "",
  beside: "",
  lens: "raw",
  model: "",
  to: "",
  explain: "",
  off: "",
  tour: 0,
};

/** What a question is made of: where one of these changes, the model answers anew. */
export const ASKED = ["text", "into", "text2", "into2", "beside", "lens", "model", "to", "explain", "off"];

/**
 * @param {string} fragment
 * @returns {State}
 */
export function readState(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  /** @type {Record<string, string | number>} */
  const state = { ...DEFAULTS };
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const text = given.get(name);
    if (text === null) continue;
    if (typeof usual === "string") state[name] = text;
    else if (Number.isFinite(Number(text))) state[name] = Number(text);
  }
  // Addresses saved before the command's words were taken.
  const renamed = { kept: "keep", dropped: "drop", renormalised: "renormalise" };
  state.specials = renamed[/** @type {keyof typeof renamed} */ (state.specials)] ?? state.specials;
  return /** @type {any} */ (state);
}

/** @param {State} state */
export function writeState(state) {
  const parts = Object.entries(state)
    .filter(([name, value]) => value !== /** @type {any} */ (DEFAULTS)[name])
    .map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
  return parts.join("&");
}

/** @returns {import("./types.js").Store} */
export function createStore() {
  let state = readState(location.hash);
  let remembering = 0;
  /** @type {((changed: Set<string>) => void)[]} */
  const listeners = [];
  /** @param {State} next */
  const become = (next) => {
    const changed = new Set(
      Object.keys(DEFAULTS).filter((name) => {
        const key = /** @type {keyof State} */ (name);
        return next[key] !== state[key];
      }),
    );
    state = next;
    if (changed.size) listeners.forEach((listener) => listener(changed));
  };
  addEventListener("hashchange", () => become(readState(location.hash)));
  return {
    get state() {
      return state;
    },
    set(changes) {
      become({ ...state, ...changes });
      clearTimeout(remembering);
      // Browsers take only so many addresses a minute, and people type faster.
      if (Object.keys(changes).some((name) => name.startsWith("text") || name.startsWith("into"))) {
        remembering = setTimeout(() => remember(state), 300);
      } else remember(state);
    },
    onChange(listener) {
      listeners.push(listener);
    },
  };
}

/** @param {State} state */
function remember(state) {
  const fragment = writeState(state);
  try {
    history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
  } catch {
    // A frame without an address of its own, as in a notebook, has nowhere to remember it.
  }
}

/**
 * The chosen heads that exist; the ones to see first where none does.
 * @param {PageMap} map
 * @param {State} state
 * @returns {import("./types.js").Head[]}
 */
export function chosenHeads(map, state) {
  /** @type {import("./types.js").Head[]} */
  const heads = [];
  for (const text of state.heads.split(",")) {
    const found = /^(\d+)\.(\d+)$/.exec(text);
    if (!found) continue;
    const [layer, head] = [Number(found[1]), Number(found[2])];
    if (layer < map.layers.length && head < map.heads.length) heads.push([layer, head]);
  }
  const found = heads.length ? heads : firstHeads(map);
  // One query and one key multiply in one head.
  return state.view === "query-key" ? found.slice(0, 1) : found;
}

/** @param {import("./types.js").Head[]} heads */
export function spellHeads(heads) {
  return heads.map(([layer, head]) => `${layer}.${head}`).join(",");
}

/**
 * The map that is looked at; numbers from a foreign address are brought into range.
 * @param {PageMap[]} maps
 * @param {State} state
 */
export function chosenMap(maps, state) {
  return maps[clamp(Math.trunc(state.map), 0, maps.length - 1)];
}
