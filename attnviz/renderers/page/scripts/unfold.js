/** One number of a map in seven small pictures: from query and key to the change of log p. */

import { valueOf, headCodes, readProjection, weightTable } from "./model.js";
import { beginning } from "./labels.js";
import { explainWeights, multiply } from "./query_key.js";
import { decimals, largest, spell } from "./numbers.js";
import { rowOf, sumOf } from "./rows.js";
import { draw, make } from "./surface.js";

/** Tokens that a picture names. */
const MOST_NAMES = 4;
/** Below this many nats a change is none. */
const NONE = 0.005;

/** @param {string} text */
const word = (text) => make("bdi", {}, [beginning(text, 18)]);

/** A sign and two decimals, in the colour of the sign. @param {number} value */
export const signed = (value) => make("b", value < 0 ? { class: "below" } : {}, [decimals(value, 2, "+")]);

/**
 * Numbers as bars around 0, those of a list of keys with the link's own marked; no value: a dot.
 * @param {(number | null)[]} values
 * @param {number} [own]
 */
function bars(values, own) {
  const numbers = values.map((value) => value ?? 0);
  const most = Math.max(...numbers.map(Math.abs), 1e-9);
  const [low, step] = [numbers.some((value) => value < 0), 100 / values.length];
  const [zero, high] = low ? [20, 19] : [39, 38];
  /** @type {Record<string, string>} */
  const paths = { line: `M0 ${zero}h100v.5H0z`, other: "", rise: "", fall: "" };
  values.forEach((value, place) => {
    const wide = Math.max(step * 0.8, 0.4);
    const size = (Math.abs(value ?? 0) / most) * high || 0.6;
    const kind = own !== undefined && place !== own ? "other" : numbers[place] < 0 ? "fall" : "rise";
    paths[value === null ? "line" : kind] += `M${(place * step + step * 0.1).toFixed(2)} ${zero}v${(numbers[place] < 0 ? size : -size).toFixed(2)}h${wide.toFixed(2)}V${zero}z`;
  });
  const label = `${values.length} numbers, the largest ${spell(numbers[largest(numbers, 1)[0]])}`;
  return draw("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label }, Object.entries(paths).map(([kind, d]) => draw("path", { class: kind, d })));
}

/** Tokens with a bar each, the largest first; words where there is none. @param {[string, number][]} items @param {string} none @param {string} small */
function tokenBars(items, none, small) {
  if (!items.length) return none;
  const most = Math.max(...items.map(([, value]) => Math.abs(value)), 1e-9);
  const best = largest(items.map(([, value]) => value), MOST_NAMES).map((place) => items[place]).filter(([, value]) => Math.abs(value) >= NONE);
  return best.length ? make("ul", {}, best.map(([text, value]) => {
    const item = make("li", {}, [word(text), signed(value)]);
    item.style.setProperty("--part", String(Math.abs(value) / most));
    return item;
  })) : small;
}

/** @param {number[]} vector */
const lengthOf = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));

/** How the product becomes a score, in signs. @param {LinkSteps} steps @param {number} product @param {number} score */
function scoreWords({ factor, position, cap, key }, product, score) {
  const root = Math.abs(factor * Math.sqrt(key.length) - 1) < 1e-5;
  const times = factor === 1 ? "" : root ? ` / √${key.length}` : ` × ${factor.toPrecision(3)}`;
  const shift = position === null ? "" : ` ${position < 0 ? "−" : "+"} position ${Math.abs(position).toFixed(2)}`;
  return [`s = ${decimals(product)}${times}${shift} = `, make("b", {}, [decimals(score)]), cap ? `, capped at ±${cap}` : ""];
}

/**
 * The steps of a link, from what a page holds beside its weights; null: it holds nothing.
 * @param {PageMap} map
 * @param {Head} head
 * @param {number} row
 * @param {number} column
 * @returns {Promise<LinkSteps | null>}
 */
export async function stepsInPage(map, head, row, column) {
  if (!map.projections) return null;
  const [queries, keys, values, writes, effects] = await Promise.all((/** @type {const} */ (["query", "key", "value", "writes", "effects"])).map((part) => readProjection(map, part, head)));
  const { size, scale, besides, predicted } = map.projections;
  const count = map.keys.tokens.length;
  const parts = multiply(/** @type {Float32Array} */ (queries), /** @type {Float32Array} */ (keys), size, scale, row, column);
  const codes = rowOf(await headCodes(map, head), row, count);
  const weights = Float32Array.from(codes, valueOf(weightTable(map), map.levels));
  const isSoftmax = explainWeights(parts, weights, map, row);
  const visible = new Set(isSoftmax ? parts.visible : weights.map((weight, at) => (weight ? at : -1)));
  const cell = row * count + column;
  return {
    query: [...parts.query], key: [...parts.key], factor: scale, position: null, cap: null, weights: [...weights],
    value: values && [...values.subarray(column * (values.length / count), (column + 1) * (values.length / count))],
    scores: Array.from(parts.scores, (score, at) => (visible.has(at) ? score : null)),
    writes: writes && (Number.isNaN(writes[cell]) ? [] : [[predicted[row] ?? "what is predicted", writes[cell]]]),
    changes: effects && (Number.isNaN(effects[cell]) ? [] : [["the output", -effects[cell]]]),
    estimated: true, besides,
  };
}

/**
 * @param {LinkSteps} steps
 * @param {ShownToken} query
 * @param {ShownToken} key
 * @param {[string, number][] | null} writes tokens that the link argues for, with their logits; null: not known
 */
export function unfoldSteps(steps, query, key, writes) {
  const { scores, weights, value, changes, besides } = steps;
  const [at, hidden] = [key.at, scores.filter((score) => score === null).length];
  const product = steps.query.reduce((sum, one, place) => sum + one * steps.key[place], 0);
  const [weight, rest] = [weights[at], 1 - sumOf(weights)];
  const total = changes?.reduce((sum, [, change]) => sum + change, 0) ?? 0;
  const small = "No output changes by .005 or more.";
  const needs = "Not in the page: attnviz live shows it.";
  /** @type {[string, Node | string, (Node | string)[]][]} */
  const pictures = [
    ["query", bars(steps.query), ["q = W", make("sub", {}, ["Q"]), " · norm of ", word(query.text), `, length ${lengthOf(steps.query).toFixed(1)}`]],
    ["key", bars(steps.key), ["k = W", make("sub", {}, ["K"]), " · norm of ", word(key.text), "; q · k = ", make("b", {}, [decimals(product)])]],
    ["scale and mask", bars(scores, at), [...scoreWords(steps, product, scores[at] ?? NaN), hidden ? `; ${hidden} hidden of ${scores.length} keys` : `; ${scores.length} keys, none hidden`, besides ? `; ${besides} takes part too` : ""]],
    ["softmax over the row", bars(weights, at), ["a = eˢ / Σ eˢ = ", make("b", {}, [spell(weight)]), rest > 0.001 ? `; a sink takes ${spell(rest)}` : ""]],
    ["value", value ? bars(value) : needs, ["v = W", make("sub", {}, ["V"]), " · norm of ", word(key.text), ...(value ? ["; length of a · v ", make("b", {}, [(weight * lengthOf(value)).toFixed(2)])] : [])]],
    ["what it writes", writes ? tokenBars(writes, "No logits are read from here: later layers read it.", "No logit moves by .005 or more.") : needs, ["a · v · W", make("sub", {}, ["O"]), " · norm · W", make("sub", {}, ["U"]), ": logits above their mean"]],
    ["change of log p", changes ? tokenBars(changes, small, small) : needs, ["log p without the link − log p", ...(changes ? [" = ", signed(total), " nats"] : []), ...(steps.estimated ? [", first order"] : [])]],
  ];
  return make("ol", { class: "unfold", "aria-label": "This number, step by step" }, pictures.map(([name, picture, formula], place) =>
    make("li", {}, [make("h3", {}, [`${place + 1} ${name}`]), typeof picture === "string" ? make("p", { class: "hint" }, [picture]) : picture, make("p", { class: "formula" }, formula)])));
}
