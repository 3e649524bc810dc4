/** What the engine found, in the layout of the page's document (`renderers/page/document.py`). */

import { informativeOf, massNote, measuresOf } from "./measures.js";
import { SIDES } from "./network.js";
import { languagesOf } from "./pocket.js";
import { findLargest, sumOf } from "../scripts/rows.js";
import { firstRows, limitsTo, reach } from "../scripts/scale.js";
import { isSpace, pointsOf, textOf } from "./unicode.js";

/** @import { Piece } from "./tokenize.js" */
/** @import { Unicode } from "./unicode.js" */
/** @import { Matrix } from "./network.js" */
/** @import { Pair, Pocket } from "./pocket.js" */
/** @typedef {{points: number[], tokens: Piece[]}} Side */
/**
 * @typedef {object} StreamMaps values of one stream
 * @property {string} stream
 * @property {Matrix[][]} values of each layer and head (queries, keys)
 * @property {"share" | "signed"} kind
 * @property {string} unit
 */

const LEVELS = 32767;
const NO_VALUE = -32768;
const LONGEST_TEXT = 200;

/** A text's tokens with places and gaps, as JSON. @param {Unicode} unicode @param {Side} side @param {string} name */
function axisOf(unicode, { points, tokens }, name) {
  const { runs } = wordsOf(unicode, points, tokens);
  return {
    side: name,
    block: 1,
    words: runs.length && runs[runs.length - 1] + 1 < runs.length ? runs : null,
    tokens: tokens.map((token, place) => ({
      ...shownToken(unicode, token),
      gap: place ? gapOf(tokens[place - 1], token, points) : "",
      start: token.start,
      end: token.end,
    })),
  };
}

/** @param {Unicode} unicode @param {Piece} token */
function shownToken(unicode, { text, special }) {
  const clean = printable(unicode, text);
  return { text: clean, ...(clean === text ? {} : { raw: text }), ...(special ? { special } : {}) };
}

/** What stands between two tokens. @param {Piece} before @param {Piece} token @param {number[]} points */
export function gapOf(before, token, points) {
  const hasNoPlace = (/** @type {Piece} */ one) => one.special || one.end <= one.start;
  if (hasNoPlace(before) || hasNoPlace(token)) return " ";
  const between = before.end <= token.start ? points.slice(before.end, token.start) : [];
  if (between.includes(10) || token.text.includes("\n")) return "\n";
  return between.length || isSpace(points[token.start] ?? 0) ? " " : "";
}

/** Words, punctuation at their ends and special tokens, and which of them each token belongs to. @param {Unicode} unicode @param {number[]} points @param {Piece[]} tokens */
function wordsOf(unicode, points, tokens) {
  const [starts, ends] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
  const isMark = (/** @type {number} */ place) => unicode.category.at(points[place])[0] === "P";
  for (let start = 0, end = 0; end < points.length; start = end + 1) {
    for (end = start; end < points.length && !isSpace(points[end]); ) end++;
    const inner = [start, end];
    while (inner[0] < end && isMark(inner[0])) inner[0]++;
    if (inner[0] === end) inner[0] = start; // nothing but marks
    else while (isMark(inner[1] - 1)) inner[1]--;
    const cuts = [...new Set([start, ...inner, end])];
    cuts.slice(1).forEach((end, place) => {
      starts.push(cuts[place]);
      ends.push(end);
    });
  }
  const numbers = tokens.map((token) => {
    if (token.special) return null;
    let first = token.start;
    while (first < token.end && isSpace(points[first])) first++;
    const number = ends.filter((end) => end <= first).length;
    return Math.min(number, ends.length - 1);
  });
  const [runs, words] = [/** @type {number[]} */ ([]), /** @type {Piece[]} */ ([])];
  numbers.forEach((number, place) => {
    if (number === null) words.push(tokens[place]);
    else if (!place || number !== numbers[place - 1]) {
      const [start, end] = [starts[number], ends[number]];
      words.push({ text: textOf(points.slice(start, end)), start, end });
    }
    runs.push(words.length - 1);
  });
  return { runs, words };
}

/** Pieces joined into words: sums over keys, means over queries. @param {Unicode} unicode @param {StreamMaps} maps @param {Side} queries @param {Side} keys */
function joinWords(unicode, { values, ...rest }, queries, keys) {
  const [rows, columns] = [queries, keys].map(({ points, tokens }) => wordsOf(unicode, points, tokens));
  const [width, size] = [columns.runs.length, columns.words.length];
  const pieces = rows.words.map((_, word) => rows.runs.filter((run) => run === word).length);
  const joinHead = (/** @type {Matrix} */ head) => {
    const weights = new Float64Array(rows.words.length * size);
    head.forEach((value, cell) => {
      const row = rows.runs[Math.floor(cell / width)];
      weights[row * size + columns.runs[cell % width]] += (value || 0) / pieces[row];
    });
    return weights;
  };
  return { streamMaps: { ...rest, values: values.map((heads) => heads.map(joinHead)) }, queries: rows.words, keys: columns.words };
}

/** Cells between words, which set the scale; else all. @param {Piece[]} queries @param {Piece[]} keys @param {number | null} sink */
function wordCells(queries, keys, sink) {
  const cells = queries.flatMap((query) =>
    keys.map((key, place) => !query.special && !key.special && place !== sink),
  );
  return cells.includes(true) ? cells : cells.map(() => true);
}

/** The key on which a text's attention to itself rests, if one is. @param {StreamMaps} maps @param {number} count */
function sinkOf({ values, kind }, count) {
  if (kind !== "share" || count < 4) return null;
  const sums = new Float64Array(count * count);
  for (const head of values.flat()) head.forEach((value, cell) => (sums[cell] += value));
  const receipts = new Float64Array(count);
  sums.forEach((value, cell) => (receipts[cell % count] += value));
  const total = sumOf(receipts);
  if (!(total > 0)) return null;
  const causal = !sums.some((value, cell) => cell % count > Math.floor(cell / count) && value !== 0);
  const place = findLargest(receipts);
  let uniform = 0;
  for (let query = 0; query < count; query++) {
    uniform += causal ? (place <= query ? 1 / (query + 1) : 0) : 1 / count;
  }
  return receipts[place] / total >= Math.max(0.3, (1.5 * uniform) / count) ? place : null;
}

/** @param {StreamMaps} maps @param {boolean[]} cells between words @param {number} columns @returns {[number, number]} */
function limitsOf({ values, kind, stream }, cells, columns) {
  const heads = values.flat();
  const first = stream === "decoder" && kind === "share" ? firstRows(cells.length / columns) * columns : 0;
  const later = cells.some((own, cell) => own && cell >= first) ? first : 0;
  const sizes = heads.flatMap((head) => Array.from(head).filter((_, cell) => cells[cell] && cell >= later).map(Math.abs));
  const top = reach(sizes) || reach(heads.flatMap((head) => Array.from(head, Math.abs)));
  return limitsTo(top, kind);
}

/** The codes of a layer, head after head. @param {Matrix[]} heads @param {number} scale */
function codesOf(heads, scale) {
  const codes = new Int16Array(heads.length * heads[0].length);
  let at = 0;
  for (const head of heads) {
    for (const value of head) {
      const size = Math.sqrt(Math.min(Math.abs(value) / scale, 1)) * LEVELS;
      codes[at++] = Number.isNaN(size) ? NO_VALUE : Math.sign(value) * Math.round(size);
    }
  }
  return codes;
}

/** How much each head says of the text. @param {StreamMaps} one @param {Side} rows @param {Side} columns @param {Unicode} unicode */
function findInformative(one, rows, columns, unicode) {
  const { streamMaps, queries, keys } = joinWords(unicode, one, rows, columns);
  const informative = informativeOf(streamMaps, queries, keys);
  if (informative?.focus) informative.focus[2] = printable(unicode, informative.focus[2]);
  return informative;
}

/** The head with the largest sum of effects. @param {StreamMaps} maps */
function largestOf({ values }) {
  const sums = values.map((heads) => heads.map((head) => head.reduce((sum, value) => sum + (Math.abs(value) || 0), 0)));
  const top = Math.max(...sums.flat());
  const layer = sums.findIndex((heads) => heads.includes(top));
  return top ? [String(layer), String(sums[layer].indexOf(top)), `largest sum of |effect|: ${top.toFixed(2)} nats`] : null;
}

/**
 * The document of a run and the codes that it refers to.
 * @param {Pocket} pocket @param {Pair} pair @param {StreamMaps[]} streams @param {string} lens
 * @param {{notes: string[], facts: [string, string][]}} told
 */
export function pageDocument(pocket, pair, streams, lens, { notes, facts }) {
  const { tokenizer, model } = pocket;
  const { unicode } = tokenizer;
  const sides = sidesOf(pocket, pair);
  const axes = Object.fromEntries(Object.entries(sides).map(([name, side]) => [name, axisOf(unicode, side, name)]));
  /** @type {Map<string, Int16Array>} */
  const codes = new Map();
  const { layer, head } = model.facts.guided;
  const outside = [pair.source, pair.target].some((text) => tokenizer.notes(text, "").length);
  const focus = [String(layer), String(head), `trained to align${outside ? ", but not on such text" : ""}`];
  const maps = streams.map((one, number) => {
    const [queries, keys] = SIDES[one.stream];
    const [rows, columns] = [sides[queries].tokens, sides[keys].tokens];
    const sink = queries === keys ? sinkOf(one, rows.length) : null;
    const all = one.values.flat();
    const largest = all.reduce((top, head) => head.reduce((high, value) => Math.max(high, Math.abs(value) || 0), top), 0);
    const scale = one.kind === "signed" ? largest || 1 : largest > 1 + 1e-3 ? largest : 1;
    one.values.forEach((heads, layer) => codes.set(`m${number}-${layer}`, codesOf(heads, scale)));
    const cells = wordCells(rows, columns, sink);
    const informative = one.kind === "share" ? findInformative(one, sides[queries], sides[keys], unicode) : null;
    return {
      blob: `m${number}`,
      stream: one.stream,
      lens,
      layers: one.values.map((_, layer) => String(layer)),
      heads: one.values[0].length === 1 ? ["mean"] : one.values[0].map((_, head) => String(head)),
      values: one.kind,
      unit: one.unit,
      limits: limitsOf(one, cells, columns.length),
      scale,
      levels: LEVELS,
      queries: axes[queries],
      keys: axes[keys],
      sink,
      focus: one.stream === "cross" && !lens ? focus : one.kind === "signed" ? largestOf(one) : informative?.focus ?? null,
      measures: one.kind === "share" ? measuresOf(one, rows, columns, unicode, informative, textOf(sides[queries].points)) : [],
      links: null,
      effects: [],
      projections: null,
      patches: {},
    };
  });
  const document = {
    title: ["pocket", ...(lens ? [`lens ${lens}`] : [])].join(" · "),
    id: "0",
    texts: [pair.target, pair.source].map(({ points }) => beginning(unicode, points)),
    command: "",
    notes: Array.from(new Set([...notes, ...maps.flatMap((map) => massNote(map.measures))]), (note) => printable(unicode, note)),
    provenance: [
      ...Object.entries({ source: "pocket", model: "pocket", trained: "yes", device: "browser" }),
      ["precision", "weights of 10 to 12 bits"],
      ["revision", model.facts.revision],
      ["direction", languagesOf(pair).join(" to ")],
      ["translated", pair.translated ? "yes" : "no"],
      ...facts,
    ],
    maps,
  };
  return { document, codes };
}

/** What queries and keys stand for. @param {Pocket} pocket @param {Pair} pair @returns {Record<string, Side>} */
export function sidesOf({ tokenizer }, { source, target, language }) {
  const end = tokenizer.specialPiece(2, source.points.length);
  const tag = tokenizer.specialPiece(language === "en" ? 3 : 4, 0);
  return {
    source: { points: source.points, tokens: [...source.tokens, end] },
    target: { points: target.points, tokens: [tag, ...target.tokens] },
  };
}

/** @param {Unicode} unicode @param {number[]} points */
function beginning(unicode, points) {
  const line = textOf(points.slice(0, 2 * LONGEST_TEXT).map((point) => (isSpace(point) ? 32 : point)));
  const visible = pointsOf(line.replace(/ +/g, " ").replace(/^ | $/g, ""));
  const whole = visible.length <= LONGEST_TEXT && points.length <= 2 * LONGEST_TEXT;
  const start = textOf(visible.slice(0, LONGEST_TEXT)).replace(/ $/, "");
  return printable(unicode, whole ? textOf(visible) : `${start}…`);
}

const PICTURES = new Map([["\n", "⏎"], ["\t", "⇥"], ["\x7f", "␡"]]);
const BLANK = /^[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]$/;
const MARKS = /^[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}]$/u;
const JOINING = [[0x600, 0x8ff], [0x900, 0x109f], [0x1780, 0x18af], [0xfb50, 0xfefc]];

/** A text with nothing left that hides, styles, breaks or turns a line, as `renderers/printable.py`. @param {Unicode} unicode @param {string} text */
export function printable(unicode, text) {
  if (/^ +$/.test(text)) return "␣".repeat(text.length);
  const points = pointsOf(text);
  const blank = points.every(isSpace);
  const kind = (/** @type {number} */ place) => (place in points ? unicode.category.at(points[place]) : "  ");
  const joins = (/** @type {number} */ place) =>
    JOINING.some(([low, high]) => low <= points[place] && points[place] <= high) && "LM".includes(kind(place)[0]);
  const emoji = (/** @type {number} */ place) =>
    points[place] === 0xfe0f || (0x1f000 <= points[place] && points[place] <= 0x1faff) || kind(place) === "So";
  const works = (/** @type {number} */ place, /** @type {string} */ character) => {
    if (MARKS.test(character)) return true;
    if ((points[place] !== 0x200c && points[place] !== 0x200d) || place < 1 || place > points.length - 2) return false;
    if (joins(place - 1) && joins(place + 1)) return true;
    return points[place] === 0x200d && emoji(place - 1) && emoji(place + 1);
  };
  const signs = points.map((point, place) => {
    const character = String.fromCodePoint(point);
    if (PICTURES.has(character)) return PICTURES.get(character);
    if (point < 32) return String.fromCodePoint(0x2400 + point);
    const selector = (0xfe00 <= point && point <= 0xfe0f) || (0xe0100 <= point && point <= 0xe01ef);
    const hidden =
      ["Cc", "Cs", "Zl", "Zp"].includes(kind(place)) ||
      BLANK.test(character) ||
      (blank && kind(place) === "Zs") ||
      (kind(place) === "Cf" && !works(place, character)) ||
      (selector && !(place > 0 && "LNPS".includes(kind(place - 1)[0])));
    const code = point.toString(16).toUpperCase();
    return hidden ? `‹${code.padStart(point > 255 ? 4 : 2, "0")}›` : character;
  });
  if (["Mn", "Me"].includes(kind(0)) && signs[0] === String.fromCodePoint(points[0])) signs.unshift("◌");
  return signs.join("");
}
