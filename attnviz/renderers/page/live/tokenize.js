/** Texts in pieces, as `attnviz/models/pocket/text.py` and its tokenizer make them. */

import { compose, isAlphanumeric, isSpace, pointsOf, readUnicode, textOf } from "./unicode.js";

/** @typedef {{text: string, start: number, end: number, special?: boolean}} Piece */
/** @typedef {{text: string, points: number[], ids: number[], tokens: Piece[], surprise?: number}} EncodedText nats a character */
/** @typedef {ReturnType<typeof createTokenizer>} Tokenizer */
/** @import { Character } from "./unicode.js" */

/** Ids of special pieces. */
export const UNKNOWN = 1;
export const END = 2;
/** @type {Record<string, number>} */
export const LANGUAGE = { en: 3, fr: 4 };
/** Pieces of the longest text that is read here. */
const LONGEST = 256;
/** Positions at which heads do what their roles say. */
export const RELIABLE = 50;
/** Nats a character above which a text is neither English nor French. */
const UNLIKELY = 2.2;
const MARK = "▁".charCodeAt(0);
const MARKS = /^▁+/;
/** Characters of a text that may be short enough. */
const MOST_CHARACTERS = 10_000;

/** Whether neither English nor French is likely. @param {EncodedText} read */
export const isForeign = ({ surprise = 0 }) => surprise > UNLIKELY;

/** @param {any} facts see packed.py */
export function createTokenizer(facts) {
  const unicode = readUnicode(facts.unicode);
  /** @type {string[]} */
  const vocabulary = facts.vocabulary;
  const size = vocabulary.length;
  const ids = new Map(vocabulary.map((piece, id) => [piece, id]));
  /** @type {Map<number, [number, number]>} of two pieces the rank and id of what they become */
  const merges = new Map();
  for (const [rank, [one, other]] of facts.merges.entries()) {
    const id = /** @type {number} */ (ids.get(vocabulary[one] + vocabulary[other]));
    merges.set(one * size + other, [rank, id]);
  }
  /** @type {Map<number, number[]>} */
  const substitutes = new Map(
    facts.replaced.map((/** @type {string[]} */ [from, to]) => [from.codePointAt(0), pointsOf(to)]),
  );
  const special = new RegExp(`(${facts.specials.join("|")})`, "u");

  /** The pieces of a run of characters, by byte pair encoding. @param {Character[]} run */
  function mergePairs(run) {
    const parts = run.map(({ point, start, end }) => {
      return { id: ids.get(String.fromCodePoint(point)) ?? UNKNOWN, start, end };
    });
    const rankAt = (/** @type {number} */ place) =>
      merges.get(parts[place].id * size + parts[place + 1].id)?.[0] ?? Infinity;
    const ranks = parts.slice(1).map((_, place) => rankAt(place));
    for (;;) {
      let best = 0;
      for (let place = 1; place < ranks.length; place++) if (ranks[place] < ranks[best]) best = place;
      if (!ranks.length || ranks[best] === Infinity) return parts;
      const [one, other] = parts.splice(best, 2);
      const [, id] = /** @type {[number, number]} */ (merges.get(one.id * size + other.id));
      parts.splice(best, 0, { id, start: one.start, end: other.end });
      ranks.splice(best, 1);
      if (best > 0) ranks[best - 1] = rankAt(best - 1);
      if (best < ranks.length) ranks[best] = rankAt(best);
    }
  }

  /** @param {number[]} points @param {number} first where they stand in the text */
  function piecesOf(points, first) {
    const characters = points.flatMap((point, place) => {
      const at = { start: first + place, end: first + place + 1 };
      return (substitutes.get(point) ?? [point]).map((one) => ({ point: one, ...at }));
    });
    const text = compose(unicode, characters).map((one) => (one.point === 32 ? { ...one, point: MARK } : one));
    if (text.length && text[0].point !== MARK) text.unshift({ ...text[0], point: MARK });
    /** @type {Character[][]} */
    const runs = [];
    let alone = true;
    for (const one of text) {
      const apart = unicode.punctuation.at(one.point) === 1;
      if (alone || apart || one.point === MARK) runs.push([one]);
      else runs[runs.length - 1].push(one);
      alone = apart;
    }
    return runs.flatMap(mergePairs);
  }

  /** A text in pieces; a one-line Error where it has none or too many. @param {string} text @param {string} what @returns {EncodedText} */
  function encode(text, what) {
    const points = pointsOf(text);
    if (points.length > MOST_CHARACTERS) throw new Error(`the ${what} is too long: this page reads up to ${LONGEST} pieces`);
    let first = 0;
    const pieces = textOf(points).split(special).flatMap((part, place) => {
      const own = pointsOf(part);
      const from = first;
      first += own.length;
      if (place % 2) return [{ id: /** @type {number} */ (ids.get(part)), start: from, end: first }];
      return piecesOf(own, from);
    });
    if (points.every(isSpace) || !pieces.length) throw new Error(`the ${what} is empty: give at least one word`);
    if (pieces.length > LONGEST) {
      throw new Error(`the ${what} has ${pieces.length} pieces: this page reads up to ${LONGEST}; cut it`);
    }
    const spans = pieces.map(({ start, end }) => `${start} ${end}`);
    const repeats = new Set(spans.filter((span, place) => place > 0 && span === spans[place - 1]));
    const tokens = pieces.map((piece, place) => token(points, piece, repeats.has(spans[place])));
    return { text, points, ids: pieces.map((piece) => piece.id), tokens };
  }

  /**
   * No space before it, ## inside a word; of a character that became several pieces its spelling.
   * @param {number[]} points
   * @param {{id: number, start: number, end: number}} piece
   * @param {boolean} shares its character with others
   * @returns {Piece}
   */
  function token(points, { id, start, end }, shares) {
    let [from, to] = [start, end];
    while (from < to && isSpace(points[from])) from++;
    while (to > from && isSpace(points[to - 1])) to--;
    const span = textOf(points.slice(from, to));
    const at = span ? { start: from, end: to } : { start, end };
    const word = shares ? vocabulary[id].replace(MARKS, "") : span;
    const inside = word && continuesWord(points[at.start - 1] ?? points[0], points[at.start], at.start);
    return { text: (inside ? "##" : "") + word || vocabulary[id], ...at };
  }

  /** @param {number} before @param {number | undefined} first @param {number} start */
  function continuesWord(before, first, start) {
    const both = start > 0 && isAlphanumeric(unicode, before) && isAlphanumeric(unicode, first);
    return both && unicode.wide.at(/** @type {number} */ (first)) === 0;
  }

  /** Pieces as running text, special ones left out. @param {number[]} pieces */
  function decode(pieces) {
    const own = pieces.filter((id) => id >= facts.specials.length).map((id) => vocabulary[id]);
    return own.map((piece, place) => piece.replaceAll("▁", place ? " " : "")).join("");
  }

  /** Where the model is unreliable on a text. @param {EncodedText} text @param {string} name */
  function notes(text, name) {
    const reasons = [];
    const pieces = text.ids.length;
    const unknown = text.ids.filter((id) => id === UNKNOWN).length;
    if (unknown) reasons.push(`${unknown} of ${pieces} pieces are unknown to it`);
    if (isForeign(text)) {
      const rate = `${text.surprise?.toFixed(1)} nats a character, where both have fewer than ${UNLIKELY}`;
      reasons.push(`its language is unknown, as neither English nor French is likely (${rate})`);
    }
    if (pieces > RELIABLE) reasons.push(`${pieces} pieces, where its heads keep their roles for ${RELIABLE}`);
    const note = `${name} lies outside what the pocket model was trained for: ${reasons.join("; ")}`;
    return reasons.length ? [note] : [];
  }

  /** A special piece, which covers no text. @param {number} id @param {number} place @returns {Piece} */
  const specialPiece = (id, place) =>
    ({ text: vocabulary[id], start: place, end: place, special: true });

  return { encode, decode, notes, specialPiece, unicode, vocabulary };
}
