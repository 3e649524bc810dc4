/**
 * How log p of the output changes with each attention weight: the backward pass of activations, and
 * the lenses that are made of a run (`attnviz/features/lenses`).
 */

import { GELU, momentsOf } from "./network.js";
import { rowOf, sumOf } from "../scripts/rows.js";

/** @import { Model, Matrix, Tape } from "./network.js" */

/** Slopes of outputs back through a linear map. @param {Matrix} dy @param {number} rows @param {import("./network.js").Linear} map */
export function linearBack(dy, rows, { weight, inputs, outputs }) {
  const dx = new Float64Array(rows * inputs);
  for (let row = 0; row < rows; row++) {
    const to = row * inputs;
    for (let output = 0; output < outputs; output += 4) {
      const at = row * outputs + output;
      const d0 = dy[at], d1 = dy[at + 1], d2 = dy[at + 2], d3 = dy[at + 3];
      const w0 = output * inputs;
      const w1 = w0 + inputs, w2 = w1 + inputs, w3 = w2 + inputs;
      for (let i = 0; i < inputs; i++) {
        dx[to + i] += d0 * weight[w0 + i] + d1 * weight[w1 + i] + d2 * weight[w2 + i] + d3 * weight[w3 + i];
      }
    }
  }
  return dx;
}

/** @param {Matrix} to @param {Matrix} more */
function add(to, more) {
  for (let place = 0; place < to.length; place++) to[place] += more[place];
}

/** Slopes back through a normalisation, or through one whose statistics stay fixed. @param {Model} model @param {string} name @param {Matrix} x @param {Matrix} dy */
export function normaliseBack(model, name, x, dy, isFixed = false) {
  const scale = model.array(`${name}.weight`);
  const size = scale.length;
  const dx = new Float64Array(x.length);
  for (let at = 0; at < x.length; at += size) {
    const [mean, factor] = momentsOf(x, at, size);
    let [level, tilt] = [0, 0];
    for (let i = 0; i < size; i++) {
      const slope = dy[at + i] * scale[i];
      level += slope / size;
      if (!isFixed) tilt += (slope * (x[at + i] - mean) * factor) / size;
    }
    for (let i = 0; i < size; i++) {
      dx[at + i] = (dy[at + i] * scale[i] - level - (x[at + i] - mean) * factor * tilt) * factor;
    }
  }
  return dx;
}

/** Slopes back through the activation. @param {Matrix} x @param {Matrix} dy */
function geluBack(x, dy) {
  return x.map((v, place) => {
    const tanh = Math.tanh(GELU * (v + 0.044715 * v ** 3));
    return dy[place] * (0.5 * (1 + tanh) + 0.5 * v * (1 - tanh ** 2) * GELU * (1 + 0.134145 * v * v));
  });
}

/**
 * Slopes back through an attention between its projections, and those by its weights.
 * @param {Model} model
 * @param {Tape[number]} block
 * @param {Matrix} dMixed
 */
function attendBack(model, { query, key, value, shares, silent }, dMixed) {
  const { size, heads } = model.sizes;
  const width = size / heads;
  const [dQuery, dKey, dValue] = [query, key, value].map((one) => new Float64Array(one.length));
  const slopes = shares.map((/** @type {Matrix} */ share, /** @type {number} */ row) => {
    const keys = share.length / heads;
    const slope = new Float64Array(share.length);
    for (let head = 0; head < heads; head++) {
      if (silent.has(head)) continue;
      const from = row * size + head * width;
      let mean = 0;
      for (let k = 0; k < keys; k++) {
        const at = k * size + head * width;
        const weight = share[head * keys + k];
        let dot = 0;
        for (let i = 0; i < width; i++) {
          dot += dMixed[from + i] * value[at + i];
          dValue[at + i] += weight * dMixed[from + i];
        }
        slope[head * keys + k] = dot;
        mean += weight * dot;
      }
      for (let k = 0; k < keys; k++) {
        const at = k * size + head * width;
        const score = (share[head * keys + k] * (slope[head * keys + k] - mean)) / Math.sqrt(width);
        for (let i = 0; i < width; i++) {
          dQuery[from + i] += score * key[at + i];
          dKey[at + i] += score * query[from + i];
        }
      }
    }
    return slope;
  });
  return { dQuery, dKey, dValue, slopes };
}

/**
 * The slopes of the sum of log p of some pieces of the target by each attention weight.
 * @param {Model} model
 * @param {Tape} tape of the encoder and of a decoder that read the whole target at once
 * @param {number} source positions of it
 * @param {Matrix} states of the decoder
 * @param {[number, number][]} outputs row that a piece is predicted from, its id
 * @returns {Record<string, Matrix[][]>} by stream, of each layer and query (heads, keys)
 */
export function slopesOf(model, tape, source, states, outputs) {
  const { size, vocabulary } = model.sizes;
  const embedding = model.linear("embedding");
  const rows = states.length / size;
  const dMemory = new Float64Array(source * size);
  const dScores = new Float64Array(outputs.length * vocabulary);
  outputs.forEach(([row, id], place) => {
    const scores = model.scores(rowOf(states, row, size), 1);
    const top = scores.reduce((one, other) => Math.max(one, other));
    const total = scores.reduce((sum, score) => sum + Math.exp(score - top), 0);
    scores.forEach((score, piece) => (dScores[place * vocabulary + piece] = -Math.exp(score - top) / total));
    dScores[place * vocabulary + id] += 1;
  });
  const outputSlopes = linearBack(dScores, outputs.length, embedding);
  /** @type {Matrix} */
  let dx = new Float64Array(rows * size);
  outputs.forEach(([row], place) => add(rowOf(dx, row, size), rowOf(outputSlopes, place, size)));
  /** @type {Record<string, Matrix[][]>} */
  const result = { encoder: [], decoder: [], cross: [] };
  for (const block of tape.toReversed()) {
    const count = block.x.length / size;
    if (block.kind === "norm") {
      // The encoder's turn comes when all of the decoder has told what it wants of its memory.
      dx = normaliseBack(model, block.name, block.x, block.name === "encoder_norm" ? dMemory : dx);
    } else if (block.kind === "feed_forward") {
      const inner = linearBack(dx, count, model.linear(`${block.name}.feed_forward.out`));
      const outer = linearBack(geluBack(block.inner, inner), count, model.linear(`${block.name}.feed_forward.in`));
      add(dx, normaliseBack(model, `${block.name}.feed_forward_norm`, block.x, outer));
    } else {
      const mix = linearBack(dx, count, model.linear(`${block.name}.output`));
      const { dQuery, dKey, dValue, slopes } = attendBack(model, block, mix);
      result[block.kind].unshift(slopes);
      const normal = linearBack(dQuery, count, model.linear(`${block.name}.query`));
      const target = block.kind === "cross" ? dMemory : normal;
      add(target, linearBack(dKey, dKey.length / size, model.linear(`${block.name}.key`)));
      add(target, linearBack(dValue, dValue.length / size, model.linear(`${block.name}.value`)));
      add(dx, normaliseBack(model, `${block.name}_norm`, block.x, normal));
    }
  }
  return result;
}

/**
 * The first-order effect of each link of a row on log p, in nats; NaN where nothing else is seen.
 * @param {Matrix} weights of a row
 * @param {Matrix} slopes
 * @returns {Matrix}
 */
export function effectsOf(weights, slopes) {
  // What is left beside a weight is added up, so that it is exact however little.
  return weights.map((weight, key) => {
    let [rest, mean] = [0, 0];
    weights.forEach((other, place) => {
      if (place === key) return;
      rest += other;
      mean += other * slopes[place];
    });
    return rest > 0 ? weight * (slopes[key] - mean / rest) : NaN;
  });
}

/** (one × other) of square or fitting matrices. @param {Matrix} one @param {Matrix} other @param {number} inner */
function product(one, other, inner) {
  const [rows, columns] = [one.length / inner, other.length / inner];
  const result = new Float64Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < inner; i++) {
      for (let column = 0; column < columns; column++) {
        result[row * columns + column] += one[row * inner + i] * other[i * columns + column];
      }
    }
  }
  return result;
}

/** The mean over heads. @param {Matrix[]} heads @returns {Matrix} */
const meanOf = (heads) => heads[0].map((_, cell) => heads.reduce((sum, head) => sum + head[cell], 0) / heads.length);

/** Half attention, half residual, made to sum to 1. @param {Matrix[]} heads @param {number} count @returns {Matrix} */
function withResidual(heads, count) {
  const mix = meanOf(heads).map((value, cell) => value + (Math.floor(cell / count) === cell % count ? 1 : 0));
  const sums = Array.from({ length: count }, (_, row) => sumOf(rowOf(mix, row, count)));
  return mix.map((value, cell) => value / sums[Math.floor(cell / count)]);
}

/**
 * How much of each input is in each position after each layer (Abnar and Zuidema 2020).
 * @param {Record<string, Matrix[][]>} maps by stream, of each layer and head
 * @param {number} source positions
 * @param {number} target positions
 * @returns {Record<string, Matrix[][]>}
 */
export function rollout({ encoder, decoder, cross }, source, target) {
  const identity = (/** @type {number} */ count) => Float64Array.from({ length: count * count }, (_, cell) => (cell % (count + 1) ? 0 : 1));
  let read = identity(source);
  const encoderMaps = encoder.map((heads) => (read = product(withResidual(heads, source), read, source)));
  let own = identity(target);
  let across = new Float64Array(target * source);
  const layers = decoder.map((heads, layer) => {
    const step = withResidual(heads, target);
    const weights = meanOf(cross[layer]);
    const masses = Array.from({ length: target }, (_, row) =>
      rowOf(weights, row, source).reduce((one, other) => one + other, 1));
    const direct = product(weights, read, source);
    own = product(step, own, target).map((value, cell) => value / masses[Math.floor(cell / target)]);
    across = product(step, across, target).map((value, cell) => (value + direct[cell]) / masses[Math.floor(cell / source)]);
    return [own, across];
  });
  return { cross: layers.map(([, one]) => [one]), encoder: encoderMaps.map((one) => [one]), decoder: layers.map(([one]) => [one]) };
}
