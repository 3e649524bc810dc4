/** Numbers for each head, as `attnviz/analyses/measures`, and the head to see first. */

import { pointsOf } from "./unicode.js";

/** @typedef {import("./tokenize.js").Piece} Piece */
/** @typedef {import("./maps.js").Found} Found */
/** @typedef {(query: number, key: number) => boolean} Cells */

const EVERY = "uniform attention over";
/** @type {Record<string, [string, string, string]>} unit, and what the ends mean */
const MEANINGS = {
  entropy: ["nats", "every query attends to one key", `${EVERY} all keys`],
  "relative-entropy": ["share", "every query attends to one key", `${EVERY} all keys`],
  span: ["keys", "every query attends to one key", `${EVERY} as many keys`],
  confidence: ["share", "no key stands out", "one key a row"],
  mass: ["share", "all attention is elsewhere", "none is elsewhere"],
  distance: ["tokens", "only itself", "only the far end"],
  offset: ["tokens", "only the past", "only what follows"],
  "previous-token": ["share", "never the token before", "only the token before"],
  "next-token": ["share", "never the token after", "only the token after"],
  self: ["share", "never itself", "only itself"],
  "same-token": ["share", "never the same token", "only other places of the same token"],
  "first-token": ["share", "never the first token", "only the first"],
  "special-token": ["share", "only text", "only special tokens"],
  punctuation: ["share", "only words", "only punctuation"],
  sink: ["share", "no key stands out", "one key gets all"],
};

/** @param {number[]} numbers NaN is left out */
function mean(numbers) {
  const known = numbers.filter((number) => !Number.isNaN(number));
  return known.reduce((sum, number) => sum + number, 0) / known.length;
}

/**
 * @param {Found} found shares
 * @param {Piece[]} queries
 * @param {Piece[]} keys
 * @param {import("./unicode.js").Unicode} unicode
 */
export function measuresOf({ stream, values }, queries, keys, unicode) {
  const within = stream !== "cross";
  const [rows, columns] = [queries.length, keys.length];
  const signs = keys.map(({ text, special }) => {
    return !special && pointsOf(text.trim()).every((point) => unicode.category.at(point)[0] === "P");
  });
  /** @type {[string, Cells][]} */
  const targets = [
    ["special-token", (_, key) => keys[key].special === true],
    ["punctuation", (_, key) => signs[key]],
    ["first-token", (query, key) => key === 0 && (query > 0 || !within)],
    ["same-token", (query, key) => {
      const words = !queries[query].special && !keys[key].special && !(within && query === key);
      return words && queries[query].text === keys[key].text;
    }],
  ];
  if (within) {
    targets.push(["previous-token", (query, key) => key === query - 1]);
    targets.push(["next-token", (query, key) => key === query + 1]);
    targets.push(["self", (query, key) => key === query]);
  }
  /** @type {Record<string, number[][]>} */
  const found = {};
  const note = (/** @type {string} */ name, /** @type {number} */ layer, /** @type {number} */ value) => {
    (((found[name] ??= [])[layer]) ??= []).push(value);
  };
  values.forEach((heads, layer) => {
    // Nobody sees what follows in a decoder, and a row that attends to nothing has nothing to see.
    const seeing = queries.map((_, row) => {
      return keys.some((_, key) => heads.every((head) => !Number.isNaN(head[row * columns + key])) && heads.some((head) => head[row * columns + key] > 0));
    });
    const visible = (/** @type {number} */ row, /** @type {number} */ key) => seeing[row] && (stream !== "decoder" || key <= row);
    const seen = queries.map((_, row) => keys.filter((_, key) => visible(row, key)).length);
    const seers = keys.map((_, key) => queries.filter((_, row) => visible(row, key)).length);
    const shown = seeing.filter(Boolean).length;
    const cells = targets.map(([name, target]) => {
      const held = Array.from({ length: rows * columns }, (_, cell) => cell).filter((cell) => target(Math.floor(cell / columns), cell % columns));
      const counted = new Set(held.filter((cell) => visible(Math.floor(cell / columns), cell % columns)).map((cell) => Math.floor(cell / columns)));
      return { name, held, count: counted.size };
    });
    for (const weights of heads) {
      const of = queries.map((_, row) => weights.subarray(row * columns, (row + 1) * columns));
      const sums = of.map((row) => row.reduce((sum, value) => sum + value, 0));
      const entropies = of.map((row, place) => {
        if (!seeing[place]) return NaN;
        const terms = row.reduce((sum, value) => sum + (value > 0 ? value * Math.log(value) : value), 0);
        return Math.max(Math.log(sums[place]) - terms / sums[place], 0);
      });
      note("entropy", layer, mean(entropies));
      if (seen.some((count) => count > 1)) {
        note("relative-entropy", layer, mean(entropies.map((value, row) => seen[row] > 1 ? value / Math.log(seen[row]) : NaN)));
      }
      note("span", layer, mean(entropies.map(Math.exp)));
      const last = columns - (columns > 1 && keys[columns - 1].special ? 1 : 0);
      note("confidence", layer, mean(of.map((row, place) => (seeing[place] ? Math.max(...row.subarray(0, last)) : NaN))));
      note("mass", layer, mean(sums));
      if (within && columns > 1) {
        const apart = (/** @type {(step: number) => number} */ kind) =>
          mean(of.map((row, place) => seeing[place] ? row.reduce((sum, value, key) => sum + value * kind(key - place), 0) / sums[place] : NaN));
        note("distance", layer, apart(Math.abs));
        note("offset", layer, apart((step) => step));
      }
      for (const { name, held, count } of cells) {
        if (count) note(name, layer, held.reduce((sum, cell) => sum + weights[cell], 0) / count);
      }
      const received = keys.map((_, key) => of.reduce((sum, row) => sum + row[key], 0) / Math.max(seers[key], 1));
      note("sink", layer, Math.max(...received.map((value, key) => (2 * seers[key] >= shown ? value : 0))));
    }
  });
  const whole = values.flat().every((head) => queries.every((_, row) => {
    const sum = head.subarray(row * columns, (row + 1) * columns).reduce((one, other) => one + other, 0);
    return !(Math.abs(sum - 1) > 0.01);
  }));
  if (whole) delete found.mass;
  const rounded = (/** @type {number} */ value) => (Number.isFinite(value) ? Math.round(value * 1e4) / 1e4 : null);
  return Object.entries(MEANINGS)
    .filter(([name]) => name in found)
    .map(([name, [unit, low, high]]) => ({ name, unit, low, high, values: found[name].map((heads) => heads.map(rounded)) }));
}

/** What a reader must know where rows do not sum to 1. @param {{name: string}[]} measures */
export function massNote(measures) {
  const names = measures.map((measure) => measure.name);
  if (!names.includes("mass")) return [];
  const told = ["entropy", "relative-entropy", "span", "distance", "offset"].filter((name) => names.includes(name));
  return [`rows do not sum to 1 (mass): ${told.join(", ")} are of rows made to sum to 1`];
}

/**
 * The head that joins most words one to one, and what its links are (`analyses/view.py`).
 * @param {Found} found
 * @param {Piece[]} queries
 * @param {Piece[]} keys
 * @param {boolean[]} words cells from a word to a word
 * @returns {[string, string, string] | null}
 */
export function focusOf({ stream, values, kind }, queries, keys, words) {
  const columns = keys.length;
  const within = stream !== "cross";
  const allowed = words.map((word, cell) => word && !(within && Math.floor(cell / columns) === cell % columns));
  if (values[0].length === 1 || kind === "signed" || queries.length < 3 || !allowed.includes(true)) return null;
  const mutual = (/** @type {Float64Array} */ weights) => {
    const kept = weights.map((value, cell) => (allowed[cell] ? value : 0));
    const best = queries.map((_, row) => largest(Array.from(keys, (_, key) => kept[row * columns + key])));
    const back = keys.map((_, key) => largest(Array.from(queries, (_, row) => kept[row * columns + key])));
    return best.flatMap((key, row) => (back[key] === row ? [row * columns + key] : [])).filter((cell) => allowed[cell]);
  };
  const total = (/** @type {Float64Array} */ weights, /** @type {number[]} */ cells) => cells.reduce((sum, cell) => sum + weights[cell], 0);
  /** @type {[number, number, number]} */
  let best = [0, 0, 0];
  values.forEach((heads, layer) => heads.forEach((weights, head) => {
    const held = total(weights, mutual(weights));
    if (held > best[0]) best = [held, layer, head];
  }));
  const [held, layer, head] = best;
  if (!held) return null;
  const weights = values[layer][head];
  const links = mutual(weights);
  const same = (/** @type {number} */ row, /** @type {number} */ key) => row !== key && queries[row]?.text === keys[key]?.text;
  /** @type {[string, Cells][]} */
  const patterns = [
    ["previous token", (row, key) => key === row - 1],
    ["next token", (row, key) => key === row + 1],
    ["induction", (row, key) => key > 0 && key - 1 < row && same(row, key - 1)],
    ["same token", same],
  ];
  for (const [name, pattern] of within ? patterns : []) {
    const cells = Array.from(weights.keys()).filter((cell) => pattern(Math.floor(cell / columns), cell % columns));
    if (total(weights, links.filter((cell) => cells.includes(cell))) >= 0.5 * held) {
      const rows = new Set(cells.map((cell) => Math.floor(cell / columns))).size;
      return [String(layer), String(head), `${name} ${short(total(weights, cells) / rows)}`];
    }
  }
  return [String(layer), String(head), `its strongest links between words hold ${short(held / queries.length)} of a row`];
}

/** @param {number[]} numbers */
const largest = (numbers) => numbers.indexOf(Math.max(...numbers));
/** @param {number} share */
const short = (share) => share.toFixed(2).replace(/^0/, "");
