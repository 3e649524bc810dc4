/** A head as a small picture: each pixel the strongest weight under it, so that lines survive. */

import { pixels } from "./colors.js";
import { NO_VALUE } from "./decode.js";

/**
 * The value furthest from 0 in each block, NaN where it has none.
 * @param {ArrayLike<number>} values row by row
 * @param {number} rows
 * @param {number} columns
 * @param {number} rowLength rows to a block
 * @param {number} columnLength columns to a block
 */
export function strongestBlocks(values, rows, columns, rowLength, columnLength) {
  if (rowLength === 1 && columnLength === 1) {
    return { values: Float32Array.from(values), width: columns, height: rows };
  }
  const width = Math.ceil(columns / columnLength);
  const height = Math.ceil(rows / rowLength);
  const blocks = new Float32Array(width * height).fill(NaN);
  for (let row = 0; row < rows; row++) {
    const start = Math.floor(row / rowLength) * width;
    let at = row * columns;
    for (let block = 0; block < width; block++) {
      const end = Math.min(at + columnLength, (row + 1) * columns);
      let best = blocks[start + block];
      let size = best === best ? Math.abs(best) : -1;
      for (; at < end; at++) {
        const value = values[at];
        if (value === NO_VALUE) continue;
        const here = value < 0 ? -value : value;
        if (here > size) {
          best = value;
          size = here;
        }
      }
      blocks[start + block] = best;
    }
  }
  return { values: blocks, width, height };
}

/** What was asked for last, since most maps of a page have the same. */
/** @type {{weights: Float32Array, kind: string, table: Uint32Array}} */
let last = { weights: new Float32Array(), kind: "", table: new Uint32Array() };

/**
 * The colour of every code of a map, as pixels; the code 0 is at place `levels`, no value at the end.
 * @param {Float32Array} weights the weight of every code
 * @param {Palette} colors
 */
export function codePixels(weights, colors) {
  const kind = `${weights.length} ${colors.limits} ${colors.table}`;
  if (last.weights === weights && last.kind === kind) return last.table;
  const steps = pixels(colors);
  const [low, high] = colors.limits;
  const factor = (colors.steps - 1) / (high - low || 1);
  const table = Uint32Array.from(weights, (weight) => {
    const place = Math.round((weight - low) * factor);
    return steps[place < 0 ? 0 : place >= colors.steps ? colors.steps - 1 : place];
  });
  last = { weights, kind, table: new Uint32Array(table.length + 1) };
  last.table.set(table);
  last.table[table.length] = steps[colors.steps];
  return last.table;
}

/** Pixels that a side has at most. */
const MOST_PIXELS = 96;

/** Blocks as an image, a pixel each. @param {ReturnType<typeof strongestBlocks>} blocks @param {(value: number) => number} colorOf */
export function blocksImage({ values, width, height }, colorOf) {
  const image = new ImageData(width, height);
  const data = new Uint32Array(image.data.buffer);
  for (let place = 0; place < data.length; place++) data[place] = colorOf(values[place]);
  return image;
}

/**
 * @param {HTMLCanvasElement} canvas @param {Int16Array} codes of one head
 * @param {number} rows @param {number} columns @param {Uint32Array} colors of every code
 */
export function drawThumbnail(canvas, codes, rows, columns, colors) {
  const [down, across] = [rows, columns].map((length) => Math.ceil(length / MOST_PIXELS));
  const [none, zero] = [colors.length - 1, (colors.length - 2) / 2];
  const image = blocksImage(strongestBlocks(codes, rows, columns, down, across), (code) =>
    colors[code === NO_VALUE || Number.isNaN(code) ? none : code + zero]);
  if (canvas.width !== image.width || canvas.height !== image.height) {
    [canvas.width, canvas.height] = [image.width, image.height];
  }
  const surface = canvas.getContext("2d", { willReadFrequently: true });
  /** @type {CanvasRenderingContext2D} */ (surface).putImageData(image, 0, 0);
}
