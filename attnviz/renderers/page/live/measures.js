/** Numbers for each head, as `attnviz/features/measures`, and the head to see first. */

import { gainsOf, isNamed } from "../scripts/gains.js";
import { findLargest, rowOf, sumOf } from "../scripts/rows.js";
import { pointsOf, textOf } from "./unicode.js";

/** @import { Piece } from "./tokenize.js" */
/** @import { StreamMaps } from "./maps.js" */
/** @typedef {(query: number, key: number) => boolean} Cells */

/** Tokens beyond which attention is called distant. */
const FAR = 64;
/** Sentences from which on attention to one counts, and how many scores have a kurtosis. */
const [APART, LEAST] = [4, 4];
const SENTENCE_END =
  /(?<!\b(?:Mr|Ms|Dr|St|vs|cf))(?<!\bMrs)(?<!\bProf)(?<!\be\.g)(?<!\bi\.e)(?<!\b[A-Z])\.+["'”’»)\]]*(?=\s)(?!\s+[a-z])|[!?…]+["'”’»)\]]*(?=\s)(?!\s+[a-z])|[。！？]+[”’」』）]*|\n+/g;
const EVERY = "uniform attention over";
/** @type {Record<string, [string, string, string]>} unit, and what the ends mean */
const MEANINGS = {
  entropy: ["nats", "every query attends to one key", `${EVERY} all keys`],
  "relative-entropy": ["share", "every query attends to one key", `${EVERY} all keys`],
  span: ["keys", "every query attends to one key", `${EVERY} as many keys`],
  confidence: ["share", "no key stands out", "one key a row"],
  mass: ["share", "all attention is elsewhere", "none is elsewhere"],
  informative: ["nats", "distance and popular keys explain all", "neither of them explains any word's look"],
  distance: ["tokens", "only itself", "only the far end"],
  offset: ["tokens", "only the past", "only what follows"],
  distant: ["share", "only near tokens and sinks", "only far text"],
  receiver: ["kurtosis", "sentences receive alike", "one sentence receives all"],
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
  const finite = numbers.filter((number) => !Number.isNaN(number));
  return sumOf(finite) / finite.length;
}

/**
 * @param {StreamMaps} maps shares
 * @param {Piece[]} queries
 * @param {Piece[]} keys
 * @param {import("./unicode.js").Unicode} unicode
 * @param {ReturnType<typeof informativeOf>} informative
 * @param {string} text that of the rows
 */
export function measuresOf({ stream, values }, queries, keys, unicode, informative, text) {
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
    targets.push(["distant", (query, key) => key > 0 && !keys[key].special && Math.abs(query - key) > FAR]);
  }
  /** @type {Record<string, number[][]>} */
  const table = {};
  const note = (/** @type {string} */ name, /** @type {number} */ layer, /** @type {number} */ value) => {
    (((table[name] ??= [])[layer]) ??= []).push(value);
  };
  values.forEach((heads, layer) => {
    // Nobody sees what follows in a decoder, and a row that attends to nothing has nothing to see.
    const attends = queries.map((_, row) => {
      return keys.some((_, key) => heads.every((head) => !Number.isNaN(head[row * columns + key])) && heads.some((head) => head[row * columns + key] > 0));
    });
    const visible = (/** @type {number} */ row, /** @type {number} */ key) => attends[row] && (stream !== "decoder" || key <= row);
    const keyCounts = queries.map((_, row) => keys.filter((_, key) => visible(row, key)).length);
    const queryCounts = keys.map((_, key) => queries.filter((_, row) => visible(row, key)).length);
    const rowCount = attends.filter(Boolean).length;
    const cells = targets.map(([name, target]) => {
      const hits = Array.from({ length: rows * columns }, (_, cell) => cell).filter((cell) => target(Math.floor(cell / columns), cell % columns));
      const hitRows = new Set(hits.filter((cell) => visible(Math.floor(cell / columns), cell % columns)).map((cell) => Math.floor(cell / columns)));
      return { name, hits, count: hitRows.size };
    });
    for (const weights of heads) {
      const weightRows = queries.map((_, row) => rowOf(weights, row, columns));
      const sums = weightRows.map(sumOf);
      const entropies = weightRows.map((row, place) => {
        if (!attends[place]) return NaN;
        const terms = row.reduce((sum, value) => sum + (value > 0 ? value * Math.log(value) : value), 0);
        return Math.max(Math.log(sums[place]) - terms / sums[place], 0);
      });
      note("entropy", layer, mean(entropies));
      if (keyCounts.some((count) => count > 1)) {
        note("relative-entropy", layer, mean(entropies.map((value, row) => keyCounts[row] > 1 ? value / Math.log(keyCounts[row]) : NaN)));
      }
      note("span", layer, mean(entropies.map(Math.exp)));
      const last = columns - (columns > 1 && keys[columns - 1].special ? 1 : 0);
      note("confidence", layer, mean(weightRows.map((row, place) => (attends[place] ? Math.max(...row.subarray(0, last)) : NaN))));
      note("mass", layer, mean(sums));
      if (within && columns > 1) {
        const apart = (/** @type {(step: number) => number} */ kind) =>
          mean(weightRows.map((row, place) => attends[place] ? row.reduce((sum, value, key) => sum + value * kind(key - place), 0) / sums[place] : NaN));
        note("distance", layer, apart(Math.abs));
        note("offset", layer, apart((step) => step));
      }
      for (const { name, hits, count } of cells) {
        if (count) note(name, layer, hits.reduce((sum, cell) => sum + weights[cell], 0) / count);
      }
      const receipts = keys.map((_, key) => weightRows.reduce((sum, row) => sum + row[key], 0) / Math.max(queryCounts[key], 1));
      note("sink", layer, Math.max(...receipts.map((value, key) => (2 * queryCounts[key] >= rowCount ? value : 0))));
    }
  });
  const whole = values.flat().every((head) => queries.every((_, row) => {
    const sum = sumOf(rowOf(head, row, columns));
    return !(Math.abs(sum - 1) > 0.01);
  }));
  if (whole) delete table.mass;
  if (informative) table.informative = informative.values;
  const receiver = within ? receiverOf(stream, values, keys, text) : null;
  if (receiver) table.receiver = receiver;
  const round = (/** @type {number} */ value) => (Number.isFinite(value) ? Math.round(value * 1e4) / 1e4 : null);
  return Object.entries(MEANINGS)
    .filter(([name]) => name in table)
    .map(([name, [unit, low, high]]) => ({ name, unit, low, high, values: table[name].map((heads) => heads.map(round)) }));
}

/**
 * The kurtosis of what sentences receive from those far enough away; null of too few sentences.
 * @param {string} stream @param {Float64Array[][]} values @param {Piece[]} keys @param {string} text
 */
function receiverOf(stream, values, keys, text) {
  const ends = [...text.matchAll(SENTENCE_END)].map((match) => match.index + match[0].length);
  const starts = [0, ...ends].flatMap((start, place) => {
    const piece = text.slice(start, ends[place] ?? text.length);
    return piece.trim() ? [pointsOf(text.slice(0, start + piece.length - piece.trimStart().length)).length] : [];
  });
  if (starts.length < APART + LEAST) return null;
  const sentences = starts.map((start, place) => [...keys.keys()].filter((key) => {
    const token = keys[key];
    return !token.special && token.end > token.start && token.start >= start && token.start < (starts[place + 1] ?? Infinity);
  }));
  const receivers = sentences.map((own, key) => ({
    own,
    from: sentences.filter((other, query) => other.length && own.length && Math.abs(query - key) >= APART && (stream !== "decoder" || query > key)),
  })).filter(({ from }) => from.length);
  if (receivers.length < LEAST) return null;
  const average = (/** @type {number[]} */ numbers) => sumOf(numbers) / numbers.length;
  return values.map((heads) => heads.map((weights) => {
    const scores = receivers.map(({ own, from }) =>
      average(from.map((rows) => average(rows.flatMap((row) => own.map((key) => weights[row * keys.length + key]))))));
    const off = scores.map((score) => score - average(scores));
    const spread = average(off.map((value) => value ** 2));
    return spread <= 1e-12 * average(scores) ** 2 ? NaN : average(off.map((value) => value ** 4)) / spread ** 2;
  }));
}

/** What a reader must know where rows do not sum to 1. @param {{name: string}[]} measures */
export function massNote(measures) {
  const names = measures.map((measure) => measure.name);
  if (!names.includes("mass")) return [];
  const list = ["entropy", "relative-entropy", "span", "distance", "offset"].filter((name) => names.includes(name));
  return [`rows do not sum to 1 (mass): ${list.join(", ")} are of rows made to sum to 1`];
}

/**
 * How much of where heads look neither distance nor popular keys explain, and the head to see first
 * with its largest link (`analyses/word_links.py`); null of fewer than five words.
 * @param {StreamMaps} maps shares, over words
 * @param {Piece[]} queries words
 * @param {Piece[]} keys
 * @returns {{values: number[][], focus: [string, string, string] | null} | null}
 */
export function informativeOf({ stream, values }, queries, keys) {
  const [within, columns] = [stream !== "cross", keys.length];
  const attends = values.map((heads) => queries.map((_, row) =>
    heads.some((head) => rowOf(head, row, columns).some((value) => value > 0))));
  const count = queries.filter((query, row) => isNamed(query) && attends.some((layer) => layer[row])).length;
  if (count < 5) return null;
  const gains = values.map((heads, layer) =>
    heads.map((weights) => {
      const sees = (/** @type {number} */ row, /** @type {number} */ key) => attends[layer][row] && (stream !== "decoder" || key <= row);
      return gainsOf(weights, queries, keys, sees, within).gains;
    }),
  );
  const says = gains.map((heads) => heads.map((head) => head.reduce((sum, gain) => sum + (gain > 0.02 ? gain : 0), 0) / count));
  const best = Math.max(...says.flat());
  const layer = says.findIndex((heads) => heads.includes(best));
  const head = says[layer].indexOf(best);
  const foldCase = (/** @type {Piece} */ word) => word.text.toLowerCase();
  const others = gains[layer][head].map((gain, cell) =>
    foldCase(queries[Math.floor(cell / columns)]) === foldCase(keys[cell % columns]) ? 0 : gain,
  );
  const cell = findLargest(others.some((gain) => gain > 0.02) ? others : gains[layer][head]);
  const shorten = (/** @type {Piece} */ { text }) => pointsOf(text).length > 24 ? `${textOf(pointsOf(text).slice(0, 23))}…` : text;
  const [query, key] = [queries[Math.floor(cell / columns)], keys[cell % columns]];
  const why = `says most: ${shorten(query)} → ${shorten(key)} ${values[layer][head][cell].toFixed(2).replace(/^0/, "")}`;
  const hasFocus = values[0].length > 1 && best > 1e-6;
  return { values: says, focus: hasFocus ? [String(layer), String(head), why] : null };
}
