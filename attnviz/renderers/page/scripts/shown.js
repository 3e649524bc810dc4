/** The matrix that is looked at: heads put together, tokens into words, special tokens left out. */

import { headCodes, valueOf, weightTable } from "./model.js";
import { rowOf, sumOf } from "./rows.js";
import { firstRows, limitsTo, reach } from "./scale.js";

/** @param {PageMap} map @param {Head[]} heads @param {State} state @returns {Promise<ShownMatrix>} */
export async function buildMatrix(map, heads, state) {
  /** @type {ShownMatrix} */
  let matrix = {
    queries: positions(map.queries),
    keys: positions(map.keys, map.sink),
    values: await together(map, heads, state.mix),
  };
  if (state.unit === "words") matrix = mergeWords(matrix, map.queries.words, map.keys.words);
  const toOne = state.specials === "renormalise" && map.values === "share";
  if (state.specials !== "keep") matrix = withoutSpecials(matrix, toOne);
  /** @type {Record<string, [string, string]>} */
  const axes = { implied: ["output", "input"], similarity: ["query", "document"] };
  return map.stream in axes ? { ...matrix, axes: axes[map.stream] } : matrix;
}

/** @param {Axis} axis @param {number | null} [sink] place of the key that is one @returns {ShownToken[]} */
function positions(axis, sink = null) {
  return axis.tokens.map((token, place) => ({ ...token, at: place * axis.block, number: place * axis.block, count: axis.block, sink: place === sink }));
}

/** The mean or the largest weight over heads, of those that have one. @param {PageMap} map @param {Head[]} heads @param {string} mix */
async function together(map, heads, mix) {
  const value = valueOf(weightTable(map), map.levels);
  const size = map.queries.tokens.length * map.keys.tokens.length;
  const values = new Float32Array(size).fill(mix === "max" ? -Infinity : 0);
  const counts = new Uint16Array(size);
  for (const head of heads) {
    const codes = await headCodes(map, head);
    for (let at = 0; at < size; at++) {
      const one = value(codes[at]);
      if (Number.isNaN(one)) continue;
      counts[at] += 1;
      values[at] = mix === "max" ? Math.max(values[at], one) : values[at] + one;
    }
  }
  return values.map((total, at) => (counts[at] ? (mix === "max" ? total : total / counts[at]) : NaN));
}

/**
 * Pieces of a word as one: what its pieces receive is added, what they give is averaged, so that
 * a row sums to what it did.
 * @param {ShownMatrix} matrix
 * @param {number[] | null} queryWords
 * @param {number[] | null} keyWords
 * @returns {ShownMatrix}
 */
export function mergeWords(matrix, queryWords, keyWords) {
  const rows = queryWords ?? matrix.queries.map((_, place) => place);
  const columns = keyWords ?? matrix.keys.map((_, place) => place);
  const queries = wordTokens(matrix.queries, rows);
  const keys = wordTokens(matrix.keys, columns);
  const values = new Float32Array(queries.length * keys.length);
  const counts = new Uint16Array(values.length);
  const width = matrix.keys.length;
  for (let row = 0; row < rows.length; row++) {
    const start = rows[row] * keys.length;
    const marks = new Uint8Array(keys.length);
    for (let column = 0; column < width; column++) {
      const value = matrix.values[row * width + column];
      if (Number.isNaN(value)) continue;
      values[start + columns[column]] += value;
      marks[columns[column]] = 1;
    }
    marks.forEach((one, column) => (counts[start + column] += one));
  }
  // A row without a value counts in no mean.
  const means = values.map((total, at) => (counts[at] ? total / counts[at] : NaN));
  return { queries, keys, values: means };
}

/** @param {ShownToken[]} tokens @param {number[]} words */
function wordTokens(tokens, words) {
  /** @type {ShownToken[]} */
  const result = [];
  tokens.forEach((token, place) => {
    const word = result[words[place]];
    if (!word) {
      result[words[place]] = { ...token, count: 1, number: words[place] };
      return;
    }
    if (word.raw !== undefined || token.raw !== undefined) {
      word.raw = (word.raw ?? word.text) + continuation(token.raw ?? token.text);
    }
    word.text += continuation(token.text);
    word.count += 1;
  });
  return result;
}

/** What a piece adds to its word: its letters, without the mark that it goes on with one. @param {string} text */
const continuation = (text) => text.startsWith("##") ? text.slice(2) : text;

/**
 * Without the rows and columns of special tokens; an axis of nothing else stays whole.
 * @param {ShownMatrix} matrix
 * @param {boolean} renormalise whether rows sum to 1 again, or to 0 where they gave nothing to text
 * @returns {ShownMatrix}
 */
export function withoutSpecials(matrix, renormalise) {
  const rows = ordinary(matrix.queries);
  const columns = ordinary(matrix.keys);
  const values = new Float32Array(rows.length * columns.length);
  const width = matrix.keys.length;
  rows.forEach((row, newRow) => {
    const part = rowOf(values, newRow, columns.length);
    columns.forEach((column, place) => (part[place] = matrix.values[row * width + column]));
    const rest = sumOf(part);
    if (renormalise && rest > 0) part.forEach((value, at) => (part[at] = value / rest));
  });
  return { queries: rows.map((place) => matrix.queries[place]), keys: columns.map((place) => matrix.keys[place]), values };
}

/** @param {ShownToken[]} tokens */
function ordinary(tokens) {
  const places = tokens.map((_, place) => place);
  const others = places.filter((place) => !tokens[place].special);
  return others.length ? others : places;
}

/**
 * The ends of the colours of this one matrix, by its cells between words: special tokens, sinks and the
 * first rows of a causal map would take the scale.
 * @param {PageMap} map
 * @param {ShownMatrix} matrix
 */
export function ownLimits(map, { queries, keys, values }) {
  const first = isCausal(map, values, keys.length) ? firstRows(queries.length) : 0;
  const counts = (/** @type {number} */ cell, /** @type {number} */ from) => {
    const [row, key] = [Math.floor(cell / keys.length), keys[cell % keys.length]];
    return row >= from && !queries[row].special && !key.special && !key.sink;
  };
  const sizes = values.map(Math.abs);
  const top = [first, 0].map((from) => reach(sizes.filter((_, cell) => counts(cell, from)))).find(Boolean);
  return limitsTo(top ?? reach(sizes), map.values);
}

/** Whether no row of a text sees what stands behind it. @param {PageMap} map @param {Float32Array} values @param {number} width */
export const isCausal = ({ queries, keys, values: kind }, values, width) =>
  kind === "share" && queries.side === keys.side && values.length === width * width && values.every((value, cell) => cell % width <= Math.floor(cell / width) || !value);
