/**
 * The pocket model's forward pass, as `attnviz/models/pocket/model.py`, over typed arrays.
 *
 * Weights are float32, everything else double: so the processor converts the fewest numbers. A
 * matrix of positions lies row by row. What is switched off follows `core/effects.py`.
 */

import { rowOf } from "../scripts/rows.js";

/** @typedef {Float64Array} Matrix */
/** @typedef {{weight: Float32Array, bias: Float32Array, inputs: number, outputs: number}} Linear */
/** @typedef {{vocabulary: number, size: number, heads: number, feed_forward: number,
 *   encoder_layers: number, decoder_layers: number}} Sizes */
/** @typedef {ReturnType<typeof openModel>} Model */
/** @typedef {Matrix[]} Shares of a layer, for each query (heads, keys) */
/** @typedef {[string, string, string | number][]} HeadsOff stream, layer, head */
/** @typedef {[string, string | null, string | number | null, number, number][]} LinksOff */
/** @typedef {Map<string, Matrix>} Outputs of all heads of a layer, by its stream and number, one or more rows */
/** @typedef {{heads: HeadsOff, links: LinksOff, tokens: [string, number][], rows?: [...HeadsOff[number], number][], instead?: Outputs}} Off rows: heads at one query */
/** @typedef {{kind: string, name: string, x: Matrix, [field: string]: any}[]} Tape what a backward pass needs of each block */

/** @type {Off} */
export const NOTHING = { heads: [], links: [], tokens: [] };
/** @type {Record<string, [string, string]>} whose tokens are queries and keys of a stream */
export const SIDES = {
  cross: ["target", "source"],
  encoder: ["source", "source"],
  decoder: ["target", "target"],
};

/** The model in a page's bytes, see packed.py. @param {Uint8Array} bytes */
export function openModel(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const length = view.getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  /** @type {[string, number, number, number][]} of a vector only name and length */
  const tensors = facts.tensors;
  let at = 4 + length;
  const numbers = tensors.map(([, rows]) => new Float32Array(bytes.slice(at, (at += 4 * rows)).buffer));
  let low = at + tensors.reduce((sum, [, rows, columns]) => sum + (columns ? rows * columns : 0), 0);
  /** @type {Map<string, Float32Array>} */
  const arrays = new Map();
  tensors.forEach(([name, rows, columns, bits], place) => {
    if (!columns) {
      arrays.set(name, numbers[place]);
      return;
    }
    const before = arrays.get(name) ?? [];
    const weight = new Float32Array(before.length + rows * columns);
    weight.set(before);
    unpack(bytes, at, low, bits - 8, numbers[place], weight.subarray(before.length));
    at += rows * columns;
    low += ((bits - 8) * rows * columns) / 8;
    arrays.set(name, weight);
  });
  /** @param {string} name @returns {Float32Array} */
  const array = (name) => /** @type {Float32Array} */ (arrays.get(name));
  /** @type {Map<string, Linear>} */
  const maps = new Map();
  for (const [name, , inputs] of tensors) {
    if (!inputs) continue;
    const outputs = array(name).length / inputs;
    const short = name.replace(/\.weight$/, "");
    const bias = arrays.get(`${short}.bias`) ?? new Float32Array(outputs);
    maps.set(short, { weight: array(name), bias, inputs, outputs });
  }
  /** @param {string} name */
  const linear = (name) => /** @type {Linear} */ (maps.get(name));
  /** Scores of every piece for states. @param {Matrix} states @param {number} rows */
  const scores = (states, rows) => linearOf(states, rows, linear("embedding"));
  return { facts, sizes: /** @type {Sizes} */ (facts.sizes), array, linear, scores };
}

/**
 * Weights out of their high bytes, planes of their low bits, and the scale of each row.
 * @param {Uint8Array} bytes
 * @param {number} high where they begin
 * @param {number} low
 * @param {number} planes
 * @param {Float32Array} scales
 * @param {Float32Array} weight what is filled; a row is a multiple of 8
 */
function unpack(bytes, high, low, planes, scales, weight) {
  const [columns, step] = [weight.length / scales.length, weight.length / 8];
  for (let first = 0, byte = low; first < weight.length; first += 8, byte++) {
    const scale = scales[Math.floor(first / columns)];
    const [a, b, c, d] = [bytes[byte], bytes[byte + step], planes > 2 ? bytes[byte + 2 * step] : 0, planes > 3 ? bytes[byte + 3 * step] : 0];
    for (let bit = 0; bit < 8; bit++) {
      const more = ((a >> bit) & 1) | (((b >> bit) & 1) << 1) | (((c >> bit) & 1) << 2) | (((d >> bit) & 1) << 3);
      weight[first + bit] = (((bytes[high + first + bit] << 24) >> (24 - planes)) | more) * scale;
    }
  }
}

/**
 * Rows (rows, inputs) through a linear map, (rows, outputs); blocks of two rows by four outputs.
 * @param {Matrix} x
 * @param {number} rows
 * @param {Linear} map
 * @returns {Matrix}
 */
export function linearOf(x, rows, { weight, bias, inputs, outputs }) {
  const y = new Float64Array(rows * outputs);
  for (let output = 0; output < outputs; output += 4) {
    const w0 = output * inputs;
    const w1 = w0 + inputs, w2 = w1 + inputs, w3 = w2 + inputs;
    const b0 = bias[output], b1 = bias[output + 1], b2 = bias[output + 2], b3 = bias[output + 3];
    let row = 0;
    for (; row + 1 < rows; row += 2) {
      const x0 = row * inputs;
      const x1 = x0 + inputs;
      let p0 = b0, p1 = b1, p2 = b2, p3 = b3;
      let q0 = b0, q1 = b1, q2 = b2, q3 = b3;
      for (let i = 0; i < inputs; i++) {
        const p = x[x0 + i], q = x[x1 + i];
        const k0 = weight[w0 + i], k1 = weight[w1 + i], k2 = weight[w2 + i], k3 = weight[w3 + i];
        p0 += p * k0;
        p1 += p * k1;
        p2 += p * k2;
        p3 += p * k3;
        q0 += q * k0;
        q1 += q * k1;
        q2 += q * k2;
        q3 += q * k3;
      }
      const at = row * outputs + output;
      y[at] = p0;
      y[at + 1] = p1;
      y[at + 2] = p2;
      y[at + 3] = p3;
      y[at + outputs] = q0;
      y[at + outputs + 1] = q1;
      y[at + outputs + 2] = q2;
      y[at + outputs + 3] = q3;
    }
  }
  if (rows % 2) lastRow(x, rows - 1, y, { weight, bias, inputs, outputs });
  return y;
}

/** A row alone, as in writing piece by piece: eight outputs at once. @param {Matrix} x @param {number} row @param {Matrix} y @param {Linear} map */
function lastRow(x, row, y, { weight, bias, inputs, outputs }) {
  const x0 = row * inputs;
  for (let output = 0, at = row * outputs; output < outputs; output += 8, at += 8) {
    const w0 = output * inputs;
    const w1 = w0 + inputs, w2 = w1 + inputs, w3 = w2 + inputs, w4 = w3 + inputs;
    const w5 = w4 + inputs, w6 = w5 + inputs, w7 = w6 + inputs;
    let p0 = 0, p1 = 0, p2 = 0, p3 = 0, p4 = 0, p5 = 0, p6 = 0, p7 = 0;
    for (let i = 0; i < inputs; i++) {
      const p = x[x0 + i];
      p0 += p * weight[w0 + i];
      p1 += p * weight[w1 + i];
      p2 += p * weight[w2 + i];
      p3 += p * weight[w3 + i];
      p4 += p * weight[w4 + i];
      p5 += p * weight[w5 + i];
      p6 += p * weight[w6 + i];
      p7 += p * weight[w7 + i];
    }
    const sums = [p0, p1, p2, p3, p4, p5, p6, p7];
    for (let place = 0; place < 8; place++) y[at + place] = sums[place] + bias[output + place];
  }
}

/** @param {Matrix} one @param {Matrix} other @returns {Matrix} */
export function sum(one, other) {
  const sums = new Float64Array(one.length);
  for (let place = 0; place < one.length; place++) sums[place] = one[place] + other[place];
  return sums;
}

/** Layer normalisation. @param {Model} model @param {string} name @param {Matrix} x @returns {Matrix} */
export function normalise(model, name, x) {
  const [scale, shift] = [model.array(`${name}.weight`), model.array(`${name}.bias`)];
  const size = scale.length;
  const y = new Float64Array(x.length);
  for (let at = 0; at < x.length; at += size) {
    const [mean, factor] = momentsOf(x, at, size);
    for (let i = 0; i < size; i++) y[at + i] = (x[at + i] - mean) * factor * scale[i] + shift[i];
  }
  return y;
}

/** The mean of a row, and 1 over its standard deviation. @param {Matrix} x @param {number} at @param {number} size */
export function momentsOf(x, at, size) {
  let mean = 0;
  for (let i = 0; i < size; i++) mean += x[at + i];
  mean /= size;
  let variance = 0;
  for (let i = 0; i < size; i++) variance += (x[at + i] - mean) ** 2;
  return [mean, 1 / Math.sqrt(variance / size + 1e-5)];
}

/** What a position adds to a feature. @param {number} size @param {number} place @param {number} i */
export function waveAt(size, place, i) {
  const angle = place / 10000 ** ((i - (i % 2)) / size);
  return Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
}

export const GELU = Math.sqrt(2 / Math.PI);

/** @param {Matrix} x @returns {Matrix} */
const gelu = (x) => x.map((v) => 0.5 * v * (1 + Math.tanh(GELU * (v + 0.044715 * v * v * v))));

/** Pieces as the layers take them. @param {Model} model @param {number[]} ids @param {number} first its position @returns {Matrix} */
export function embed(model, ids, first) {
  const { size } = model.sizes;
  const rows = model.linear("embedding").weight;
  const x = new Float64Array(ids.length * size);
  const scale = 0.5 * Math.sqrt(size);
  ids.forEach((id, place) => {
    for (let i = 0; i < size; i++) {
      x[place * size + i] = rows[id * size + i] * scale + waveAt(size, first + place, i);
    }
  });
  return x;
}

/**
 * Attention of rows over keys and values; a cut key has weight 0 and the row is made to sum to 1
 * again, a head that is off puts out zeros or a row of what stands instead.
 * @param {Model} model
 * @param {[string, number]} place stream and layer
 * @param {Matrix} query of the new rows
 * @param {Matrix} key of all positions
 * @param {Matrix} value
 * @param {number} first position of the first row
 * @param {Off} off
 * @returns {{mix: Matrix, shares: Shares, silent: Set<number>}}
 */
function attend(model, [stream, layer], query, key, value, first, off) {
  const { size, heads } = model.sizes;
  const width = size / heads;
  const rows = query.length / size;
  const mix = new Float64Array(query.length);
  const silent = new Set(off.heads.filter((at) => at[0] === stream && +at[1] === layer).map((at) => +at[2]));
  const quiet = new Set(off.rows?.filter((at) => at[0] === stream && +at[1] === layer).map((at) => at[3] * heads + +at[2]));
  const instead = off.instead?.get(`${stream} ${layer}`);
  const shares = [];
  for (let row = 0; row < rows; row++) {
    const visible = stream === "decoder" ? first + row + 1 : key.length / size;
    const share = new Float64Array(heads * visible);
    const cuts = cutsOf(off, stream, layer, first + row);
    for (let head = 0; head < heads; head++) {
      const from = row * size + head * width;
      const at = head * visible;
      const mute = silent.has(head) || quiet.has((first + row) * heads + head);
      let top = -Infinity;
      for (let k = 0; k < visible; k++) {
        let score = 0;
        for (let i = 0; i < width; i++) score += query[from + i] * key[k * size + head * width + i];
        share[at + k] = score / Math.sqrt(width);
      }
      for (const [one, k] of cuts) if ((one === null || one === head) && k < visible) share[at + k] = -Infinity;
      for (let k = 0; k < visible; k++) if (share[at + k] > top) top = share[at + k];
      let total = 0;
      for (let k = 0; k < visible; k++) total += share[at + k] = Math.exp(share[at + k] - top);
      for (let k = 0; k < visible; k++) {
        // NaN where everything was hidden, as in Python.
        const weight = (share[at + k] /= total);
        if (mute) continue;
        for (let i = 0; i < width; i++) mix[from + i] += weight * value[k * size + head * width + i];
      }
      if (instead && mute) {
        const other = ((first + row) * size) % instead.length + head * width;
        mix.set(instead.subarray(other, other + width), from);
      }
    }
    shares.push(share);
  }
  return { mix, shares, silent };
}

/**
 * The keys that are hidden from a query: [head or null for all, key].
 * @param {Off} off
 * @param {string} stream
 * @param {number} layer
 * @param {number} query
 * @returns {[number | null, number][]}
 */
function cutsOf(off, stream, layer, query) {
  const [queries, keys] = SIDES[stream];
  /** @type {[number | null, number][]} */
  const cuts = [];
  for (const [own, at, head, row, key] of off.links) {
    if (own === stream && (at === null || +at === layer) && row === query) cuts.push([head === null ? null : +head, key]);
  }
  for (const [side, position] of off.tokens) {
    if (side === keys && !(queries === keys && position === query)) cuts.push([null, position]);
  }
  return cuts;
}

/** What is attended to. @param {Model} model @param {string} name @param {Matrix} x */
function keysAndValues(model, name, x) {
  const [key, value] = ["key", "value"].map((side) => linearOf(x, x.length / model.sizes.size, model.linear(`${name}.${side}`)));
  return { key, value };
}

/**
 * Rows behind an attention block, and its weights.
 * @param {Model} model
 * @param {[string, number]} place stream and layer
 * @param {Matrix} x
 * @param {(name: string, normal: Matrix) => {key: Matrix, value: Matrix}} readKeys keys and values
 * @param {number} first position of the first row
 * @param {Off} off
 * @param {Tape | null} tape
 * @returns {[Matrix, Shares]}
 */
function attention(model, [stream, layer], x, readKeys, first, off, tape) {
  const name = stream === "cross" ? `decoder.${layer}.cross_attention` : `${stream}.${layer}.self_attention`;
  const rows = x.length / model.sizes.size;
  const normal = normalise(model, `${name}_norm`, x);
  const query = linearOf(normal, rows, model.linear(`${name}.query`));
  const { key, value } = readKeys(name, normal);
  const parts = attend(model, [stream, layer], query, key, value, first, off);
  tape?.push({ kind: stream, name, x, query, key, value, ...parts });
  return [sum(x, linearOf(parts.mix, rows, model.linear(`${name}.output`))), parts.shares];
}

/** What a layer's feed-forward block adds. @param {Model} model @param {string} layer @param {Matrix} x @param {Tape | null} tape */
function feedForward(model, layer, x, tape) {
  const rows = x.length / model.sizes.size;
  const inner = linearOf(normalise(model, `${layer}.feed_forward_norm`, x), rows, model.linear(`${layer}.feed_forward.in`));
  tape?.push({ kind: "feed_forward", name: layer, x, inner });
  return sum(x, linearOf(gelu(inner), rows, model.linear(`${layer}.feed_forward.out`)));
}

/** A text through the encoder. @param {Model} model @param {number[]} ids @param {Off} off @param {Tape | null} tape */
export function encode(model, ids, off = NOTHING, tape = null) {
  let x = embed(model, ids, 0);
  const shares = [];
  const readKeys = (/** @type {string} */ name, /** @type {Matrix} */ normal) => keysAndValues(model, name, normal);
  for (let layer = 0; layer < model.sizes.encoder_layers; layer++) {
    const [next, share] = attention(model, ["encoder", layer], x, readKeys, 0, off, tape);
    x = feedForward(model, `encoder.${layer}`, next, tape);
    shares.push(share);
  }
  tape?.push({ kind: "norm", name: "encoder_norm", x });
  return { memory: normalise(model, "encoder_norm", x), shares };
}

/**
 * The decoder over an encoder's memory: it reads pieces and remembers what it made of each.
 * @param {Model} model
 * @param {Matrix} memory
 * @param {Off} off
 * @param {Tape | null} tape
 */
export function createDecoder(model, memory, off = NOTHING, tape = null) {
  const { size, decoder_layers: layers } = model.sizes;
  const cross = Array.from({ length: layers }, (_, layer) => keysAndValues(model, `decoder.${layer}.cross_attention`, memory));
  const own = cross.map(() => ({ key: new Float64Array(0), value: new Float64Array(0) }));
  const shares = {
    decoder: /** @type {Shares[]} */ (cross.map(() => [])),
    cross: /** @type {Shares[]} */ (cross.map(() => [])),
  };
  /** @type {number[]} */
  const ids = [];
  /** @type {{state: Matrix, total: number, best: number}[]} of each position; 0 and −1: not yet known */
  const read = [];

  /** @param {number[]} more pieces */
  function push(more) {
    const [first, rows] = [ids.length, more.length];
    let x = embed(model, more, first);
    ids.push(...more);
    for (let layer = 0; layer < layers; layer++) {
      const [one, near] = attention(model, ["decoder", layer], x, (name, normal) => {
        const { key, value } = keysAndValues(model, name, normal);
        return (own[layer] = { key: joinRows(own[layer].key, key), value: joinRows(own[layer].value, value) });
      }, first, off, tape);
      const [two, far] = attention(model, ["cross", layer], one, () => cross[layer], first, off, tape);
      x = feedForward(model, `decoder.${layer}`, two, tape);
      shares.decoder[layer].push(...near);
      shares.cross[layer].push(...far);
    }
    tape?.push({ kind: "norm", name: "decoder_norm", x });
    const states = normalise(model, "decoder_norm", x);
    for (let row = 0; row < rows; row++) {
      read.push({ state: rowOf(states, row, size), total: NaN, best: -1 });
    }
  }

  /** Forgets all but the first positions. @param {number} length */
  function keep(length) {
    ids.length = read.length = length;
    for (let layer = 0; layer < layers; layer++) {
      shares.decoder[layer].length = shares.cross[layer].length = length;
      own[layer] = { key: own[layer].key.slice(0, length * size), value: own[layer].value.slice(0, length * size) };
    }
  }

  /** Makes the decoder have read exactly these pieces. @param {number[]} target */
  function turnTo(target) {
    let same = 0;
    while (same < ids.length && same < target.length && ids[same] === target[same]) same++;
    if (same < ids.length) keep(same);
    if (same < target.length) push(target.slice(same));
  }

  /** What comes after some positions, of the first pieces. @param {number[]} places @param {number} pieces */
  function scoreAfter(places, pieces) {
    const states = new Float64Array(places.length * size);
    places.forEach((place, row) => states.set(read[place].state, row * size));
    const scores = linearOf(states, places.length, { ...model.linear("embedding"), outputs: pieces });
    return places.map((_, row) => sumScores(rowOf(scores, row, pieces)));
  }

  /** Scores every piece at the positions from one on whose totals nobody knows yet. @param {number} first */
  function predict(first) {
    const places = read.map((_, place) => place).filter((place) => place >= first && read[place].best < 0);
    scoreAfter(places, model.sizes.vocabulary).forEach((sums, row) => Object.assign(read[places[row]], sums));
  }

  /** The likeliest piece after a position. @param {number} place */
  function next(place) {
    if (read[place].best < 0) predict(place);
    return read[place].best;
  }

  /** The log-probability of a piece after a position. @param {number} place @param {number} id */
  function logProbability(place, id) {
    if (read[place].best < 0) predict(0);
    return scoreOf(place, id) - read[place].total;
  }

  /** The log-probabilities of every piece after a position. @param {number} place */
  function logsAfter(place) {
    const scores = linearOf(read[place].state, 1, model.linear("embedding"));
    const { total } = sumScores(scores);
    return scores.map((score) => score - total);
  }

  /** @param {number} place @param {number} id */
  function scoreOf(place, id) {
    const { state } = read[place];
    const rows = model.linear("embedding").weight;
    let score = 0;
    for (let i = 0; i < size; i++) score += state[i] * rows[id * size + i];
    return score;
  }

  /** At least so many nats a piece, as the commonest pieces alone tell. @param {number[]} target after each position @param {number} common */
  function leastLoss(target, common) {
    const sums = scoreAfter(target.map((_, place) => place), common);
    return target.reduce((total, id, place) => total + sums[place].total - scoreOf(place, id), 0) / target.length;
  }

  return { ids, shares, read, turnTo, next, logProbability, logsAfter, leastLoss };
}

/** Ids that are never written: padding, the unknown, tags and the mask. */
const NO_OUTPUT = [0, 1, 3, 4, 5];
const END = 2;

/**
 * The logarithm of the sum of exponentials, and the best piece that may be written; the end where
 * scores are NaN, as in Python.
 * @param {Matrix} scores
 */
function sumScores(scores) {
  let top = -Infinity;
  let best = END;
  for (let id = 0; id < scores.length; id++) if (scores[id] > top) top = scores[id];
  let sum = 0;
  for (let id = 0; id < scores.length; id++) {
    sum += Math.exp(scores[id] - top);
    if (scores[id] > scores[best] && !NO_OUTPUT.includes(id)) best = id;
  }
  return { total: top + Math.log(sum), best };
}

/** @param {Matrix} one @param {Matrix} other */
function joinRows(one, other) {
  const whole = new Float64Array(one.length + other.length);
  whole.set(one);
  whole.set(other, one.length);
  return whole;
}
