/**
 * The engine's side of the messages: it answers questions about a sentence and its translation.
 *
 * Newer questions make older ones obsolete that wait for the same pane.
 */

import { gapOf, pageDocument, sidesOf } from "./maps.js";
import { NOTHING, openModel } from "./network.js";
import { createPocket, isNothing } from "./pocket.js";

/** @typedef {import("./network.js").Off} Off */
/**
 * @typedef {object} Question
 * @property {number} id
 * @property {"attend" | "heads"} kind
 * @property {number} [pane]
 * @property {string} source
 * @property {string | null} target
 * @property {string} lens
 * @property {Off} off
 * @property {string | null} [to]
 * @property {"all" | number | null} [explain]
 */

const RAW = "share of a row's attention";
const scope = /** @type {any} */ (self);
/** @type {import("./pocket.js").Pocket | null} */
let pocket = null;
/** @type {Question[]} */
let waiting = [];
let busy = false;

/** @param {MessageEvent} event */
scope.onmessage = (event) => {
  const message = event.data;
  if (message.kind === "open") {
    answered(0, undefined, () => {
      pocket = createPocket(openModel(message.packed));
    });
  } else {
    const outdated = (/** @type {Question} */ one) => one.kind === "heads" || (message.kind === "attend" && one.pane === message.pane);
    for (const { id, pane } of waiting.filter(outdated)) scope.postMessage({ id, pane, dropped: true });
    waiting = [...waiting.filter((one) => !outdated(one)), message];
  }
  if (!busy) work();
};

/** Lets messages in. */
const breath = () => new Promise((resolve) => setTimeout(resolve, 0));

async function work() {
  busy = true;
  for (await breath(); pocket && waiting.length; await breath()) {
    const question = /** @type {Question} */ (waiting.shift());
    const engine = pocket;
    if (question.kind === "heads") await headEffects(engine, question);
    else answered(question.id, question.pane, () => attend(engine, question));
  }
  busy = false;
}

/** Runs a step and tells what went wrong. @param {number} id @param {number | undefined} pane @param {() => void} step */
function answered(id, pane, step) {
  try {
    step();
    return true;
  } catch (error) {
    scope.postMessage({ id, pane, error: error instanceof Error ? error.message : String(error) });
    return false;
  }
}

/** @param {import("./pocket.js").Pocket} engine @param {Question} question */
function attend(engine, { id, pane, source, target, lens, off = NOTHING, to = null, explain = null }) {
  const started = performance.now();
  const pair = engine.read(source, target, to);
  const before = engine.logProbabilities(pair, pair.decoder);
  let run = pair;
  let changed = null;
  if (!isNothing(off)) {
    const other = engine.changed(pair, off);
    run = { ...pair, ...other };
    const after = engine.logProbabilities(pair, other.decoder);
    changed = {
      pieces: piecesOf(engine, pair, after),
      total: sum(after),
      effect: sum(before) - sum(after),
    };
  }
  const found = ["cross", "encoder", "decoder"].map((stream) => foundIn(engine, run, stream));
  const told = { notes: pair.notes, facts: [] };
  const { document, codes } = pageDocument(engine, pair, found, "", told);
  if (changed) {
    const { written } = engine.write(run.decoder, pair.source.ids.length + 1, pair.language);
    Object.assign(changed, { written });
  }
  const answer = {
    language: pair.language === "en" ? "fr" : "en",
    to: pair.language,
    written: pair.written,
    pieces: piecesOf(engine, pair, before),
    changed,
    seconds: (performance.now() - started) / 1000,
    notes: pair.notes,
  };
  scope.postMessage({ id, pane, document, codes, answer }, Array.from(codes.values(), (one) => one.buffer));
}

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);

/** @param {import("./pocket.js").Pocket} engine @param {import("./pocket.js").Read} pair @param {number[]} logs */
function piecesOf(engine, pair, logs) {
  const { points, tokens } = sidesOf(engine, pair).target;
  return logs.map((logp, place) => {
    return { text: tokens[place + 1].text, gap: gapOf(tokens[place], tokens[place + 1], points), logp };
  });
}

/**
 * @param {import("./pocket.js").Pocket} engine
 * @param {Pick<import("./pocket.js").Read, "encoded" | "decoder">} run
 * @param {string} stream
 * @returns {import("./maps.js").Found}
 */
function foundIn({ model }, { encoded, decoder }, stream) {
  const layers = stream === "encoder" ? encoded.shares : decoder.shares[/** @type {"cross" | "decoder"} */ (stream)];
  const { heads } = model.sizes;
  const values = layers.map((rows) => {
    const columns = Math.max(...rows.map((row) => row.length / heads));
    return Array.from({ length: heads }, (_, head) => {
      const matrix = new Float64Array(rows.length * columns);
      rows.forEach((row, place) => {
        const seen = row.length / heads;
        matrix.set(row.subarray(head * seen, (head + 1) * seen), place * columns);
      });
      return matrix;
    });
  });
  return { stream, values, kind: "share", unit: RAW };
}

/** The effect of each single head, stream by stream, until another message comes. @param {import("./pocket.js").Pocket} engine @param {Question} question */
async function headEffects(engine, { id, pane, source, target, to = null, off = NOTHING }) {
  const pair = engine.read(source, target, to);
  const start = isNothing(off) ? pair : { ...pair, ...engine.changed(pair, off) };
  const before = sum(engine.logProbabilities(pair, start.decoder));
  const { heads, encoder_layers, decoder_layers } = engine.model.sizes;
  for (const stream of ["cross", "encoder", "decoder"]) {
    const values = [];
    for (let layer = 0; layer < (stream === "encoder" ? encoder_layers : decoder_layers); layer++) {
      values.push(/** @type {number[]} */ ([]));
      for (let head = 0; head < heads; head++) {
        await breath();
        if (waiting.length) {
          scope.postMessage({ id, pane, dropped: true });
          return;
        }
        const more = { ...off, heads: [...off.heads, /** @type {[string, string, number]} */ ([stream, String(layer), head])] };
        const { decoder } = engine.changed(pair, more);
        values[layer].push(before - sum(engine.logProbabilities(pair, decoder)));
      }
    }
    scope.postMessage({ id, pane, kind: "heads", stream, values });
  }
}
