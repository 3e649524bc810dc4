/** The weights of the view as CSV; an answer also as JSON. */

import { everyHead, layerCodes, roundingOf, valueOf, weightTable } from "./model.js";
import { buildMatrix } from "./shown.js";

/**
 * A line for each weight of what is seen, as the command line writes them: of each head where heads are
 * shown apart. Digits end where the codes do.
 * @param {Scene} scene
 * @param {string} id
 */
export async function asCsv({ map, heads, matrix, separate, state }, id) {
  const whole = { ...state, unit: "tokens", specials: "keep" }; // as thumbnails show every head
  /** @type {[Head[], ShownMatrix][]} */
  const parts = state.view === "heads" ? await Promise.all(everyHead(map).map(async (head) => /** @type {[Head[], ShownMatrix]} */ ([[head], await buildMatrix(map, [head], whole)])))
    : separate.length ? separate.map((own, place) => [[heads[place]], own]) : [[heads, matrix]];
  // A code is off by so much, the less the smaller the weight is, and two such are the least last place.
  const digits = (/** @type {number} */ weight) => {
    return Math.min(Math.max(Math.floor(Math.log10(2 / roundingOf(map, weight))), 0), 9);
  };
  const lens = map.lens ? `${map.stream} · ${map.lens}` : map.stream;
  const lines = ["id,stream,layer,head,query_position,query_token,key_position,key_token,weight"];
  for (const [own, { queries, keys, values }] of parts) {
    const before = [id, lens, ...namesOf(map, own, state.mix)].map(cell).join(",");
    const [rows, columns] = [queries, keys].map((tokens) => tokens.map((token) => `${token.number},${cell(token.raw ?? token.text)}`));
    rows.forEach((query, row) => columns.forEach((key, column) => {
      const weight = values[row * columns.length + column];
      lines.push(`${before},${query},${key},${Number.isNaN(weight) ? "" : Number(weight.toFixed(digits(weight)))}`);
    }));
  }
  return new Blob([`${lines.join("\n")}\n`], { type: "text/csv" });
}

/** The layer and the head of several as one, without a list where they are all. @param {PageMap} map @param {Head[]} heads @param {string} mix */
function namesOf(map, heads, mix) {
  const layers = [...new Set(heads.map(([layer]) => map.layers[layer]))];
  if (heads.length === 1) return [layers[0], map.heads[heads[0][1]]];
  const all = heads.length === map.heads.length * (layers.length === 1 ? 1 : map.layers.length);
  const names = heads.map(([layer, head]) => (layers.length === 1 ? map.heads[head] : `${map.layers[layer]}.${map.heads[head]}`));
  return [layers.length === 1 ? layers[0] : mix, all ? mix : `${mix} of ${names.join(" ")}`];
}

/**
 * The maps of an answer as the command line writes them, which `attnviz render` reads.
 * @param {PageDocument} page
 * @param {{source?: string, target?: string}} texts
 * @param {string[]} off what is switched off, in words
 */
export async function asJson(page, texts, off) {
  const facts = Object.fromEntries(page.provenance);
  const { source = "", model = page.title, trained, device, precision, steps, ...others } = facts;
  const maps = await Promise.all(page.maps.map(async (map) => ({
    stream: map.lens && !map.stream.includes(" · ") ? `${map.stream} · ${map.lens}` : map.stream,
    layers: map.layers.map(asNumber), ...headsOf(map), values: map.values, unit: map.unit,
    query_text: map.queries.side, key_text: map.keys.side,
    query_tokens: map.queries.tokens.map(asToken), key_tokens: map.keys.tokens.map(asToken),
    weights: await Promise.all(map.layers.map((_, layer) => layerWeights(map, layer))),
  })));
  const provenance = {
    source, model, trained: { yes: true, no: false }[trained] ?? null, device: device ?? "", dtype: precision ?? "",
    settings: others, steps: [...(steps ? steps.split(", ") : []), ...off.map((words) => `${words} switched off`)], notes: page.notes,
  };
  const document = { schema: 2, kind: "maps", id: page.id, ...texts, maps, provenance };
  return new Blob([`${JSON.stringify(document)}\n`], { type: "application/json" });
}

/** The number of a layer or head; a name ("mean") is its own. @param {string} name */
const asNumber = (name) => (/^(0|[1-9]\d{0,8})$/.test(name) ? Number(name) : name);

/** The heads of a map, and of heads of several layers ("2.3") the layer of each. @param {PageMap} map */
function headsOf({ layers, heads }) {
  if (layers.join() !== "several" || !heads.every((name) => name.includes("."))) return { heads: heads.map(asNumber) };
  const ends = heads.map((name) => [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)].map(asNumber));
  return { heads: ends.map(([, head]) => head), head_layers: ends.map(([layer]) => layer) };
}

/** @param {Token} token */
const asToken = ({ raw, text, start = 0, end = 0, special = false }) => ({ text: raw ?? text, start, end, special });

/** One layer as nested lists: heads, queries, keys; null where there is no value. @param {PageMap} map @param {number} layer */
async function layerWeights(map, layer) {
  const value = valueOf(weightTable(map), map.levels);
  const codes = await layerCodes(map, layer);
  const [rows, columns] = [map.queries.tokens.length, map.keys.tokens.length];
  return map.heads.map((_, head) => map.queries.tokens.map((_, row) => {
    const start = (head * rows + row) * columns;
    return Array.from(codes.subarray(start, start + columns), (code) => {
      const weight = value(code);
      return Number.isNaN(weight) ? null : Number(weight.toPrecision(6));
    });
  }));
}

/** A text on one line, backslash escapes for what would break or turn it, quoted where needed. @param {string} text */
function cell(text) {
  const safeText = text.replace(
    /[\\\0-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (sign) =>
      ({ "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r" })[sign] ??
      `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return /[",]/.test(safeText) ? `"${safeText.replaceAll('"', '""')}"` : safeText;
}
