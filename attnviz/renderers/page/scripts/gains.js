/** How much more of a row a link holds than distance and popular keys explain (`analyses/word_links.py`). */

import { rowOf, sumOf } from "./rows.js";

/**
 * Shares scaled to a table of two effects, distance and key.
 * @param {Float64Array} shares rows that sum to 1 or 0
 * @param {(row: number, key: number) => boolean} sees
 * @param {[number, number, boolean]} shape rows, keys, and whether they have a distance
 */
function fitTable(shares, sees, [rows, columns, within]) {
  const table = Float64Array.from(shares, (_, cell) => Number(sees(Math.floor(cell / columns), cell % columns)));
  const sides = [(/** @type {number} */ cell) => cell % columns];
  if (within) sides.unshift((cell) => (cell % columns) - Math.floor(cell / columns) + rows);
  const ofRow = (/** @type {number} */ cell) => Math.floor(cell / columns);
  const scale = (/** @type {(cell: number) => number} */ side, /** @type {number} */ more) => {
    const [own, sums] = [new Float64Array(rows + columns).fill(more), new Float64Array(rows + columns).fill(more)];
    table.forEach((value, cell) => {
      own[side(cell)] += shares[cell];
      sums[side(cell)] += value;
    });
    table.forEach((_, cell) => (table[cell] *= own[side(cell)] / (sums[side(cell)] || 1)));
  };
  scale(ofRow, 0);
  for (let step = 0; step < 30; step++) {
    for (const side of sides) scale(side, 0.02);
    scale(ofRow, 0);
  }
  return table;
}

/** Whether a token is a word: it has a letter or a digit. @param {{text: string, special?: boolean}} token */
export const isNamed = ({ text, special }) => !special && /[\p{L}\p{N}]/u.test(text);

/**
 * The gain of each link between words, in nats, and the shares of rows without special tokens.
 * @param {ArrayLike<number>} weights row by row
 * @param {{text: string, special?: boolean}[]} queries
 * @param {{text: string, special?: boolean}[]} keys
 * @param {(row: number, key: number) => boolean} sees whether a row may attend to a key
 * @param {boolean} within whether rows and keys are of one text
 */
export function gainsOf(weights, queries, keys, sees, within) {
  const [rows, columns] = [queries.length, keys.length];
  const counts = (/** @type {number} */ row, /** @type {number} */ key) => !queries[row].special && !keys[key].special && sees(row, key);
  const shares = Float64Array.from(weights, (value, cell) => (counts(Math.floor(cell / columns), cell % columns) && value) || 0);
  const mass = queries.map((_, row) => sumOf(rowOf(shares, row, columns)));
  shares.forEach((value, cell) => (shares[cell] = value / (mass[Math.floor(cell / columns)] || 1)));
  // Of a row that gives words less than a twentieth, what is left is rounding, made large.
  const enough = shares.map((share, cell) => (mass[Math.floor(cell / columns)] < 0.05 ? 0 : share));
  const table = fitTable(enough, counts, [rows, columns, within]);
  const [ends, starts] = [queries.map(isNamed), keys.map(isNamed)];
  const gains = enough.map((share, cell) => {
    const [row, key] = [Math.floor(cell / columns), cell % columns];
    const isLink = ends[row] && starts[key] && !(within && row === key);
    return isLink ? share * Math.log((share + 1e-6) / (table[cell] + 1e-6)) : 0;
  });
  return { gains, shares };
}
