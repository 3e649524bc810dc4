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
 * @typedef {object} Pair a source and its target before the model as it is
 * @property {EncodedText} source
 * @property {EncodedText} target
 * @property {string} language of the target
 * @property {string} written
 * @property {boolean} translated whether the model wrote the target
 * @property {string[]} notes
 * @property {ReturnType<typeof encode>} encoding
 * @property {Decoder} decoder
 */

/** @type {Record<string, string>} */
const OTHER = { en: "fr", fr: "en" };
/** @type {Record<string, string>} */
const NAMES = { en: "English", fr: "French" };
const MOST_PIECES = 128;
const MARGIN = 0.3;
/** Characters a piece: texts of longer pieces are English or French. */
const SHORT = 3;
/** Characters that the text's end counts as. */
const END_SIZE = 5;
/** The commonest pieces, which tell languages apart. */
const COMMON = 800;
/** Texts and pairs that are remembered. */
const MOST_MEMORIES = 16;

/** @param {Model} model @param {(doing: string) => void} [tell] hears what the model does now */
export function createPocket(model, tell = () => {}) {
  const tokenizer = createTokenizer(model.facts);
  const nothing = encode(model, [END]).memory;
  const decoders = Object.fromEntries(
    Object.keys(LANGUAGE).map((name) => [name, createDecoder(model, nothing)]),
  );
  /** @type {Map<string, any>} */
  const memory = new Map();

  /** @template T @param {string} name @param {() => T} make @returns {T} */
  function once(name, make) {
    const value = memory.has(name) ? memory.get(name) : make();
    memory.delete(name);
    memory.set(name, value);
    const [oldest] = memory.keys();
    if (memory.size > MOST_MEMORIES) memory.delete(oldest);
    return value;
  }

  /** Mean nats a piece of a text as one of a language, or at least so many. @param {EncodedText} text @param {string} name @param {boolean} least */
  function loss(text, name, least) {
    return once(`loss ${least} ${name} ${text.ids}`, () => {
      const judge = decoders[name];
      tell("finding the language");
      const target = [...text.ids, END];
      // What was judged before and begins alike is not read again: a text grows as it is typed.
      judge.turnTo([LANGUAGE[name], ...text.ids]);
      if (least) return judge.leastLoss(target, COMMON);
      const sum = target.reduce((total, id, place) => total - judge.logProbability(place, id), 0);
      return sum / target.length;
    });
  }

  /** The text, if its pieces are short with how unlikely it is in English and in French. @param {EncodedText} text @returns {EncodedText} */
  function judge(text) {
    const ids = text.ids.slice(0, RELIABLE);
    const size = text.tokens[ids.length - 1].end;
    if (size >= SHORT * ids.length) return text;
    const least = Math.min(...Object.keys(LANGUAGE).map((name) => loss({ ...text, ids }, name, false)));
    return { ...text, surprise: (least * (ids.length + 1)) / (size + END_SIZE) };
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
    const start = whole ? text.text : `${Array.from(text.text).slice(0, 39).join("").trimEnd()}…`;
    const note = `'${start}' was read as ${NAMES[names[first]]}, but could be ${NAMES[names[1 - first]]}`;
    return [names[first], [`${note}: --to names the target's language`]];
  }

  /**
   * What the decoder writes greedily behind the language's tag, and after how many pieces it was
   * stopped; 0: it came to its end.
   * @param {Decoder} decoder
   * @param {number} sourceLength pieces of the source, with its end
   * @param {string} language
   * @returns {{written: string, limit: number}}
   */
  function write(decoder, sourceLength, language) {
    const ids = [LANGUAGE[language]];
    const most = Math.min(2 * sourceLength + 10, MOST_PIECES);
    while (ids[ids.length - 1] !== END && ids.length < 1 + most) {
      tell(`writing: ${ids.length - 1} tokens so far`);
      // Where the decoder has read what it would write, nothing is computed.
      if (decoder.ids.length < ids.length || decoder.ids[ids.length - 1] !== ids[ids.length - 1]) {
        decoder.turnTo(ids);
      }
      ids.push(decoder.next(ids.length - 1));
    }
    const limit = ids[ids.length - 1] === END ? 0 : most;
    return { written: tidy(tokenizer.decode(ids.slice(1)), language) || "…", limit };
  }

  /**
   * A source and its target, or the model's own translation, read by the model as it is.
   * @param {string} text
   * @param {string | null} answer
   * @param {string | null} to the target's language; null: guessed
   * @returns {Pair}
   */
  function read(text, answer, to) {
    return once(`read ${JSON.stringify([text, answer, to])}`, () => {
      const source = judge(tokenizer.encode(text, "source"));
      const translation = answer === null ? null : judge(tokenizer.encode(answer, "target"));
      const [guess, close] = to ? [to, []] : languageOf(translation ?? source, translation && source);
      const language = to || translation ? guess : OTHER[guess];
      const ids = [...source.ids, END];
      tell(`reading ${ids.length} tokens`);
      const encoding = encode(model, ids);
      const decoder = createDecoder(model, encoding.memory);
      const { written, limit } = answer === null ? write(decoder, ids.length, language) : { written: answer, limit: 0 };
      const target = translation ?? tokenizer.encode(written, "target");
      decoder.turnTo([LANGUAGE[language], ...target.ids]);
      const notes = [...tokenizer.notes(source, "the source"), ...(translation ? tokenizer.notes(translation, "the target") : []), ...close];
      if (limit) notes.push(`the pocket model was stopped after ${limit} pieces of the target`);
      return { source, target, language, written, translated: !translation, notes, encoding, decoder };
    });
  }

  /** The same texts with something switched off. @param {Pair} pair @param {Off} off @param {import("./network.js").Tape | null} tape */
  function rerun(pair, off, tape = null) {
    const same = !tape && !reaches(off, "encoder");
    const encoding = same ? pair.encoding : encode(model, [...pair.source.ids, END], off, tape);
    const decoder = createDecoder(model, encoding.memory, off, tape);
    decoder.turnTo([LANGUAGE[pair.language], ...pair.target.ids]);
    return { encoding, decoder };
  }

  /** log p of each piece of the target. @param {Pair} pair @param {Decoder} decoder */
  const logProbabilities = (pair, decoder) => pair.target.ids.map((id, place) => decoder.logProbability(place, id));

  /** A piece as it is written, or the name of a special one. @param {number} id */
  const spell = (id) => tokenizer.decode([id]).trim() || (id < model.facts.specials.length ? tokenizer.vocabulary[id] : "␣");

  return { model, tokenizer, read, rerun, write, logProbabilities, spell };
}

/** The languages of a source and its target, where they are likely. @param {Pair} pair */
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

