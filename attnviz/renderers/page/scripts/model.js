/** The data of the page: its document at once, weights layer by layer when they are asked for. */

import { FINE_LEVELS, NO_VALUE, byteCodes, denseBytes, fineCodes, inflate } from "./decode.js";
import { rowOf } from "./rows.js";
import { textOf } from "./surface.js";

/** @returns {PageDocument} */
export const readDocument = () => JSON.parse(textOf("document"));

/** Numbers of maps that came as an answer; a finished run's are in the page. @type {WeakMap<PageMap, Map<string, Int16Array | string>>} */
const answerNumbers = new WeakMap();

/**
 * A document that came with its numbers, codes as they are or packed as in a file, by name.
 * @param {PageDocument} document
 * @param {Map<string, Int16Array | string> | Record<string, Int16Array | string>} numbers
 */
export function receive(document, numbers) {
  const byName = numbers instanceof Map ? numbers : new Map(Object.entries(numbers));
  document.maps.forEach((map) => answerNumbers.set(map, byName));
  return document;
}

/** What the page or the answer has under that name; what stands behind the script may not be there yet. @param {PageMap} map @param {string} name */
async function numbersOf(map, name) {
  const own = answerNumbers.get(map)?.get(name);
  if (!own && !document.getElementById(name)?.nextSibling && document.readyState === "loading") {
    await new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
  }
  return own ?? textOf(name);
}

/** @type {WeakMap<PageMap, Promise<Int16Array>[]>} */
const layerCache = new WeakMap();

/** The codes of one layer, head by head, row by row; unpacked once. @param {PageMap} map @param {number} layer */
export function layerCodes(map, layer) {
  const layers = layerCache.get(map) ?? [];
  layerCache.set(map, layers);
  if (!layers[layer]) {
    const count = map.heads.length * map.queries.tokens.length * map.keys.tokens.length;
    layers[layer] = numbersOf(map, `${map.blob}-${layer}`).then(async (numbers) => {
      if (typeof numbers !== "string") return numbers;
      const bytes = await inflate(map.power ? denseBytes(numbers) : numbers);
      return map.levels === FINE_LEVELS ? fineCodes(bytes) : byteCodes(bytes, count, map.values === "signed");
    });
  }
  return layers[layer];
}

/** The codes of one head. @param {PageMap} map @param {Head} head */
export async function headCodes(map, [layer, head]) {
  const size = map.queries.tokens.length * map.keys.tokens.length;
  return rowOf(await layerCodes(map, layer), head, size);
}

/** Most maps have the same; making it takes longer than using it. */
/** @type {{kind: string, table: Float32Array}} */
let lastTable = { kind: "", table: new Float32Array() };

/** The weight that each code stands for; the code 0 is at place `levels`. @param {PageMap} map */
export function weightTable(map) {
  const kind = `${map.levels} ${map.power} ${map.scale}`;
  if (lastTable.kind === kind) return lastTable.table;
  const table = new Float32Array(2 * map.levels + 1);
  for (let code = -map.levels; code <= map.levels; code++) {
    const share = code / map.levels;
    table[code + map.levels] = Math.sign(code) * (map.power ? Math.abs(share) ** map.power : share * share) * map.scale;
  }
  lastTable = { kind, table };
  return table;
}

/** How far a weight can be from the one that was computed: half of what two codes are apart. @param {PageMap} map @param {number} weight */
export function roundingOf(map, weight) {
  const power = map.power ?? 2;
  const share = Math.max((Math.abs(weight) / map.scale) ** (1 / power), 1 / map.levels);
  return (share ** (power - 1) * map.scale * power) / (2 * map.levels);
}

/** What a code stands for, NaN for no value. @param {Float32Array} table @param {number} levels */
export const valueOf = (table, levels) => (/** @type {number} */ code) =>
  code === NO_VALUE ? NaN : table[code + levels];

/**
 * What was kept beside the weights of one head, row by row: queries, keys or values, what links write
 * into a logit, or their effects; null: not kept.
 * @param {PageMap} map
 * @param {"query" | "key" | "value" | "writes" | "effects"} part
 * @param {Head} head
 */
export async function readProjection(map, part, [layer, head]) {
  const projections = /** @type {NonNullable<PageMap["projections"]>} */ (map.projections);
  const scale = projections[/** @type {const} */ (`${part}_scale`)];
  if (!scale) return null;
  const bytes = await inflate(/** @type {string} */ (await numbersOf(map, `${map.blob}${part[0]}-${layer}`)));
  const count = bytes.length / 2 / map.heads.length;
  const whole = new Int16Array(bytes.buffer, head * count * 2, count);
  return Float32Array.from(whole, (value) => (value === NO_VALUE ? NaN : (value * scale) / FINE_LEVELS));
}

/** Whether a name says what was made of layers or heads, and is none of theirs. @param {string} name */
export const isReduced = (name) => /^(mean|max|sum|flow|gradient|effect|logits|norm|rollout)$/.test(name);

/** The heads to look at first: the one in focus, else all of the last layer. @param {PageMap} map @returns {Head[]} */
export function firstHeads(map) {
  if (map.focus) {
    const layer = map.layers.indexOf(map.focus[0]);
    const head = map.heads.indexOf(map.focus[1]);
    if (layer >= 0 && head >= 0) return [[layer, head]];
  }
  return headsOfLayer(map, map.layers.length - 1);
}

/** @param {PageMap} map @param {number} layer @returns {Head[]} */
export const headsOfLayer = (map, layer) => map.heads.map((_, head) => [layer, head]);

/** @param {PageMap} map @returns {Head[]} */
export const everyHead = (map) => map.layers.flatMap((_, layer) => headsOfLayer(map, layer));
