/**
 * The pocket model with a text before it, as `attnviz/models/pocket/{model,source,experiment}.py`:
 * its language, what the model writes, what it makes of a given translation, and what changes that.
 */

import { createDecoder, encode } from "./network.js";
import { END, LANGUAGE, RELIABLE, createTokenizer, isForeign } from "./tokenize.js";

/** @import { Model, Off } from "./network.js" */
/** @import { EncodedText } from "./tokenize.js" */
/** @typedef {ReturnType<typeof createPocket>} Pocket */
/** @typedef {ReturnType<typeof createDecoder>} Decoder */
/**
 * @typedef {object} Read a source and its target before the model as it is
 * @property {EncodedText} source
 * @property {EncodedText} target
 * @property {string} language of the target
 * @property {string} written
 * @property {boolean} translated whether the model wrote the target
 * @property {string[]} notes
 * @property {ReturnType<typeof encode>} encoded
 * @property {Decoder} decoder
 */

/** @type {Record<string, string>} */
const OTHER = { en: "fr", fr: "en" };
/** @type {Record<string, string>} */
const NAMES = { en: "English", fr: "French" };
const MOST_WRITTEN = 128;
const MARGIN = 0.3;
/** Characters a piece: texts of longer pieces are English or French. */
const SHORT = 3;
/** Characters that the text's end counts as. */
const END_SIZE = 5;
/** The commonest pieces, which tell languages apart. */
const COMMON = 800;
/** Texts and pairs that are remembered. */
const REMEMBERED = 16;

/** @param {Model} model @param {(doing: string) => void} [tell] is told again and again what is being done */
export function createPocket(model, tell = () => {}) {
  const tokenizer = createTokenizer(model.facts);
  const nothing = encode(model, [END]).memory;
  const judges = Object.fromEntries(
    Object.keys(LANGUAGE).map((name) => [name, createDecoder(model, nothing)]),
  );
  /** @type {Map<string, any>} */
  const remembered = new Map();

  /** @template T @param {string} name @param {() => T} make @returns {T} */
  function once(name, make) {
    const found = remembered.has(name) ? remembered.get(name) : make();
    remembered.delete(name);
    remembered.set(name, found);
    for (const old of remembered.keys()) {
      if (remembered.size <= REMEMBERED) break;
      remembered.delete(old);
    }
    return found;
  }

  /** Mean nats a piece of a text as one of a language, or at least so many. @param {EncodedText} text @param {string} name @param {boolean} least */
  function loss(text, name, least) {
    return once(`loss ${least} ${name} ${text.ids}`, () => {
      const judge = judges[name];
      tell("finding the language");
      const expected = [...text.ids, END];
      // What was judged before and begins alike is not read again: a text grows as it is typed.
      judge.turnTo([LANGUAGE[name], ...text.ids]);
      if (least) return judge.leastLoss(expected, COMMON);
      const sum = expected.reduce((total, id, place) => total - judge.logProbability(place, id), 0);
      return sum / expected.length;
    });
  }

  /** The text, if its pieces are short with how unlikely it is in English and in French. @param {EncodedText} read @returns {EncodedText} */
  function judged(read) {
    const ids = read.ids.slice(0, RELIABLE);
    const size = read.tokens[ids.length - 1].end;
    if (size >= SHORT * ids.length) return read;
    const least = Math.min(...Object.keys(LANGUAGE).map((name) => loss({ ...read, ids }, name, false)));
    return { ...read, surprise: (least * (ids.length + 1)) / (size + END_SIZE) };
  }

  /**
   * The language in which a text is likeliest, its known translation in the other, and a note where
   * that was a close call.
   * @param {EncodedText} text
   * @param {EncodedText | null} translation
   * @returns {[string, string[]]}
   */
  function languageOf(text, translation) {
    const names = Object.keys(LANGUAGE);
    const sumOf = (/** @type {string} */ name, least = false) =>
      loss(text, name, least) + (translation ? loss(translation, OTHER[name], least) : 0);
    const least = names.map((name) => sumOf(name, true));
    const likely = least[1] < least[0] ? 1 : 0;
    // Mostly a language is ruled out by a bound that costs little.
    if (least[1 - likely] - sumOf(names[likely]) > MARGIN) return [names[likely], []];
    const sums = names.map((name) => sumOf(name));
    const first = sums[1] < sums[0] ? 1 : 0;
    if (isForeign(text) || sums[1 - first] - sums[first] > MARGIN) return [names[first], []];
    const whole = text.points.length <= 40;
    const shown = whole ? text.text : `${Array.from(text.text).slice(0, 39).join("").trimEnd()}…`;
    const note = `'${shown}' was read as ${NAMES[names[first]]}, but could be ${NAMES[names[1 - first]]}`;
    return [names[first], [`${note}: --to names the target's language`]];
  }

  /**
   * What the decoder writes greedily behind the language's tag, and after how many pieces it was
   * stopped; 0: it came to its end.
   * @param {Decoder} decoder
   * @param {number} read pieces of the source, with its end
   * @param {string} language
   * @returns {{written: string, stopped: number}}
   */
  function write(decoder, read, language) {
    const ids = [LANGUAGE[language]];
    const most = Math.min(2 * read + 10, MOST_WRITTEN);
    while (ids[ids.length - 1] !== END && ids.length < 1 + most) {
      tell(`writing: ${ids.length - 1} tokens so far`);
      // Where the decoder has read what it would write, nothing is computed.
      if (decoder.ids.length < ids.length || decoder.ids[ids.length - 1] !== ids[ids.length - 1]) {
        decoder.turnTo(ids);
      }
      ids.push(decoder.next(ids.length - 1));
    }
    const stopped = ids[ids.length - 1] === END ? 0 : most;
    return { written: tidy(tokenizer.decode(ids.slice(1)), language) || "…", stopped };
  }

  /**
   * A source and its target, or the model's own translation, read by the model as it is.
   * @param {string} text
   * @param {string | null} given
   * @param {string | null} to the target's language; null: guessed
   * @returns {Read}
   */
  function read(text, given, to) {
    return once(`read ${JSON.stringify([text, given, to])}`, () => {
      const source = judged(tokenizer.encode(text, "source"));
      const known = given === null ? null : judged(tokenizer.encode(given, "target"));
      const [guessed, close] = to ? [to, []] : languageOf(known ?? source, known && source);
      const language = to || known ? guessed : OTHER[guessed];
      const ids = [...source.ids, END];
      tell(`reading ${ids.length} tokens`);
      const encoded = encode(model, ids);
      const decoder = createDecoder(model, encoded.memory);
      const { written, stopped } = given === null ? write(decoder, ids.length, language) : { written: given, stopped: 0 };
      const target = known ?? tokenizer.encode(written, "target");
      decoder.turnTo([LANGUAGE[language], ...target.ids]);
      const notes = [...tokenizer.notes(source, "the source"), ...(known ? tokenizer.notes(known, "the target") : []), ...close];
      if (stopped) notes.push(`the pocket model was stopped after ${stopped} pieces of the target`);
      return { source, target, language, written, translated: !known, notes, encoded, decoder };
    });
  }

  /** The same texts with something switched off. @param {Read} pair @param {Off} off @param {import("./network.js").Tape | null} tape */
  function changed(pair, off, tape = null) {
    const same = !tape && !reaches(off, "encoder");
    const encoded = same ? pair.encoded : encode(model, [...pair.source.ids, END], off, tape);
    const decoder = createDecoder(model, encoded.memory, off, tape);
    decoder.turnTo([LANGUAGE[pair.language], ...pair.target.ids]);
    return { encoded, decoder };
  }

  /** log p of each piece of the target. @param {Read} pair @param {Decoder} decoder */
  const logProbabilities = (pair, decoder) => pair.target.ids.map((id, place) => decoder.logProbability(place, id));

  /** A piece as it is written, or the name of a special one. @param {number} id */
  const spell = (id) => tokenizer.decode([id]).trim() || (id < model.facts.specials.length ? tokenizer.vocabulary[id] : "␣");

  return { model, tokenizer, read, changed, write, logProbabilities, spell };
}

/** The languages of a source and its target, where they are likely. @param {Read} pair */
export function languagesOf({ source, target, language }) {
  return [isForeign(source) ? "unknown" : OTHER[language], isForeign(target) ? "unknown" : language];
}

/** Whether anything that is switched off is in the encoder. @param {Off} off @param {string} stream */
function reaches(off, stream) {
  const tokens = off.tokens.some(([side]) => side === "source");
  return tokens || [...off.heads, ...off.links].some(([own]) => own === stream);
}

/** Whether nothing is switched off. @param {Off} off */
export const isNothing = (off) => !off.heads.length && !off.links.length && !off.tokens.length;

/** The model's text without the spaces before punctuation. @param {string} written @param {string} language */
const tidy = (written, language) => written.replace(language === "fr" ? / +([.,)\]])/g : / +([.,)\]?!;:])/g, "$1").trim();

