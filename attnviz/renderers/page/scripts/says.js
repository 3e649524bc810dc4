/** What the heads looked at say of the text: links that neither place nor popularity explains, and where rows rest. */

import { gainsOf } from "./gains.js";
import { beginning } from "./labels.js";
import { largest, percent } from "./numbers.js";
import { findLargest, rowOf } from "./rows.js";
import { isCausal } from "./shown.js";

/** Nats, and share of the row without special tokens, from which on a link is worth a reader's look. */
const [CLEAR_GAIN, CLEAR_SHARE] = [0.1, 0.2];
/** Of a table so large the fit takes longer than a reader waits. */
const MOST_CELLS = 40000;
const MOST_LINKS = 4;
/** So many times an even look is a look at something. */
const LOOKS = 1.5;

/**
 * The cells of the links that a matrix with its special tokens says most by, each row's largest where it is
 * clear; null where it has no such links: effects, pictures, blocks, long texts.
 * @param {PageMap} map
 * @param {ShownMatrix} matrix
 */
export function clearLinks(map, { queries, keys, values }) {
  const { values: kind, queries: rows, keys: columns, patches, compared } = map;
  if (kind === "signed" || compared || patches.keys || rows.block * columns.block > 1 || values.length > MOST_CELLS) return null;
  const within = rows.side === columns.side && queries.length === keys.length;
  const width = keys.length;
  const causal = within && isCausal(map, values, width);
  const attends = queries.map((_, row) => rowOf(values, row, width).some((value) => value > 0));
  const { gains, shares } = gainsOf(values, queries, keys, (row, key) => attends[row] && !(causal && key > row), within);
  return queries.map((_, row) => row * width + findLargest(rowOf(gains, row, width)))
    .filter((cell) => gains[cell] > CLEAR_GAIN && shares[cell] > CLEAR_SHARE)
    .sort((one, other) => gains[other] - gains[one]);
}

/** @type {WeakMap<ShownMatrix, {links: number[] | null, rests: string}>} */
const results = new WeakMap();

/**
 * What stands above a view: the cells of its links, and on what most rows rest.
 * @param {PageMap} map
 * @param {ShownMatrix} whole with its special tokens
 * @param {ShownMatrix} matrix that is shown
 */
export function whatItSays(map, whole, matrix) {
  const result = results.get(whole) ?? { links: clearLinks(map, whole), rests: restOf(map, whole) };
  results.set(whole, result);
  const [rows, columns] = (/** @type {const} */ (["queries", "keys"])).map((side) => whole[side].map(({ at }) => matrix[side].findIndex((token) => token.at === at)));
  const links = result.links?.map((cell) => [rows[Math.floor(cell / columns.length)], columns[cell % columns.length]])
    .filter(([row, column]) => row >= 0 && column >= 0).map(([row, column]) => row * matrix.keys.length + column);
  const leftOut = matrix.keys.length < whole.keys.length ? ", left out here" : "";
  const rests = result.rests && `${result.rests[0].toUpperCase()}${result.rests.slice(1)}${leftOut}.`;
  return { links: links?.slice(0, MOST_LINKS) ?? strongestCells(matrix), rests };
}

/** On what most rows rest, in a line; empty where rows are no shares. @param {PageMap} map @param {ShownMatrix} matrix */
function restOf(map, { queries, keys, values }) {
  if (map.values === "signed" || map.compared) return "";
  const [width, within] = [keys.length, map.queries.side === map.keys.side && queries.length === keys.length];
  const rows = queries.flatMap((token, row) => (token.special ? [] : [row]));
  /** @type {Record<string, number>} */
  const counts = {};
  const causal = isCausal(map, values, width);
  let [special, total] = [0, 0];
  for (const row of rows) {
    const own = rowOf(values, row, width);
    own.forEach((value, place) => {
      total += value || 0;
      special += keys[place].special && value ? value : 0;
    });
    const first = own.reduce((best, value, place) => (value > (own[best] || 0) ? place : best), 0);
    if (!(own[first] * (causal ? row + 1 : width) >= LOOKS)) continue;
    const ways = [`“${beginning(keys[first].text, 24)}”`, ...(within && row - first === 0 ? ["themselves"] : within && row - first === 1 ? ["the word before"] : within && first - row === 1 ? ["the word after"] : [])];
    ways.forEach((way) => (counts[way] = (counts[way] ?? 0) + 1));
  }
  const [most = "", count = 0] = Object.entries(counts).sort((one, other) => other[1] - one[1])[0] ?? [];
  const noun = map.patches.queries ? "patches" : map.queries.block > 1 ? "blocks" : map.queries.words && queries.length === map.queries.tokens.length ? "tokens" : "words";
  const all = `${rows.length} ${noun}`;
  const where = !count ? `the ${all} look at all keys about evenly` : count === 1 ? `each of the ${all} looks most at a key of its own`
    : 5 * count < rows.length ? `no key is looked at most by more than ${count} of ${all}` : `${count} of ${all} look most at ${most}`;
  return [...(rows.length > 1 && total ? [where] : []), ...(special ? [`special tokens hold ${percent(special / total)} of the attention`] : [])].join("; ");
}

/** The cells of the strongest links between different words. @param {ShownMatrix} matrix */
function strongestCells({ queries, keys, values }) {
  const between = values.slice();
  queries.forEach((query, row) => keys.forEach((key, column) => {
    const same = query.at === key.at && query.text === key.text;
    if (query.special || key.special || key.sink || same) between[row * keys.length + column] = 0;
  }));
  return largest(between, MOST_LINKS - 1).filter((at) => between[at]);
}
