/** A heat map drawn: cells, and labels that stay in view. */

import { NEGATIVE, colorPlace, inkOn, pixels } from "./colors.js";
import { LABEL_FONT } from "./grid_geometry.js";
import { fitText, withLabel } from "./labels.js";
import { spellShort } from "./numbers.js";
import { font, paintAt, write } from "./surface.js";
import { blocksImage, strongestBlocks } from "./thumbnail.js";

/** @import { Geometry } from "./grid_geometry.js" */

const [NUMBERED_CELL, GAPPED_CELL, GAP] = [30, 9, 6];
/** What rows and columns are, but of layers without attention. */
export const AXES = ["query (attends)", "key (attended)"];

/**
 * The values as an image, a pixel each, or where a side has fewer pixels on the screen, the
 * strongest along that side.
 * @param {ShownMatrix} matrix
 * @param {Palette} colors
 * @param {Geometry} geometry
 */
export function gridImage(matrix, colors, { cellWidth, cellHeight }) {
  const [down, across] = [cellHeight, cellWidth].map((cell) => Math.max(Math.ceil(1 / (cell * (devicePixelRatio || 1))), 1));
  const pooled = strongestBlocks(matrix.values, matrix.queries.length, matrix.keys.length, down, across);
  const steps = pixels(colors);
  const image = blocksImage(pooled, (value) => steps[colorPlace(colors, value)]);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [pooled.width, pooled.height];
  /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).putImageData(image, 0, 0);
  return { canvas, across: pooled.width * across, down: pooled.height * down };
}

/**
 * @param {Surface} surface
 * @param {Geometry} geometry
 * @param {ShownMatrix} matrix
 * @param {Palette} colors
 * @param {Theme} theme
 * @param {ReturnType<typeof gridImage>} image
 */
export function paintGrid(surface, geometry, matrix, colors, theme, image) {
  const { left, top, width, height, cellWidth, cellHeight, x, y } = geometry;
  surface.save();
  surface.beginPath();
  surface.rect(left, top, width, height);
  surface.clip();
  surface.imageSmoothingEnabled = false;
  surface.drawImage(image.canvas, x, y, image.across * cellWidth, image.down * cellHeight);
  const cell = Math.min(cellWidth, cellHeight);
  if (cell >= GAPPED_CELL) paintGaps(surface, geometry, theme);
  if (cell >= NUMBERED_CELL) paintNumbers(surface, geometry, matrix, colors);
  paintKinds(surface, geometry, matrix, theme);
  surface.restore();
  [surface.strokeStyle, surface.lineWidth] = [theme.line, 1];
  surface.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
  paintLabels(surface, geometry, matrix, theme);
}

/** @param {Geometry} geometry @param {ShownMatrix} matrix */
export function inView(geometry, matrix) {
  const { left, top, width, height, cellWidth, cellHeight, x, y } = geometry;
  return {
    firstRow: Math.max(Math.floor((top - y) / cellHeight), 0),
    lastRow: Math.min(Math.ceil((top + height - y) / cellHeight), matrix.queries.length) - 1,
    firstColumn: Math.max(Math.floor((left - x) / cellWidth), 0),
    lastColumn: Math.min(Math.ceil((left + width - x) / cellWidth), matrix.keys.length) - 1,
  };
}

/** @param {Surface} surface @param {Geometry} geometry @param {Theme} theme */
function paintGaps(surface, geometry, theme) {
  const { left, top, width, height, cellWidth, cellHeight, x, y } = geometry;
  surface.fillStyle = theme.paper;
  const first = { column: Math.ceil((left - x) / cellWidth), row: Math.ceil((top - y) / cellHeight) };
  for (let at = x + first.column * cellWidth; at < left + width; at += cellWidth) {
    surface.fillRect(at - 0.5, top, 1, height);
  }
  for (let at = y + first.row * cellHeight; at < top + height; at += cellHeight) {
    surface.fillRect(left, at - 0.5, width, 1);
  }
}

/** A line where keys of another kind begin. @param {Surface} surface @param {Geometry} geometry @param {ShownMatrix} matrix @param {Theme} theme */
function paintKinds(surface, { top, height, cellWidth, x }, { keys }, theme) {
  surface.fillStyle = theme.ink;
  keys.forEach((key, place) => {
    if (place && key.kind !== keys[place - 1].kind) surface.fillRect(x + place * cellWidth - 1, top, 2, height);
  });
}

/** @param {Surface} surface @param {Geometry} geometry @param {ShownMatrix} matrix @param {Palette} colors */
function paintNumbers(surface, geometry, matrix, colors) {
  const { cellWidth, cellHeight, x, y } = geometry;
  const view = inView(geometry, matrix);
  [surface.font, surface.textAlign, surface.textBaseline] = [font(Math.min(cellWidth * 0.32, 13)), "center", "middle"];
  for (let row = view.firstRow; row <= view.lastRow; row++) {
    for (let column = view.firstColumn; column <= view.lastColumn; column++) {
      const value = matrix.values[row * matrix.keys.length + column];
      surface.fillStyle = inkOn(colors, value);
      // Next to nothing is written, but does not call.
      surface.globalAlpha = Math.abs(value) < 0.005 ? 0.4 : 1;
      const middle = [x + (column + 0.5) * cellWidth, y + (row + 0.5) * cellHeight];
      surface.fillText(spellShort(value), middle[0], middle[1]);
    }
  }
  surface.globalAlpha = 1;
}

/** @param {Surface} surface @param {Geometry} geometry @param {ShownMatrix} matrix @param {Theme} theme */
function paintLabels(surface, geometry, matrix, theme) {
  const { left, top, width, height, cellWidth, cellHeight, rowStep, columnStep } = geometry;
  const view = inView(geometry, matrix);
  for (let row = view.firstRow; row <= view.lastRow; row++) {
    const middle = geometry.y + (row + 0.5) * cellHeight;
    if (row % rowStep === 0 && middle >= top && middle <= top + height) paintLabel(surface, geometry, matrix.queries[row], row, theme, "row");
  }
  for (let column = view.firstColumn; column <= view.lastColumn; column++) {
    const middle = geometry.x + (column + 0.5) * cellWidth;
    if (column % columnStep === 0 && middle >= left && middle <= left + width) paintLabel(surface, geometry, matrix.keys[column], column, theme, "column");
  }
  const [query, key] = matrix.axes ?? AXES;
  write(surface, `${key} →`, left, 9, { size: 11, color: theme.faint });
  const words = `← ${height < 90 ? query.split(" ")[0] : query}`;
  const label = () => write(surface, words, 0, 0, { size: 11, color: theme.faint, align: "right" });
  paintAt(surface, 9, top, label, true);
}

/** How far away the labels are that one put in between would touch. @param {number} place @param {number} step every how many places a label stands @param {number} cell */
function findTouches(place, step, cell) {
  const before = Math.floor(place / step) * step;
  return [before - step, before, before + step].map((other) => (other - place) * cell).filter((shift) => shift && Math.abs(shift) < 15);
}

/**
 * The label of a row, left of it, or of a column, above it along the column or where there is room along the rows.
 * @param {Surface} surface @param {Geometry} geometry @param {ShownToken} token @param {number} place @param {Theme} theme @param {"row" | "column"} axis
 * @param {boolean} [strong] whether it stands out, and covers those that it would touch
 */
export function paintLabel(surface, geometry, token, place, theme, axis, strong = false) {
  const { left, top, cellWidth, cellHeight, upright } = geometry;
  const [isRow, level] = [axis === "row", axis === "row" || upright];
  surface.save();
  if (isRow) surface.translate(left - GAP, geometry.y + (place + 0.5) * cellHeight);
  else surface.translate(geometry.x + (place + 0.5) * cellWidth, top - (upright ? 10 : GAP));
  if (!level) surface.rotate(-Math.PI / 2);
  surface.font = strong ? font(12, "600") : LABEL_FONT;
  const edge = strong ? 20 : 26; // bold letters are wider
  const text = fitText(surface, withLabel(token), isRow ? left - edge : upright ? Math.max(cellWidth, 60) : top - edge);
  if (strong) {
    const width = surface.measureText(text).width;
    surface.fillStyle = theme.paper;
    surface.fillRect(isRow ? -width - 4 : upright ? -width / 2 - 3 : -2, -8, width + 6, 16);
    const near = isRow ? findTouches(place, geometry.rowStep, cellHeight) : upright ? [] : findTouches(place, geometry.columnStep, cellWidth);
    for (const shift of near) surface.fillRect(isRow ? 20 + GAP - left : -2, shift - 8, isRow ? left - GAP - 18 : top - 22, 16);
  }
  const color = strong ? theme.accent : token.special ? theme.faint : theme.ink;
  write(surface, text, 0, 0, { weight: strong ? "600" : "", color, align: isRow ? "right" : upright ? "center" : "left" });
  surface.restore();
}

/** A cross over a link that is cut. @param {Surface} surface @param {number} x @param {number} y @param {number} size */
export function paintCut(surface, x, y, size) {
  [surface.strokeStyle, surface.lineWidth] = [NEGATIVE, 2];
  surface.beginPath();
  surface.moveTo(x - size, y - size);
  surface.lineTo(x + size, y + size);
  surface.moveTo(x - size, y + size);
  surface.lineTo(x + size, y - size);
  surface.stroke();
}
