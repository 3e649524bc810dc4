/** The matrix that is looked at: heads put together, tokens into words, special tokens left out. */

import { headCodes, weightTable } from "./model.js";

/** @typedef {import("./types.js").Shown} Shown */
/** @typedef {import("./types.js").PageMap} PageMap */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").ShownToken} ShownToken */

/**
 * @param {PageMap} map
 * @param {import("./types.js").Head[]} heads
 * @param {import("./types.js").State} state
 * @returns {Promise<Shown>}
 */
export async function shownMatrix(map, heads, state) {
  /** @type {Shown} */
  let shown = {
    queries: positions(map.queries),
    keys: positions(map.keys),
    values: await together(map, heads, state.mix),
    removed: null,
  };
  if (state.unit === "words") shown = inWords(shown, map.queries.words, map.keys.words);
  if (state.specials !== "kept") shown = withoutSpecials(shown, state.specials === "renormalised");
  return shown;
}

/**
 * @param {Axis} axis
 * @returns {ShownToken[]}
 */
function positions(axis) {
  return axis.tokens.map((token, place) => ({ ...token, at: place * axis.block, count: axis.block }));
}

/**
 * The mean or the largest weight over heads.
 * @param {PageMap} map
 * @param {import("./types.js").Head[]} heads
 * @param {string} mix
 */
async function together(map, heads, mix) {
  const table = weightTable(map);
  const levels = map.levels;
  const size = map.queries.tokens.length * map.keys.tokens.length;
  const values = new Float32Array(size).fill(mix === "max" ? -Infinity : 0);
  const share = 1 / heads.length;
  for (const head of heads) {
    const codes = await headCodes(map, head);
    if (mix === "max") {
      for (let at = 0; at < size; at++) values[at] = Math.max(values[at], table[codes[at] + levels]);
    } else {
      for (let at = 0; at < size; at++) values[at] += table[codes[at] + levels] * share;
    }
  }
  return values;
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
  const width = shown.keys.length;
  for (let row = 0; row < rows.length; row++) {
    const start = rows[row] * keys.length;
    const part = 1 / queries[rows[row]].count;
    for (let column = 0; column < width; column++) {
      values[start + columns[column]] += shown.values[row * width + column] * part;
    }
  }
  return { queries, keys, values, removed: shown.removed };
}

/**
 * @param {ShownToken[]} tokens
 * @param {number[]} words
 */
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

/**
 * What a piece adds to its word: its letters, without the mark that it goes on with one.
 * @param {string} text
 */
function goingOn(text) {
  return text.startsWith("##") ? text.slice(2) : text;
}

/**
 * Without the rows and columns of special tokens; an axis of nothing else stays whole.
 * @param {Shown} shown
 * @param {boolean} renormalised whether each row is brought back to the sum it had
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
    if (renormalised && kept > 0) part.forEach((value, at) => (part[at] = (value * whole) / kept));
  });
  return {
    queries: rows.map((place) => shown.queries[place]),
    keys: columns.map((place) => shown.keys[place]),
    values,
    removed,
  };
}

/** @param {ShownToken[]} tokens */
function ordinary(tokens) {
  const places = tokens.map((_, place) => place);
  const kept = places.filter((place) => !tokens[place].special);
  return kept.length ? kept : places;
}

/** @param {Float32Array} values */
function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

/**
 * The smallest and the largest value by which the colours of this one matrix can be chosen.
 * @param {PageMap} map
 * @param {Shown} shown
 * @returns {[number, number]}
 */
export function ownLimits(map, shown) {
  let top = 0;
  for (const value of shown.values) top = Math.max(top, Math.abs(value));
  return map.values === "signed" ? [-(top || 1), top || 1] : [0, top || 1];
}
