/** What of the page the reader has chosen, with what may be chosen, and the heads and the map that follow. */

import { createStore } from "./address.js";
import { clamp } from "./numbers.js";
import { firstHeads } from "./model.js";
import { readOff } from "./off.js";

/** @typedef {{document: PageDocument, maps: PageMap[], pieces?: number, bare?: string}} Choices what there is to choose from, with the number of an answer's outputs; no maps: not known yet */

export const TOUR_STEPS = 6;
export const LANGUAGES = { en: "English", fr: "French" };

/** Such a value, if it is one of these, or if there is no knowing. @param {(choices: Choices) => readonly string[] | undefined} names */
const among = (names) => (/** @type {string} */ value, /** @type {Choices} */ choices) =>
  names(choices)?.includes(value) === false ? undefined : value;
/** @param {...string} names */
const oneOf = (...names) => among(() => names);
/** @param {(value: any, choices: Choices) => boolean} fits */
const where = (fits) => (/** @type {any} */ value, /** @type {Choices} */ choices) => (fits(value, choices) ? value : undefined);
/** Of a list, what exists. @param {(part: string, maps: PageMap[]) => unknown} isPart */
const those = (isPart) => (/** @type {string} */ value, /** @type {Choices} */ { maps }) =>
  maps.length ? value.split(",").filter((part) => part && isPart(part, maps)).join(",") : value;
/** A query or a key, or none. @param {"queries" | "keys"} side */
const token = (side) => where((value, { maps }) => Number.isInteger(value) && value >= -1 && (!maps.length || maps.some((map) => value < map[side].tokens.length)));
const OLD_NAMES = { kept: "keep", dropped: "drop", renormalised: "renormalise" }; // since the command's words were taken

/** @type {Parameters<typeof createStore<State, Choices>>[0]} */
const SCHEMA = {
  view: ["heatmap", oneOf("sentence", "heads", "heatmap", "lines", "text", "query-key", "image", "table")],
  map: [0, where((value, { maps }) => Number.isInteger(value) && value >= 0 && (!maps.length || value < maps.length))],
  heads: ["", those((name, maps) => maps.some((map) => headOf(map, name)))],
  mix: ["mean", oneOf("mean", "max")],
  unit: ["tokens", oneOf("tokens", "words")],
  specials: ["keep", (value) => /** @type {any} */ (OLD_NAMES)[value] ?? oneOf("keep", "drop", "renormalise")(value, /** @type {any} */ (null))],
  colors: ["blue", among(({ document }) => Object.keys(document.schemes))],
  range: ["auto", oneOf("auto", "shared", "view")],
  row: [-1, token("queries")],
  column: [-1, token("keys")],
  zoom: ["", where((value) => !value || /^[\d.]+,[\d.]+,[\d.]+$/.test(value))],
  least: [-1],
  direction: ["from", oneOf("from", "to")],
  measure: ["", where((value, { maps }) => ["", "effect", "pinned"].includes(value) || !maps.length || maps.some(({ measures }) => measures.some(({ name }) => name === value)))],
  order: ["layout", oneOf("layout", "high", "low")],
  filter: ["", where((value) => Number.isFinite(Number(value)))],
  text: ["The red car is fast."],
  into: [""],
  text2: ["The blue car is fast."],
  into2: [""],
  beside: ["", oneOf("", "on", "difference")],
  lens: ["raw", among(({ document }) => document.lenses)],
  model: ["", among(({ document }) => document.models && ["", ...document.models])],
  to: ["", oneOf("", ...Object.keys(LANGUAGES))],
  explain: [""],
  off: ["", those(isThere)],
  word: ["", where((value, { pieces = Infinity }) => /^[1-9]\d*$/.test(value) && Number(value) <= pieces)],
  tour: [0, where((value) => Number.isInteger(value) && value >= 0 && value <= TOUR_STEPS)],
};

/** What a question is made of: where one of these changes, the model answers anew. */
export const QUESTION_KEYS = ["text", "into", "text2", "into2", "beside", "lens", "model", "to", "explain", "off"];
const SILENT = /** @type {any} */ (Object.fromEntries([...QUESTION_KEYS, "word", "tour"].map((name) => [name, [SCHEMA[/** @type {keyof State} */ (name)][0], () => undefined]])));
export const isText = (/** @type {string} */ name) => /^(text|into)2?$/.test(name);

/** A page that does not answer asks nothing. @param {Choices} choices @returns {Store} */
export const openStore = (choices) => createStore(choices.document.lenses ? SCHEMA : { ...SCHEMA, ...SILENT }, choices, ["text", "into", "text2", "into2", "zoom", "least", "filter", "row", "column", "map"]);

/** Whether a head, a link or a token that is off exists. @param {string} part @param {PageMap[]} maps */
function isThere(part, maps) {
  const { heads, links, tokens } = readOff(part);
  const exist = [...heads, ...links].every(([stream, layer, head]) => maps.some((map) => map.stream === stream && map.layers.includes(layer) && map.heads.includes(head)));
  // Places in a text are checked by who answers: the text may be new.
  return heads.length + links.length + tokens.length > 0 && exist;
}

/** A head by its name in the address. @param {PageMap} map @param {string} text @returns {Head | undefined} */
function headOf(map, text) {
  const [, layer, head] = /^(\d+)\.(\d+)$/.exec(text)?.map(Number) ?? [];
  return layer < map.layers.length && head < map.heads.length ? [layer, head] : undefined;
}

/** The chosen heads that exist; the ones to see first where none does. @param {PageMap} map @param {State} state @returns {Head[]} */
export function chosenHeads(map, state) {
  const named = state.heads.split(",").map((name) => headOf(map, name)).filter((head) => head !== undefined);
  const heads = [...new Map(named.map((head) => [spellHeads([head]), head])).values()]; // each counts once
  const result = heads.length ? heads : firstHeads(map);
  // One query and one key multiply in one head.
  return state.view === "query-key" ? result.slice(0, 1) : result;
}

/** @param {Head[]} heads */
export const spellHeads = (heads) => heads.map(([layer, head]) => `${layer}.${head}`).join(",");

/** The map that is looked at; numbers from a foreign address are brought into range. @param {PageMap[]} maps @param {State} state */
export const chosenMap = (maps, state) => maps[clamp(Math.trunc(state.map), 0, maps.length - 1)];
