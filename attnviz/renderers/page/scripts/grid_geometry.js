/** Where everything of a heat map stands: labels and cells; and which cell a point lies in. */

import { widest } from "./labels.js";
import { clamp } from "./numbers.js";
import { font } from "./surface.js";

export const LABEL_FONT = font(12);
const [LARGEST_CELL, WIDE_CELL, MOST_LABEL] = [54, 14, 150];
const [TITLE, GAP, LABEL_STEP] = [20, 6, 13];

/**
 * @typedef {object} Geometry
 * @property {number} left where the cells begin
 * @property {number} top
 * @property {number} width of the cells' window
 * @property {number} height
 * @property {number} cellWidth
 * @property {number} cellHeight
 * @property {number} x where the first column begins, left of the window when panned
 * @property {number} y
 * @property {boolean} upright whether column labels lie along their rows
 * @property {number} rowStep every how many rows a label fits
 * @property {number} columnStep
 */

/** @typedef {{factor: number, column: number, row: number}} Zoom how far the reader has gone in, which column and row then stand first */

/** @param {string} text @returns {Zoom} */
export function readZoom(text) {
  const [factor, column, row] = text.split(",").map(Number);
  if (!(factor > 1) || !Number.isFinite(column) || !Number.isFinite(row)) {
    return { factor: 1, column: 0, row: 0 };
  }
  return { factor: Math.min(factor, 400), column, row };
}

/** @param {Zoom} zoom */
export function spellZoom({ factor, column, row }) {
  return factor > 1 ? [factor, column, row].map((part) => Number(part.toFixed(3))).join(",") : "";
}

/**
 * @param {ShownMatrix} matrix
 * @param {number} width of all of it
 * @param {number} height the most it may take
 * @param {Zoom} zoom
 * @param {Surface} surface to measure with
 * @returns {Geometry}
 */
export function gridGeometry(matrix, width, height, zoom, surface) {
  surface.font = LABEL_FONT;
  const mostLabel = Math.min(MOST_LABEL, width * 0.26);
  const left = TITLE + Math.max(widest(surface, matrix.queries, mostLabel), 46) + GAP + 2;
  const keyLabel = widest(surface, matrix.keys, Math.min(MOST_LABEL, height * 0.25));
  const [columns, rows] = [matrix.keys.length, matrix.queries.length];
  const roomAcross = Math.max(width - left - GAP, 60);
  const upright = Math.min(roomAcross / columns, LARGEST_CELL) >= keyLabel + 4;
  const top = TITLE + (upright ? 20 : Math.max(keyLabel, 14) + GAP + 4);
  const roomDown = Math.max(height - top - GAP, 60);

  const [across, down] = [roomAcross / columns, roomDown / rows];
  let square = Math.min(across, down, LARGEST_CELL);
  const ratio = devicePixelRatio || 1;
  if (square * ratio >= 1) square = Math.floor(square * ratio) / ratio;
  // A long strip of few rows gets cells that are not square rather than rows too thin to see.
  const strip = across > 4 * down || down > 4 * across;
  const fitWidth = strip ? Math.min(across, Math.max(square, WIDE_CELL)) : square;
  const fitHeight = strip ? Math.min(down, Math.max(square, WIDE_CELL)) : square;
  const [cellWidth, cellHeight] = [fitWidth * zoom.factor, fitHeight * zoom.factor];
  const window = {
    width: zoom.factor > 1 ? Math.min(roomAcross, cellWidth * columns) : fitWidth * columns,
    height: zoom.factor > 1 ? Math.min(roomDown, cellHeight * rows) : fitHeight * rows,
  };
  const firstColumn = clamp(zoom.column, 0, Math.max(columns - window.width / cellWidth, 0));
  const firstRow = clamp(zoom.row, 0, Math.max(rows - window.height / cellHeight, 0));
  return {
    left,
    top,
    ...window,
    cellWidth,
    cellHeight,
    x: left - firstColumn * cellWidth,
    y: top - firstRow * cellHeight,
    upright,
    rowStep: Math.max(Math.ceil(LABEL_STEP / cellHeight), 1),
    columnStep: Math.max(Math.ceil((upright ? 1 : LABEL_STEP) / cellWidth), 1),
  };
}

/** @param {Geometry} geometry */
export function wholeSize({ left, top, width, height }) {
  return /** @type {[number, number]} */ ([left + width + GAP, top + height + GAP]);
}

/**
 * The cell at a point; a row or column of -1 beside them.
 * @param {Geometry} geometry @param {ShownMatrix} matrix @param {number} x @param {number} y
 */
export function cellAt(geometry, matrix, x, y) {
  const { left, top, width, height } = geometry;
  const inside = { across: x >= left && x < left + width, down: y >= top && y < top + height };
  const column = Math.floor((x - geometry.x) / geometry.cellWidth);
  const row = Math.floor((y - geometry.y) / geometry.cellHeight);
  return {
    row: inside.down && x < left + width ? clamp(row, 0, matrix.queries.length - 1) : -1,
    column: inside.across && y < top + height ? clamp(column, 0, matrix.keys.length - 1) : -1,
  };
}

/**
 * The zoom by so much around a point, which stays where it is.
 * @param {Geometry} geometry @param {Zoom} zoom @param {number} by
 * @param {number} x @param {number} y @returns {Zoom}
 */
export function zoomedAt(geometry, zoom, by, x, y) {
  const most = Math.max(60 / (geometry.cellWidth / zoom.factor), 1);
  const factor = clamp(zoom.factor * by, 1, most);
  const across = clamp(x - geometry.left, 0, geometry.width);
  const down = clamp(y - geometry.top, 0, geometry.height);
  const change = factor / zoom.factor;
  return {
    factor,
    column: (x - geometry.x) / geometry.cellWidth - across / (geometry.cellWidth * change),
    row: (y - geometry.y) / geometry.cellHeight - down / (geometry.cellHeight * change),
  };
}
