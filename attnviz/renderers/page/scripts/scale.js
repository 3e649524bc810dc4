/** How far a colour scale reaches, of shares or of signed values (`renderers/colors.py`). */

import { sumOf } from "./rows.js";

/** So many cells lie beyond at most. */
const BEYOND_SHARE = 0.005;

/**
 * The size at which colours end: few lie beyond it, and those within hold half of the sum; 0: all are 0.
 * @param {Iterable<number>} sizes
 */
export function reach(sizes) {
  const sorted = Float32Array.from(sizes).filter((size) => size > 0).sort();
  const half = sumOf(sorted) / 2;
  let [sum, place] = [0, -1];
  while (place + 1 < sorted.length && sum < half) sum += sorted[++place];
  const rank = Math.ceil(Number(((1 - BEYOND_SHARE) * sorted.length).toFixed(6))) - 1;
  return sorted[Math.max(rank, place)] ?? 0;
}

/** The first rows of a causal map, which see few keys: large, whatever a head does. @param {number} count of all its rows */
export const firstRows = (count) => Math.max(3, Math.floor(0.1 * count));

/** The next number of one digit at or above. @param {number} value */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const [digits, exponent] = value.toExponential(6).split("e");
  return Number(`${Math.ceil(Number(Number(digits).toFixed(5)))}e${exponent}`);
}

/** @param {number} top @param {string} kind "share" or "signed" @returns {[number, number]} */
export const limitsTo = (top, kind) => (kind === "signed" ? [-roundUp(top), roundUp(top)] : [0, top >= 0.5 ? 1 : roundUp(top)]);
