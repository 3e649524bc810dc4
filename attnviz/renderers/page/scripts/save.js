/** The weights of the view as CSV; an answer also as JSON. */

import { layerCodes, valueOf, weightTable } from "./model.js";

/** A line for each weight, as the command line writes them. @param {Scene} scene @param {string} id */
export function asCsv({ map, heads, matrix, state }, id) {
  const layers = [...new Set(heads.map(([layer]) => map.layers[layer]))].join(" ");
  const names = heads.map(([, head]) => map.heads[head]).join(" ");
  const mixName = heads.length > 1 ? `${state.mix} of ${names}` : names;
  const lens = map.lens ? `${map.stream} · ${map.lens}` : map.stream;
  const before = [id, lens, layers, mixName].map(cell).join(",");
  const keys = matrix.keys.map((token) => `${token.at},${cell(token.raw ?? token.text)}`);
  const lines = ["id,stream,layer,head,query_position,query_token,key_position,key_token,weight"];
  matrix.queries.forEach((token, row) => {
    const query = `${token.at},${cell(token.raw ?? token.text)}`;
    keys.forEach((key, column) => {
      const weight = matrix.values[row * keys.length + column];
      lines.push(`${before},${query},${key},${Number.isNaN(weight) ? "" : Number(weight.toFixed(4))}`);
    });
  });
  return new Blob([`${lines.join("\n")}\n`], { type: "text/csv" });
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
    layers: map.layers, heads: map.heads, values: map.values, unit: map.unit,
    query_text: map.queries.side, key_text: map.keys.side,
    query_tokens: map.queries.tokens.map(asToken), key_tokens: map.keys.tokens.map(asToken),
    weights: await Promise.all(map.layers.map((_, layer) => layerWeights(map, layer))),
  })));
  const provenance = {
    source, model, trained: { yes: true, no: false }[trained] ?? null, device: device ?? "", dtype: precision ?? "",
    settings: others, steps: [...(steps ? steps.split(", ") : []), ...off.map((words) => `${words} switched off`)], notes: page.notes,
  };
  const document = { schema: 1, id: page.id, ...texts, maps, provenance };
  return new Blob([`${JSON.stringify(document)}\n`], { type: "application/json" });
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
