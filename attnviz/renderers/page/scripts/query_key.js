/** How a query and a key make a weight: element by element, to the score, to the share of the row. */

import { readProjection } from "./model.js";
import { NEGATIVE, theme } from "./colors.js";
import { writeFitted } from "./labels.js";
import { clamp, decimals, largest, spell } from "./numbers.js";
import { rowOf, sumOf } from "./rows.js";
import { make, sizeCanvas, write } from "./surface.js";
import { tokenElement } from "./readout.js";

const [BAND, LABEL, CANDIDATES] = [74, 132, 12];
/** How far packed weights and packed vectors may be apart by rounding. */
const TOLERANCE = 0.004;

/**
 * @typedef {object} Multiplication
 * @property {Float32Array} query
 * @property {Float32Array} key
 * @property {Float32Array} product element by element
 * @property {number} sum of the products
 * @property {number} score the sum, scaled
 * @property {Float64Array} scores of the query with every key
 * @property {Float64Array} shares the softmax of the scores that count
 * @property {number[]} visible the keys whose scores count
 */

/**
 * @param {Float32Array} queries row by row @param {Float32Array} keys row by row
 * @param {number} size of a head @param {number} scale @param {number} row @param {number} column
 * @returns {Multiplication}
 */
export function multiply(queries, keys, size, scale, row, column) {
  const query = rowOf(queries, row, size);
  const key = rowOf(keys, column, size);
  const product = query.map((value, place) => value * key[place]);
  const scores = new Float64Array(keys.length / size);
  for (let at = 0; at < scores.length; at++) {
    for (let place = 0; place < size; place++) scores[at] += query[place] * keys[at * size + place];
    scores[at] *= scale;
  }
  const sum = sumOf(product);
  return { query, key, product, sum, scores, score: scores[column], shares: softmax(scores), visible: [...scores.keys()] };
}

/** @param {Float64Array} scores those of hidden keys are -Infinity */
function softmax(scores) {
  const most = scores.reduce((one, other) => Math.max(one, other), -Infinity);
  const powers = scores.map((score) => Math.exp(score - most));
  const total = sumOf(powers);
  return powers.map((power) => power / total);
}

/**
 * Whether the softmax of the scores gives the map's weights: of a decoder over the keys up to its
 * own, else over all keys, or over those that get anything; if it does, in words.
 * @param {Multiplication} parts its shares and the keys that are seen become those that explain the weights
 * @param {Float32Array} weights of the row
 * @param {PageMap} map
 * @param {number} row
 */
export function explainWeights(parts, weights, map, row) {
  const count = weights.length;
  const looksBack = /^(causal|decoder)/.test(map.stream) && map.queries.tokens.length === count;
  /** Whether the scores of these keys alone explain the weights. @param {(place: number) => boolean} isVisible */
  const fits = (isVisible) => {
    const shares = softmax(parts.scores.map((score, at) => (isVisible(at) ? score : -Infinity)));
    if (weights.some((weight, at) => Math.abs(weight - shares[at]) > TOLERANCE)) return false;
    Object.assign(parts, { shares, visible: [...weights.keys()].filter(isVisible) });
    return true;
  };
  if (looksBack && row < count - 1 && fits((at) => at <= row)) {
    return `softmax over ${row + 1} of ${count} keys, the later ones are hidden: `;
  }
  if (fits(() => true)) return `softmax over ${count} keys: `;
  return fits((at) => weights[at] !== 0) ? `softmax over ${parts.visible.length} of ${count} keys, the others get nothing: ` : "";
}

/** @param {Store} store @param {Readout} readout @returns {View} */
export function createQueryKey(store, readout) {
  const canvas = make("canvas", { role: "img" });
  const choices = make("div", { class: "tools" });
  const sentence = make("p", { class: "sum" });
  const element = make("div", { class: "query-key" }, [choices, sentence, canvas]);
  /** @type {Multiplication} */
  let parts;
  /** @type {Scene} */
  let scene;
  /** @type {Cell} */
  let pair;
  const width = () => Math.max(element.clientWidth, 240);
  const height = () => 3 * BAND + 60 + CANDIDATES * 20;

  return {
    element,
    async show(next) {
      scene = next;
      const { map, state, heads } = next;
      const whole = { queries: map.queries.tokens, keys: map.keys.tokens };
      // Where nothing is chosen: the strongest link between words; the first query of a decoder sees but one key.
      const [strongest = (whole.queries.length - 1) * whole.keys.length] = next.links;
      const row = clamp(state.row < 0 ? Math.floor(strongest / whole.keys.length) : state.row, 0, whole.queries.length - 1);
      const values = rowOf(next.matrix.values, row, whole.keys.length);
      const column = state.column >= 0 && state.column < whole.keys.length ? state.column : largest(values, 1)[0] ?? 0;
      pair = { row, column };
      const [queries, keys] = /** @type {Float32Array[]} */ (await Promise.all([readProjection(map, "query", heads[0]), readProjection(map, "key", heads[0])]));
      const { size, scale, besides } = /** @type {NonNullable<typeof map.projections>} */ (map.projections);
      parts = multiply(queries, keys, size, scale, row, column);
      choices.replaceChildren(
        picker("query", next.matrix.queries, row, (place) => store.set({ row: place })),
        picker("key", next.matrix.keys, column, (place) => store.set({ column: place })),
      );
      readout.show(next.matrix, row, column);
      const words = explainWeights(parts, values, map, row);
      const rest = `The map says ${spell(values[column])}: the score is the product alone, and ${besides || "a mask, a bias or another scale"} takes part too.`;
      sentence.replaceChildren(
        tokenElement(next.matrix.queries[row]), " · ", tokenElement(next.matrix.keys[column]),
        ` = ${decimals(parts.sum, 3)}${scaleWords(scale, size, parts.score)}; `,
        words || `softmax over ${parts.scores.length} keys: `,
        make("output", {}, [spell(parts.shares[column])]),
        words ? (besides ? `; that ${besides} takes part too does not show here.` : ".") : `. ${rest}`,
      );
      canvas.setAttribute("aria-label", `Elements of query and key, their products, and the ${CANDIDATES} largest scores of the row`);
      paintParts(sizeCanvas(canvas, width(), height()), parts, scene, pair, width());
    },
    figure: (target, wide) => ({ height: height(), legend: [{ color: "", words: sentence.textContent ?? "" }], paint: (surface) => paintParts(surface, parts, target, pair, wide) }),
  };
}

/** @param {number} scale @param {number} size @param {number} score */
function scaleWords(scale, size, score) {
  if (scale === 1) return "";
  const root = Math.abs(scale * Math.sqrt(size) - 1) < 1e-5;
  return `${root ? `, over √${size}` : ` × ${scale.toPrecision(3)}`} = ${decimals(score, 3)}`;
}

/** @param {string} name @param {ShownToken[]} tokens @param {number} choice @param {(place: number) => void} choose */
function picker(name, tokens, choice, choose) {
  const options = tokens.map((token, place) => make("option", { value: place, selected: place === choice }, [`${place} ${token.text.slice(0, 40)}`]));
  return make("label", {}, [`${name} `, make("select", { "aria-label": name, onchange: ({ target }) => choose(Number(target.value)) }, options)]);
}

/** @param {Surface} surface @param {Multiplication} parts @param {Scene} scene @param {Cell} pair @param {number} width */
function paintParts(surface, parts, scene, pair, width) {
  const colors = theme();
  /** @type {[string, Float32Array][]} */
  const bands = [["query", parts.query], ["× key", parts.key], ["= product", parts.product]];
  bands.forEach(([name, values], number) => band(surface, name, values, 8 + number * BAND, width, colors));
  const top = 3 * BAND + 30;
  const columns = [0, 0.44, 0.6, 0.7].map((share) => LABEL + (width - LABEL) * share);
  ["largest scores of this query", "score", "softmax"].forEach((words, place) => write(surface, words, columns[place], top - 14, { size: 11, color: colors.faint }));
  const order = [...parts.visible].sort((a, b) => parts.scores[b] - parts.scores[a]).slice(0, CANDIDATES);
  if (!order.includes(pair.column)) order.splice(CANDIDATES - 1, 1, pair.column);
  order.forEach((place, line) => {
    const y = top + 6 + line * 20;
    const strong = place === pair.column;
    const how = { weight: strong ? "600" : "", color: strong ? colors.accent : colors.ink };
    writeFitted(surface, scene.matrix.keys[place].text, (width - LABEL) * 0.4, columns[0], y, how);
    write(surface, parts.visible.includes(place) ? decimals(parts.scores[place]) : "hidden", columns[1], y, how);
    write(surface, spell(parts.shares[place]), columns[2], y, how);
    if (!strong) surface.fillStyle = colors.faint;
    surface.fillRect(columns[3], y - 5, parts.shares[place] * (width - LABEL) * 0.29, 10);
  });
}

/**
 * One vector as bars around 0, on a scale of its own that is written beside it.
 * @param {Surface} surface @param {string} name @param {Float32Array} values
 * @param {number} y @param {number} width @param {Theme} colors
 */
function band(surface, name, values, y, width, colors) {
  const most = values.reduce((one, value) => Math.max(one, Math.abs(value)), 1e-9);
  const middle = y + (BAND - 14) / 2;
  const step = (width - LABEL) / values.length;
  const bar = Math.max(step - (step > 4 ? 1.5 : 0), 0.5);
  write(surface, name, LABEL - 14, middle - 7, { size: 13, color: colors.ink, align: "right" });
  write(surface, `up to ±${most.toPrecision(3)}`, LABEL - 14, middle + 9, { size: 10.5, color: colors.faint, align: "right" });
  surface.fillStyle = colors.line;
  surface.fillRect(LABEL, middle - 0.5, width - LABEL, 1);
  values.forEach((value, place) => {
    const long = (Math.abs(value) / most) * (BAND - 20) * 0.5;
    surface.fillStyle = value < 0 ? NEGATIVE : colors.accent;
    surface.fillRect(LABEL + place * step, value < 0 ? middle : middle - long, bar, long);
  });
}
