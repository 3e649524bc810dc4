/**
 * Two sentences as one signed map: the second minus the first, head by head, over their common tokens,
 * as `attnviz compare` pairs them (`attnviz/features/compare/differences.py`).
 */

import { FINE_LEVELS, NO_VALUE } from "./decode.js";
import { headCodes, receive, valueOf, weightTable } from "./model.js";

/** @typedef {[number, number]} Pair positions in the first and in the second; −1: no partner */

/** Runs of equal texts, the longest first and then those at its sides. @param {string[]} one @param {string[]} other @param {number[]} within @returns {number[][]} */
function commonRuns(one, other, [low, high, from, to]) {
  let [best, at, opposite] = [0, low, from];
  let lengths = new Map();
  for (let place = low; place < high; place++) {
    const next = new Map();
    for (let second = from; second < to; second++) {
      if (one[place] !== other[second]) continue;
      const length = (lengths.get(second - 1) ?? 0) + 1;
      next.set(second, length);
      if (length > best) [best, at, opposite] = [length, place - length + 1, second - length + 1];
    }
    lengths = next;
  }
  if (!best) return [];
  return [...commonRuns(one, other, [low, at, from, opposite]), [at, opposite, best], ...commonRuns(one, other, [at + best, high, opposite + best, to])];
}

/** Each token of both texts once, in order, with its partner if it has one. @param {string[]} first @param {string[]} second @returns {Pair[]} */
export function pairTokens(first, second) {
  const apart = first.findIndex((text, place) => text !== second[place]);
  if (apart >= 0 && (second[apart] === undefined || second[apart] < first[apart])) return pairTokens(second, first).map(([one, other]) => [other, one]);
  /** @type {Pair[]} */
  const pairs = [];
  let [low, from] = [0, 0];
  for (const [at, opposite, length] of [...commonRuns(first, second, [0, first.length, 0, second.length]), [first.length, second.length, 0]]) {
    const same = at - low === opposite - from;
    for (let place = low; place < at; place++) pairs.push([place, same ? from + place - low : -1]);
    if (!same) for (let place = from; place < opposite; place++) pairs.push([-1, place]);
    for (let more = 0; more < length; more++) pairs.push([at + more, opposite + more]);
    [low, from] = [at + length, opposite + length];
  }
  return pairs;
}

/** One token for a pair: red, red→blue, +new or −old. @param {Pair} pair @param {Token[]} first @param {Token[]} second @returns {Token} */
function pairedToken([at, opposite], first, second) {
  const [one, other] = [first[at], second[opposite]];
  if (!one || !other) return { ...(one ?? other), text: one ? `−${one.text}` : `+${other.text}` };
  return one.text === other.text ? one : { ...one, text: `${one.text}→${other.text}` };
}

/**
 * The second map minus the first.
 * @param {PageMap} first
 * @param {PageMap} second
 * @param {Map<string, Int16Array>} codes are added to
 * @returns {Promise<PageMap>}
 */
async function differenceOf(first, second, codes) {
  const [queries, keys] = (/** @type {const} */ (["queries", "keys"])).map((side) => pairTokens(...(/** @type {[string[], string[]]} */ ([first, second].map((map) => map[side].tokens.map(({ text }) => text))))));
  const rows = queries.filter((pair) => !pair.includes(-1));
  const [one, other] = [first, second].map((map) => ({ value: valueOf(weightTable(map).slice(), map.levels), width: map.keys.tokens.length }));
  /** @type {Float32Array[][]} */
  const layers = [];
  let top = 0;
  for (let layer = 0; layer < first.layers.length; layer++) {
    layers.push([]);
    for (let head = 0; head < first.heads.length; head++) {
      const [before, after] = await Promise.all([headCodes(first, [layer, head]), headCodes(second, [layer, head])]);
      const values = new Float32Array(rows.length * keys.length);
      rows.forEach(([row, opposite], place) => keys.forEach(([column, facing], cell) => {
        const from = column < 0 ? 0 : one.value(before[row * one.width + column]);
        const to = facing < 0 ? 0 : other.value(after[opposite * other.width + facing]);
        values[place * keys.length + cell] = to - from;
        if (Math.abs(to - from) > top) top = Math.abs(to - from);
      }));
      layers[layer].push(values);
    }
  }
  const blob = `d-${first.blob}`;
  layers.forEach((heads, layer) => codes.set(`${blob}-${layer}`, Int16Array.from(heads.flatMap((values) => Array.from(values, (value) =>
    (Number.isNaN(value) ? NO_VALUE : Math.sign(value) * Math.round(Math.sqrt(Math.abs(value) / (top || 1)) * FINE_LEVELS)))))));
  const shares = layers.map((heads) => heads.map((values) => values.reduce((sum, value) => sum + (Math.abs(value) || 0), 0) / (2 * (rows.length || 1))));
  const measure = { name: "difference", unit: "share of attention that moves between the two sentences, ½ Σ |B − A|, mean over common rows", low: "alike", high: "apart", values: shares };
  first.measures = [...first.measures.filter(({ name }) => name !== measure.name), measure];
  /** @param {"queries" | "keys"} side @param {Pair[]} pairs */
  const axis = (side, pairs) => ({ ...first[side], block: 1, words: null, tokens: pairs.map((pair) => pairedToken(pair, first[side].tokens, second[side].tokens)) });
  return {
    ...first, blob, values: "signed", unit: `B − A: the second sentence minus the first${first.values === "share" ? ", in shares of a row's attention" : ""}`,
    limits: [-(top || 1), top || 1], scale: top || 1, levels: FINE_LEVELS, power: undefined, queries: axis("queries", rows), keys: axis("keys", keys),
    compared: true, sink: null, measures: [measure], links: null, effects: [], projections: null, patches: {},
  };
}

/** What was paired, in words. @param {PageMap} first @param {PageMap} second */
function describePairs(first, second) {
  return (/** @type {const} */ ([["queries", "left out"], ["keys", "compared with nothing"]])).flatMap(([side, fate]) => {
    const pairs = pairTokens(...(/** @type {[string[], string[]]} */ ([first, second].map((map) => map[side].tokens.map(({ text }) => text)))));
    const only = [pairs.filter(([, other]) => other < 0).length, pairs.filter(([one]) => one < 0).length];
    return only.some(Boolean) ? [`${side} only in A: ${only[0]}, only in B: ${only[1]}; ${fate}`] : [];
  });
}

/**
 * The page of the second sentence minus the first; an error in one line where they cannot be compared.
 * @param {PageDocument} first
 * @param {PageDocument} second
 * @param {number} number of the map that is looked at
 * @returns {Promise<PageDocument>}
 */
export async function differencePage(first, second, number) {
  const [one, other] = [first.maps[number], second.maps[number]];
  const alike = one && other && one.stream === other.stream && String([one.layers, one.heads]) === String([other.layers, other.heads]);
  if (!alike) throw new Error("The two sentences have no maps of the same heads.");
  if ([one, other].some((map) => map.queries.block > 1 || map.keys.block > 1)) throw new Error("Maps of blocks of tokens are not compared.");
  /** @type {Map<string, Int16Array>} */
  const codes = new Map();
  const map = await differenceOf(one, other, codes);
  if (!map.queries.tokens.length) throw new Error("The two sentences have no token in common that could be compared.");
  return receive({ ...first, notes: describePairs(one, other), maps: [map] }, codes);
}
