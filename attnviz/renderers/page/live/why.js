/**
 * Why a head looks at a key and what it brings back, as `attnviz/features/writers/links.py`: what each part of
 * the model wrote into the query and the key of a score, with the norms held, and the tokens that
 * the link argues for.
 */

import { linearBack, normaliseBack } from "./backward.js";
import { printable, sidesOf } from "./maps.js";
import { NOTHING, linearOf, momentsOf, waveAt } from "./network.js";
import { rowOf, sumOf } from "../scripts/rows.js";

/** @import { Matrix, Model, Tape } from "./network.js" */
/** @import { Pair, Pocket } from "./pocket.js" */
/** @typedef {{writer: string, value: number, role: string}} Part */

const ARGUMENTS = 10;
/** The least number of rows with a key at the link's distance. */
const ROWS = 3;
/** Parts below this share of the largest are rounding. */
const NOISE = 1e-6;

/** @param {ArrayLike<number>} one @param {ArrayLike<number>} other of its length, or repeated along it */
function dot(one, other) {
  let sum = 0;
  for (let place = 0; place < one.length; place++) sum += one[place] * other[place % other.length];
  return sum;
}

/**
 * Each writer's part of a sum over positions of a side times a direction, the largest first.
 * @param {Model} model
 * @param {Tape} blocks of a stack of layers
 * @param {Tape[number]} reader the block of the stack whose norm is read
 * @param {string} linear the map from there to the side
 * @param {Matrix} direction
 * @param {string} main stream that needs no name
 * @returns {Part[]}
 */
function partsOf(model, blocks, reader, linear, direction, main) {
  const { size, heads } = model.sizes;
  const rows = reader.x.length / size;
  const norm = reader.kind === "norm" ? reader.name : `${reader.name}_norm`;
  const normSlope = linearBack(direction, rows, model.linear(linear));
  const slope = normaliseBack(model, norm, reader.x, normSlope, true);
  const own = blocks[0].kind;
  const waves = slope.map((_, at) => waveAt(size, Math.floor(at / size), at % size));
  const position = dot(slope, waves);
  let bias = dot(direction, model.linear(linear).bias) + dot(normSlope, model.array(`${norm}.bias`));
  /** @type {[string, string, number][]} */
  const parts = [["embedding", own, dot(slope, blocks[0].x) - position], ["position", own, position]];
  blocks.slice(0, blocks.indexOf(reader)).forEach((block, place) => {
    const layer = block.name.split(".")[1];
    if (block.kind === "feed_forward") {
      const after = blocks[place + 1].x;
      parts.push([`feed-forward ${layer}`, own, dot(slope, after.map((value, at) => value - block.x[at]))]);
      return;
    }
    const output = model.linear(`${block.name}.output`);
    const back = linearBack(slope, rows, output);
    const sums = new Float64Array(heads);
    back.forEach((value, at) => (sums[Math.floor(((at % size) * heads) / size)] += value * block.mix[at]));
    sums.forEach((sum, head) => parts.push([`${layer}.${head}`, block.kind, sum]));
    bias += dot(slope, output.bias);
  });
  parts.push(["bias", own, bias]);
  const least = NOISE * Math.max(...parts.map(([, , value]) => Math.abs(value)));
  return parts.filter(([, , value]) => Math.abs(value) > least).sort((one, other) => Math.abs(other[2]) - Math.abs(one[2]))
    .map(([name, stream, value]) => ({ writer: stream === main ? name : `${stream} ${name}`, value, role: "" }));
}

/** The weight at a link's distance that three quarters of the other rows exceed; null: too few. @param {Matrix[]} shares of a head @param {number} query @param {number} key */
function atDistance(shares, query, key) {
  const others = shares.map((share, row) => (row === query ? undefined : share[row + key - query]));
  const weights = others.filter((value) => value !== undefined).sort((one, other) => one - other);
  const place = (weights.length - 1) / 4;
  const [low, high] = [weights[Math.floor(place)], weights[Math.ceil(place)]];
  return weights.length < Math.max(ROWS, shares.length / 2) ? null : low + (high - low) * (place % 1);
}

/** @typedef {[string, string, string | number, number, number]} Link stream, layer, head, query, key */

/**
 * What meets in one head: its block with those before, its weights, and what it makes scores of.
 * @param {Pocket} engine @param {Pair} pair @param {Link} link
 */
function readLink(engine, pair, [stream, layer, headName, query, key]) {
  const { size, heads } = engine.model.sizes;
  const [width, head] = [size / heads, Number(headName)];
  /** @type {Tape} */
  const tape = [];
  engine.rerun(pair, NOTHING, tape);
  const ends = tape.findIndex(({ kind }) => kind === "norm") + 1;
  const [encoder, decoder] = [tape.slice(0, ends), tape.slice(ends)];
  const own = stream === "encoder" ? encoder : decoder;
  const block = own.filter(({ kind }) => kind === stream)[Number(layer)];
  const shares = block.shares.map((/** @type {Matrix} */ row) =>
    rowOf(row, head, row.length / heads));
  if (key >= shares[query].length) throw new Error("the query does not see this key, which comes later");
  /** @param {Matrix} rows @param {number} row */
  const slice = (rows, row) => rows.subarray(row * size + head * width, row * size + (head + 1) * width);
  const scale = 1 / Math.sqrt(width);
  const scores = Array.from(shares[query], (_, at) => dot(slice(block.query, query), slice(block.key, at)) * scale);
  return { encoder, decoder, own, block, head, shares, slice, scale, scores };
}

/**
 * One number from query and key to the change of log p when its link is cut, as Python's LinkSteps.
 * @param {Pocket} engine @param {Pair} pair @param {Link} link
 */
export function unfoldLink(engine, pair, link) {
  const [stream, layer, , query, key] = link;
  const { block, head, shares, slice, scale, scores } = readLink(engine, pair, link);
  const { decoder } = engine.rerun(pair, { ...NOTHING, links: [[stream, layer, head, query, key]] });
  const before = engine.logProbabilities(pair, pair.decoder);
  const { tokens } = sidesOf(engine, pair).target;
  return {
    query: Array.from(slice(block.query, query)),
    key: Array.from(slice(block.key, key)),
    value: Array.from(slice(block.value, key)),
    factor: scale,
    position: null,
    cap: null,
    scores: Array.from({ length: block.key.length / engine.model.sizes.size }, (_, at) => scores[at] ?? null),
    weights: Array.from(shares[query]),
    changes: engine.logProbabilities(pair, decoder).map((after, place) => [printable(engine.tokenizer.unicode, tokens[place + 1].text), after - before[place]]),
  };
}

/**
 * Why a head looks from a query at a key: the fields of Python's LinkReport that the page shows.
 * @param {Pocket} engine @param {Pair} pair @param {Link} link
 */
export function explainLink(engine, pair, link) {
  const [stream, , , query, key] = link;
  const { model } = engine;
  const { encoder, decoder, own, block, head, shares, slice, scale, scores } = readLink(engine, pair, link);
  const [across, visible] = [stream === "cross", scores.length];
  const [byQuery, byKey] = [new Float64Array(block.query.length), new Float64Array(block.key.length)];
  for (let at = 0; at < visible; at++) {
    const factor = ((at === key ? 1 : 0) - 1 / visible) * scale;
    slice(block.key, at).forEach((value, i) => (slice(byQuery, query)[i] += factor * value));
    slice(block.query, query).forEach((value, i) => (slice(byKey, at)[i] += factor * value));
  }
  const weight = shares[query][key];
  return {
    weight,
    score: scores[key],
    contrast: scores[key] - sumOf(scores) / visible,
    against: `the mean of the ${visible} visible keys`,
    query: partsOf(model, own, block, `${block.name}.query`, byQuery, stream),
    key: partsOf(model, across ? encoder : own, across ? encoder[encoder.length - 1] : block, `${block.name}.key`, byKey, stream),
    position: null,
    at_distance: across ? null : atDistance(shares, query, key),
    ...(stream === "encoder" ? { arguments: [], predicted: null } : contributions(engine, pair, decoder, block, query, slice(block.value, key).map((value) => value * weight), head)),
  };
}

/**
 * The tokens that a head's output at a row argues for and against, and what the model predicts.
 * @param {Pocket} engine @param {Pair} pair @param {Tape} decoder @param {Tape[number]} block
 * @param {number} row @param {Matrix} output @param {number} head
 */
function contributions({ model, tokenizer, spell: spellPiece }, pair, decoder, block, row, output, head) {
  const { size } = model.sizes;
  const last = decoder[decoder.length - 1];
  const mix = new Float64Array(size);
  mix.set(output, head * output.length);
  const none = new Float64Array(size);
  const update = linearOf(mix, 1, { ...model.linear(`${block.name}.output`), bias: new Float32Array(none) });
  const [, factor] = momentsOf(last.x, row * size, size);
  const scale = model.array(`${last.name}.weight`);
  const mean = dot(update, [1 / size]);
  const centre = (/** @type {Matrix} */ scores) => {
    const level = dot(scores, [1 / scores.length]);
    return scores.map((score) => score - level);
  };
  const from = model.scores(none, 1); // a bias is no link's
  const logits = centre(model.scores(update.map((value, i) => (value - mean) * factor * scale[i]), 1).map((score, id) => score - from[id]));
  const whole = centre(model.scores(pair.decoder.read[row].state, 1));
  const best = whole.indexOf(whole.reduce((one, other) => Math.max(one, other)));
  const order = Array.from(logits.keys()).sort((one, other) => logits[other] - logits[one]);
  /** @param {number} id */
  const spell = (id) => printable(tokenizer.unicode, spellPiece(id));
  return {
    arguments: [...order.slice(0, ARGUMENTS), ...order.slice(-ARGUMENTS)].map((id) => ({ token: spell(id), logit: logits[id] })),
    predicted: [spell(best), 1 / whole.reduce((sum, score) => sum + Math.exp(score - whole[best]), 0)],
    argument: logits[best],
    rank: order.indexOf(best) + 1,
    logit: whole[best],
  };
}
