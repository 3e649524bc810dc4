/** The matrix that is looked at: heads put together, tokens into words, special tokens left out. */

import { headCodes, valueOf, weightTable } from "./model.js";

/** @param {PageMap} map @param {Head[]} heads @param {State} state @returns {Promise<Shown>} */
export async function shownMatrix(map, heads, state) {
  /** @type {Shown} */
  let shown = {
    queries: positions(map.queries),
    keys: positions(map.keys, map.sink),
    values: await together(map, heads, state.mix),
    removed: null,
  };
  if (state.unit === "words") shown = inWords(shown, map.queries.words, map.keys.words);
  const toOne = state.specials === "renormalise" && map.values === "share";
  if (state.specials !== "keep") shown = withoutSpecials(shown, toOne);
  return map.stream === "implied" ? { ...shown, axes: ["output", "input"] } : shown;
}

/** @param {Axis} axis @param {number | null} [sink] place of the key that is one @returns {ShownToken[]} */
function positions(axis, sink = null) {
  return axis.tokens.map((token, place) => ({ ...token, at: place * axis.block, count: axis.block, sink: place === sink }));
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
 * @param {Shown} shown
 * @param {number[] | null} queryWords
 * @param {number[] | null} keyWords
 * @returns {Shown}
 */
export function inWords(shown, queryWords, keyWords) {
  const rows = queryWords ?? shown.queries.map((_, place) => place);
  const columns = keyWords ?? shown.keys.map((_, place) => place);
  const queries = wordTokens(shown.queries, rows);
  const keys = wordTokens(shown.keys, columns);
  const values = new Float32Array(queries.length * keys.length);
  const counts = new Uint16Array(values.length);
  const width = shown.keys.length;
  for (let row = 0; row < rows.length; row++) {
    const start = rows[row] * keys.length;
    const seen = new Uint8Array(keys.length);
    for (let column = 0; column < width; column++) {
      const value = shown.values[row * width + column];
      if (Number.isNaN(value)) continue;
      values[start + columns[column]] += value;
      seen[columns[column]] = 1;
    }
    seen.forEach((one, column) => (counts[start + column] += one));
  }
  // A row without a value counts in no mean.
  const means = values.map((total, at) => (counts[at] ? total / counts[at] : NaN));
  return { queries, keys, values: means, removed: shown.removed };
}

/** @param {ShownToken[]} tokens @param {number[]} words */
function wordTokens(tokens, words) {
  /** @type {ShownToken[]} */
  const found = [];
  tokens.forEach((token, place) => {
    const word = found[words[place]];
    if (!word) {
      found[words[place]] = { ...token, count: 1 };
      return;
    }
    if (word.raw !== undefined || token.raw !== undefined) {
      word.raw = (word.raw ?? word.text) + goingOn(token.raw ?? token.text);
    }
    word.text += goingOn(token.text);
    word.count += 1;
  });
  return found;
}

/** What a piece adds to its word: its letters, without the mark that it goes on with one. @param {string} text */
const goingOn = (text) => text.startsWith("##") ? text.slice(2) : text;

/**
 * Without the rows and columns of special tokens; an axis of nothing else stays whole.
 * @param {Shown} shown
 * @param {boolean} renormalised whether rows sum to 1 again, or to 0 where they gave nothing to text
 * @returns {Shown}
 */
export function withoutSpecials(shown, renormalised) {
  const rows = ordinary(shown.queries);
  const columns = ordinary(shown.keys);
  const values = new Float32Array(rows.length * columns.length);
  const width = shown.keys.length;
  let removed = 0;
  rows.forEach((row, newRow) => {
    const whole = sum(shown.values.subarray(row * width, (row + 1) * width));
    const start = newRow * columns.length;
    columns.forEach((column, place) => {
      values[start + place] = shown.values[row * width + column];
    });
    const part = values.subarray(start, start + columns.length);
    const kept = sum(part);
    removed += whole > 0 ? (whole - kept) / whole / rows.length : 0;
    if (renormalised && kept > 0) part.forEach((value, at) => (part[at] = value / kept));
  });
  return { queries: rows.map((place) => shown.queries[place]), keys: columns.map((place) => shown.keys[place]), values, removed };
}

/** @param {ShownToken[]} tokens */
function ordinary(tokens) {
  const places = tokens.map((_, place) => place);
  const kept = places.filter((place) => !tokens[place].special);
  return kept.length ? kept : places;
}

/** @param {Float32Array} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/**
 * The smallest and the largest value by which the colours of this one matrix can be chosen: those
 * between words, since special tokens and sinks would take the scale.
 * @param {PageMap} map
 * @param {Shown} shown
 * @returns {[number, number]}
 */
export function ownLimits(map, shown) {
  const top = largestOf(shown, betweenWords) || largestOf(shown, () => true);
  return map.values === "signed" ? [-(top || 1), top || 1] : [0, top || 1];
}

/** Neither end a special token, nor the key a sink. @param {ShownToken} query @param {ShownToken} key */
const betweenWords = (query, key) => !query.special && !key.special && !key.sink;

/** @param {Shown} shown @param {(query: ShownToken, key: ShownToken) => boolean} counts */
function largestOf(shown, counts) {
  let top = 0;
  shown.queries.forEach((query, row) =>
    shown.keys.forEach((key, column) => {
      const size = Math.abs(shown.values[row * shown.keys.length + column]);
      if (size > top && counts(query, key)) top = size;
    }));
  return top;
}

/** What lies beyond the colour scale, in words; empty where nothing does. @param {Shown} shown @param {[number, number]} limits */
export function beyond(shown, limits) {
  const lies = shown.values.some((value) => Math.abs(value) > limits[1] + 0.005);
  return lies ? "; special tokens and sinks beyond the scale are drawn at its end" : "";
}
