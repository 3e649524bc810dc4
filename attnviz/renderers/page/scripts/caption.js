/** What is looked at, and what must be known about it, in words. */

import { isReduced, roundingOf } from "./model.js";
import { countNoun, spell } from "./numbers.js";

/** Which stream, how large it is, what of it is shown, and who attends to whom. @param {Scene} scene */
export function captionOf(scene) {
  const { map } = scene;
  return [map.stream, ...size(map), which(scene), orientation(map)].join(" · ");
}

/** What was done to the weights on the way to this view; empty where nothing was. @param {Scene} scene */
export function remarksOn(scene) {
  const { map, matrix, state } = scene;
  const remarks = [];
  const [rows, columns] = [map.queries.block, map.keys.block];
  if (rows * columns > 1) {
    const queries = `${rows} ${rows === 1 ? "query" : "queries"}`;
    const cell = `${queries} × ${countNoun(columns, "key")} to a cell`;
    remarks.push(`Pooled: ${cell}, means over queries, sums over keys. ${exactLinks(scene)}`);
  }
  if (matrix.values.some(Number.isNaN)) remarks.push("Grey cells have no value: the query sees nothing else.");
  if (state.unit === "words" && (map.queries.words || map.keys.words)) {
    remarks.push("Pieces of a word: what they receive is added, what they give is averaged.");
  }
  return remarks.join(" ");
}

/** The colour scale with its ends, and what it measures. @param {Pick<Scene, "palette" | "map" | "matrix">} of @returns {Scale} */
export function scaleOf({ palette, map, matrix }) {
  const [low, high] = palette.limits.map((limit) => (Number.isInteger(limit) ? String(limit) : spell(limit).replace(/0+$/, "")));
  const beyond = matrix.values.some((value) => Math.abs(value) > palette.limits[1] * 1.001);
  return { palette, low: beyond && palette.limits[0] ? `< ${low}` : low, high: beyond ? `> ${high}` : high, words: map.unit };
}

/** What is looked at, in words. @param {Scene} of */
export function which({ map, heads, state, separate }) {
  if (state.view === "heads") return "every head";
  const layers = [...new Set(heads.map(([layer]) => layer))];
  const lens = map.lens ? `${map.lens} · ` : "";
  if (heads.length === 1) {
    const [layer, head] = [map.layers[heads[0][0]], map.heads[heads[0][1]]];
    const why = map.focus && map.focus[0] === layer && map.focus[1] === head ? ` (${map.focus[2].replace(/^(says most)\b.*/, "$1")})` : "";
    return `${lens}${spellName("layer", layer)} ${spellName("head", head)}${why}`;
  }
  if (separate.length) return `${lens}${countNoun(heads.length, "head")}, each in a colour`;
  const mix = state.mix === "max" ? "maximum" : "mean";
  if (heads.length === map.layers.length * map.heads.length && layers.length > 1) return `${lens}${mix} over all heads`;
  if (layers.length === 1 && heads.length === map.heads.length) return `${lens}${mix} over the heads of ${spellName("layer", map.layers[layers[0]])}`;
  return `${lens}${mix} over ${heads.length} chosen heads`;
}

/** Such as "layer 3", or of a reduced axis "mean over layers". @param {string} what @param {string} name */
export const spellName = (what, name) => {
  if (name.includes(" over ")) return name;
  if (name === "several") return `${name} ${what}s`; // of heads by whole names, as "2.3"
  return isReduced(name) ? `${name} over ${what}s` : `${what} ${name}`;
};

/** How many layers and heads there are, unless it is one. @param {PageMap} map */
function size({ layers, heads }) {
  if (layers.length * heads.length === 1) return [];
  if (layers[0] === "several") return [countNoun(heads.length, "head")];
  return [`${countNoun(layers.length, "layer")} × ${countNoun(heads.length, "head")}`];
}

/** @param {PageMap} map */
function orientation(map) {
  const [queries, keys] = [map.queries.side, map.keys.side];
  const sides = queries === keys ? ["", ""] : [` (${queries})`, ` (${keys})`];
  return map.values === "signed" ? `rows${sides[0]} against columns${sides[1]}` : `rows${sides[0]} attend to columns${sides[1]}`;
}

/** The exact strongest links of the heads looked at. @param {Scene} of */
function exactLinks({ map, heads }) {
  const links = heads.flatMap(([layer, head]) => map.links?.[layer][head] ?? []);
  links.sort((one, other) => Math.abs(other[4]) - Math.abs(one[4]));
  const words = links.slice(0, 20).map(([query, from, key, to, weight]) => `${from} ${query} → ${to} ${key} ${spell(weight)}`);
  return words.length ? `Strongest single links, exact: ${words.join("; ")}.` : "";
}

/** How far a weight on this page can be from the one that was computed. @param {PageMap[]} maps */
export function precision(maps) {
  /** @param {(map: PageMap) => number} weight */
  const within = (weight) => {
    const off = Math.max(...maps.map((map) => roundingOf(map, weight(map))));
    const unit = 10 ** Math.floor(Math.log10(off));
    return Number((Math.ceil(off / unit) * unit).toPrecision(1));
  };
  const small = maps.some(({ power }) => power) ? `, those below 0.01 to within ${within(() => 0.01)}` : "";
  return `Weights are kept to within ${within(({ scale }) => scale)}${small}.`;
}
