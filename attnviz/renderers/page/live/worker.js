/**
 * The engine's side of the messages: it answers questions about a sentence and its translation.
 *
 * Newer questions make older ones obsolete that wait for the same pane.
 */

import { effectsOf, rollout, slopesOf } from "./backward.js";
import { explainPiece } from "./explain.js";
import { gapOf, pageDocument, sidesOf } from "./maps.js";
import { NOTHING, openModel } from "./network.js";
import { createPocket, isNothing, languagesOf } from "./pocket.js";
import { rowOf, sumOf } from "../scripts/rows.js";
import { explainLink, unfoldLink } from "./why.js";

/** @import { Off, Tape } from "./network.js" */
/** @import { Pair, Pocket } from "./pocket.js" */
/**
 * @typedef {{id: number, kind: "attend" | "heads" | "why" | "explain", pane?: number, lens: string,
 *   source: string, target: string | null, off: Off, to?: string | null,
 *   explain?: "all" | number | null, link?: Parameters<typeof explainLink>[2]}} Question
 */

const RAW = "share of a row's attention";
const scope = /** @type {any} */ (self);
/** @type {Pocket | null} */
let pocket = null;
/** @type {Question[]} */
let queue = [];
let busy = false;
/** The question that is being answered, and when something was last said of it. */
let [current, lastTime] = [/** @type {Question | null} */ (null), 0];
/** Milliseconds before a message says what is slow. */
const LONG = 400;

/** @param {string} doing */
function tell(doing) {
  if (!current || performance.now() - lastTime < LONG) return;
  lastTime = performance.now();
  scope.postMessage({ id: current.id, pane: current.pane, doing });
}

/** @param {MessageEvent} event */
scope.onmessage = (event) => {
  const message = event.data;
  if (message.kind === "open") {
    runStep({ id: 0 }, () => {
      pocket = createPocket(openModel(message.packed), tell);
    });
  } else {
    const outdated = (/** @type {Question} */ one) => {
      if (message.kind === "why" || message.kind === "explain") return one.kind === message.kind;
      return one.kind === "heads" || (message.kind === "attend" && one.pane === message.pane);
    };
    for (const { id, pane } of queue.filter(outdated)) scope.postMessage({ id, pane, dropped: true });
    queue = [...queue.filter((one) => !outdated(one)), message];
  }
  if (!busy) work();
};

/** Lets messages in. */
const breath = () => new Promise((resolve) => setTimeout(resolve, 0));

async function work() {
  busy = true;
  for (await breath(); pocket && queue.length; await breath()) {
    const question = /** @type {Question} */ (queue.shift());
    const engine = pocket;
    if (question.kind === "heads") await headEffects(engine, question);
    else if (question.kind === "why") await why(engine, question);
    else if (question.kind === "explain") await explain(engine, question);
    else {
      [current, lastTime] = [question, performance.now()];
      await runStep({ id: question.id, pane: question.pane }, () => attend(engine, question));
      current = null;
    }
  }
  busy = false;
}

/** Runs a step and tells what went wrong. @param {Partial<Question>} fields what every answer says @param {() => void | Promise<void>} step */
async function runStep(fields, step) {
  try {
    await step();
  } catch (error) {
    scope.postMessage(error === CANCEL ? { ...fields, dropped: true } : { ...fields, error: error instanceof Error ? error.message : String(error) });
  }
}

/** @param {Pocket} engine @param {Question} question */
const why = (engine, { id, kind, source, target, to = null, link }) => runStep({ id, kind }, () => {
  if (!link) throw new Error("which link?");
  const pair = engine.read(source, target, to);
  scope.postMessage({ id, kind, report: explainLink(engine, pair, link), steps: unfoldLink(engine, pair, link) });
});

/** What is waited for longest between two looks at the messages, in milliseconds. */
const TURN = 40;
const CANCEL = Symbol("no longer wanted");

/** What decided a piece, unless another question comes meanwhile. @param {Pocket} engine @param {Question} question */
async function explain(engine, { id, kind, source, target, to = null, explain: piece }) {
  if (!source) return; // the search before was given up
  let [last, lastWords] = [performance.now(), ""];
  const pause = async (/** @type {string} */ doing) => {
    if (performance.now() - last < TURN) return;
    if (doing !== lastWords) scope.postMessage({ id, kind, doing });
    lastWords = doing;
    await breath();
    while (queue[0]?.kind === "why") await why(engine, /** @type {Question} */ (queue.shift()));
    if (queue.some(({ kind }) => kind !== "heads")) throw CANCEL;
    last = performance.now();
  };
  await runStep({ id, kind }, async () => {
    const pair = engine.read(source, target, to);
    const place = Number(piece) - 1;
    if (!(place in pair.target.ids)) throw new Error(`the target has no piece ${piece}: name one from 1 to ${pair.target.ids.length}`);
    scope.postMessage({ id, kind, claims: await explainPiece(engine, pair, place, pause), notes: ["heads that are off put out their mean over 16 English sentences"] });
  });
}

/** @param {Pocket} engine @param {Question} question */
function attend(engine, { id, pane, source, target, lens, off = NOTHING, to = null, explain = null }) {
  const start = performance.now();
  const pair = engine.read(source, target, to);
  const run = isNothing(off) ? pair : { ...pair, ...engine.rerun(pair, off) };
  const [before, after] = [pair, run].map(({ decoder }) => engine.logProbabilities(pair, decoder));
  tell("gathering the maps");
  const lensMaps = throughLens(engine, pair, run, lens, off, explain ?? "all");
  const { document, codes } = pageDocument(engine, pair, lensMaps.streams, lens === "raw" ? "" : lens, lensMaps);
  const changed = run === pair ? null : {
    pieces: piecesOf(engine, pair, after),
    total: sumOf(after),
    effect: sumOf(before) - sumOf(after),
    // Last of all, as the decoder reads what it writes.
    written: engine.write(run.decoder, pair.source.ids.length + 1, pair.language).written,
  };
  const answer = {
    language: languagesOf(pair)[0],
    to: languagesOf(pair)[1],
    written: pair.written,
    pieces: piecesOf(engine, pair, before),
    changed,
    seconds: (performance.now() - start) / 1000,
    notes: pair.notes,
  };
  scope.postMessage({ id, pane, document, codes, answer }, Array.from(codes.values(), (one) => one.buffer));
}

/** @param {Pocket} engine @param {Pair} pair @param {number[]} logs */
function piecesOf(engine, pair, logs) {
  const { points, tokens } = sidesOf(engine, pair).target;
  return logs.map((logp, place) => {
    return { text: tokens[place + 1].text, gap: gapOf(tokens[place], tokens[place + 1], points), position: place + 1, logp };
  });
}

const STREAMS = /** @type {const} */ (["cross", "encoder", "decoder"]);
const EXTENSION = "the paper defines rollout for encoders only, and attnviz extends it to cross-attention";

/**
 * The maps of a run through a lens, and what a reader must know of them.
 * @param {Pocket} engine @param {Pair} pair @param {Pick<Pair, "encoding" | "decoder">} run
 * @param {string} lens @param {Off} off @param {"all" | number} explain
 * @returns {{streams: import("./maps.js").StreamMaps[], notes: string[], facts: [string, string][]}}
 */
function throughLens(engine, pair, run, lens, off, explain) {
  const { model } = engine;
  const rows = { encoder: run.encoding.shares, ...run.decoder.shares };
  const raw = Object.fromEntries(STREAMS.map((stream) => [stream, rows[stream].map((layer) => byHead(layer, model.sizes.heads))]));
  const [source, target] = [pair.source.ids.length + 1, pair.target.ids.length + 1];
  /** @param {Record<string, Float64Array[][]>} values @param {"share" | "signed"} kind @param {string} unit @param {[string, string][]} facts @param {string[]} more notes */
  const result = (values, kind, unit, facts, ...more) => {
    return { streams: STREAMS.map((stream) => ({ stream, values: values[stream], kind, unit })), notes: [...pair.notes, ...more], facts };
  };
  if (lens === "rollout") return result(rollout(raw, source, target), "share", "share of an input's identity (rollout)", [["steps", "lens rollout"]], EXTENSION);
  if (lens !== "effect") return result(raw, "share", RAW, []);
  const places = explain === "all" ? pair.target.ids.map((_, place) => place) : [explain - 1];
  if (!(places[0] in pair.target.ids)) throw new Error(`the target has no piece ${explain}: name one from 1 to ${target - 1}`);
  /** @type {Tape} */
  const tape = [];
  const { decoder } = engine.rerun(pair, off, tape);
  const states = new Float64Array(target * model.sizes.size);
  decoder.read.forEach(({ state }, row) => states.set(state, row * model.sizes.size));
  const slopes = slopesOf(model, tape, source, states, places.map((place) => [place, pair.target.ids[place]]));
  const effects = STREAMS.map((stream) => [stream, raw[stream].map((heads, layer) => {
    const steep = byHead(slopes[stream][layer], model.sizes.heads);
    const keys = stream === "decoder" ? target : source;
    return heads.map((weights, head) => {
      const effect = new Float64Array(weights.length);
      for (let at = 0; at < weights.length; at += keys) {
        effect.set(effectsOf(weights.subarray(at, at + keys), steep[head].subarray(at, at + keys)), at);
      }
      return effect;
    });
  })]);
  const output = explain === "all" ? `all ${places.length} tokens` : pair.target.tokens[places[0]].text;
  /** @type {[string, string][]} */
  const facts = [["output", output], ["read from", places.length > 2 ? `${places[0]} to ${places[places.length - 1]}` : places.join(", ")], ["steps", "lens effect"]];
  return result(Object.fromEntries(effects), "signed", "effect on log p of the output, nats (first order)", facts, "effects are estimates by the gradient");
}

/** Rows (heads, keys) as a matrix for each head. @param {Float64Array[]} rows @param {number} heads */
function byHead(rows, heads) {
  const columns = Math.max(...rows.map((row) => row.length / heads));
  return Array.from({ length: heads }, (_, head) => {
    const matrix = new Float64Array(rows.length * columns);
    rows.forEach((row, place) => {
      const keys = row.length / heads;
      matrix.set(rowOf(row, head, keys), place * columns);
    });
    return matrix;
  });
}

/** The effect of each single head, stream by stream, until another message comes. @param {Pocket} engine @param {Question} question */
async function headEffects(engine, question) {
  const { id, pane, source, target, to = null, off = NOTHING } = question;
  const pair = engine.read(source, target, to);
  const start = isNothing(off) ? pair : { ...pair, ...engine.rerun(pair, off) };
  const before = sumOf(engine.logProbabilities(pair, start.decoder));
  const { heads, encoder_layers, decoder_layers } = engine.model.sizes;
  for (const stream of STREAMS) {
    const values = [];
    for (let layer = 0; layer < (stream === "encoder" ? encoder_layers : decoder_layers); layer++) {
      values.push(/** @type {number[]} */ ([]));
      for (let head = 0; head < heads; head++) {
        await breath();
        // A click on a link does not wait for all effects, and does not end them.
        while (queue[0]?.kind === "why") await why(engine, /** @type {Question} */ (queue.shift()));
        if (queue.length) {
          // After what decided a word, the effects are measured still.
          if (queue.every(({ kind }) => kind === "explain")) queue.push(question);
          else scope.postMessage({ id, pane, dropped: true });
          return;
        }
        const more = { ...off, heads: [...off.heads, /** @type {[string, string, number]} */ ([stream, String(layer), head])] };
        const { decoder } = engine.rerun(pair, more);
        values[layer].push(before - sumOf(engine.logProbabilities(pair, decoder)));
      }
    }
    scope.postMessage({ id, pane, kind: "heads", stream, values });
  }
}
