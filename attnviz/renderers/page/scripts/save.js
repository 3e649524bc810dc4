/** The view as a file: PNG, SVG, or its weights as CSV; an answer also as JSON. */

import { theme } from "./colors.js";
import { layerCodes, valueOf, weightTable } from "./model.js";
import { font } from "./surface.js";
import { SvgSurface } from "./svg.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").Surface} Surface */

const [EDGE, HEAD] = [20, 58];

/** @param {string} name @param {Blob} blob */
export function download(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/**
 * The view with its title above it.
 * @param {Surface} surface
 * @param {View} view
 * @param {string[]} title
 */
function paintFile(surface, view, title) {
  const [width, height] = view.size();
  const colors = theme();
  surface.fillStyle = colors.paper;
  surface.fillRect(0, 0, width + 2 * EDGE, height + HEAD + EDGE);
  surface.textBaseline = "alphabetic";
  surface.textAlign = "left";
  surface.fillStyle = colors.ink;
  surface.font = font(15, "600");
  surface.fillText(title[0], EDGE, 26);
  surface.font = font(12);
  surface.fillStyle = colors.faint;
  surface.fillText(title[1], EDGE, 44);
  surface.save();
  surface.translate(EDGE, HEAD);
  view.paint(surface);
  surface.restore();
}

/** @param {View} view @param {string[]} title */
export function asSvg(view, title) {
  const [width, height] = view.size();
  const surface = new SvgSurface(Math.ceil(width + 2 * EDGE), Math.ceil(height + HEAD + EDGE));
  paintFile(/** @type {any} */ (surface), view, title);
  return new Blob([surface.toString()], { type: "image/svg+xml" });
}

/** @param {View} view @param {string[]} title @returns {Promise<Blob>} */
export function asPng(view, title) {
  const [width, height] = view.size();
  const scale = Math.min(Math.max(devicePixelRatio || 1, 2), 16000 / (height + HEAD + EDGE));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((width + 2 * EDGE) * scale);
  canvas.height = Math.ceil((height + HEAD + EDGE) * scale);
  const surface = /** @type {Surface} */ (canvas.getContext("2d"));
  surface.scale(scale, scale);
  paintFile(surface, view, title);
  return new Promise((done) => canvas.toBlob((blob) => done(/** @type {Blob} */ (blob)), "image/png"));
}

/**
 * A line for each weight, as the command line writes them.
 * @param {Scene} scene
 * @param {string} id
 */
export function asCsv({ map, heads, shown, state }, id) {
  const layers = [...new Set(heads.map(([layer]) => map.layers[layer]))].join(" ");
  const names = heads.map(([, head]) => map.heads[head]).join(" ");
  const mixed = heads.length > 1 ? `${state.mix} of ${names}` : names;
  const lens = map.lens ? `${map.stream} · ${map.lens}` : map.stream;
  const before = [id, lens, layers, mixed].map(cell).join(",");
  const keys = shown.keys.map((token) => `${token.at},${cell(token.raw ?? token.text)}`);
  const lines = ["id,stream,layer,head,query_position,query_token,key_position,key_token,weight"];
  shown.queries.forEach((token, row) => {
    const query = `${token.at},${cell(token.raw ?? token.text)}`;
    keys.forEach((key, column) => {
      const weight = shown.values[row * keys.length + column];
      lines.push(`${before},${query},${key},${Number.isNaN(weight) ? "" : Number(weight.toFixed(4))}`);
    });
  });
  return new Blob([`${lines.join("\n")}\n`], { type: "text/csv" });
}

/**
 * The maps of an answer as the command line writes them, which `attnviz render` reads.
 * @param {import("./types.js").PageDocument} page
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

/** @param {import("./types.js").Token} token */
const asToken = ({ raw, text, start = 0, end = 0, special = false }) => ({ text: raw ?? text, start, end, special });

/** One layer as nested lists: heads, queries, keys; null where there is no value. @param {import("./types.js").PageMap} map @param {number} layer */
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

/**
 * A text on one line, backslash escapes for what would break or turn it, quoted where needed.
 * @param {string} text
 */
function cell(text) {
  const escaped = text.replace(
    /[\\\0-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (sign) =>
      ({ "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r" })[sign] ??
      `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return /[",]/.test(escaped) ? `"${escaped.replaceAll('"', '""')}"` : escaped;
}
