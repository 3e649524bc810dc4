/** Two columns of tokens and a line for each weight worth one. */

import { NEGATIVE, headColor } from "./colors.js";
import { withLabel, writeFitted } from "./labels.js";
import { clamp, spellShort } from "./numbers.js";
import { write } from "./surface.js";

/** @typedef {{row: number, column: number, value: number, color: string}} Line */
/**
 * @typedef {object} LinesLayout
 * @property {number} width
 * @property {number} height
 * @property {number} step from one token of the longer column to the next
 * @property {number} left where lines begin
 * @property {number} right where lines end
 * @property {{step: number, top: number}} rows from one query to the next, and where they begin
 * @property {{step: number, top: number}} columns
 */

/** More lines than these are a grey cloud, and slow. */
export const MOST_LINES = 4000;

/** @param {ShownMatrix} matrix @param {number} width @param {number} height that it should take, if its tokens allow @returns {LinesLayout} */
export function linesLayout(matrix, width, height) {
  const counts = [matrix.queries.length, matrix.keys.length];
  const step = clamp((height - 50) / Math.max(...counts), 15, 26);
  const label = Math.min(Math.max(width * 0.29, 80), 220);
  const most = Math.max(...counts);
  // The shorter column stands in the middle, or where it is much shorter is spread out.
  const [rows, columns] = counts.map((count) => {
    const own = most > 3 * count ? (most / count) * step : step;
    return { step: own, top: 34 + (most * step - count * own) / 2 };
  });
  return { width, height: 44 + most * step, step, left: label, right: width - label, rows, columns };
}

/** @param {LinesLayout} layout @param {number} row */
export const rowMiddle = ({ rows }, row) => rows.top + (row + 0.5) * rows.step;
/** @param {LinesLayout} layout @param {number} column */
export const columnMiddle = ({ columns }, column) => columns.top + (column + 0.5) * columns.step;

/**
 * The cells of at least a weight, of one token if one is given, strongest last.
 * @param {ShownMatrix[]} matrices one for each colour
 * @param {number} least
 * @param {number} row queries; -1 for all
 * @param {number} column keys; -1 for all
 * @param {string} color of the only matrix
 * @returns {Line[]}
 */
export function linesOf(matrices, least, row, column, color) {
  /** @type {Line[]} */
  const lines = [];
  matrices.forEach((matrix, number) => {
    const width = matrix.keys.length;
    const shade = matrices.length > 1 ? headColor(number) : color;
    const rows = row >= 0 ? [row, row + 1] : [0, matrix.queries.length];
    const columns = column >= 0 ? [column, column + 1] : [0, width];
    for (let from = rows[0]; from < rows[1]; from++) {
      for (let to = columns[0]; to < columns[1]; to++) {
        const value = matrix.values[from * width + to];
        if (Math.abs(value) >= least && value) lines.push({ row: from, column: to, value, color: shade });
      }
    }
  });
  return lines.sort((a, b) => Math.abs(a.value) - Math.abs(b.value));
}

/** The curve from a query to a key. @param {Surface} surface @param {LinesLayout} layout @param {number} row @param {number} column */
export function traceLine(surface, layout, row, column) {
  const [middle, from, to] = [(layout.left + layout.right) / 2, rowMiddle(layout, row), columnMiddle(layout, column)];
  surface.moveTo(layout.left + 6, from);
  surface.bezierCurveTo(middle, from, middle, to, layout.right - 6, to);
}

/** @param {Surface} surface @param {LinesLayout} layout @param {Line[]} lines @param {number} top what the broadest line stands for */
export function paintLines(surface, layout, lines, top) {
  for (const { row, column, value, color } of lines) {
    const share = Math.min(Math.abs(value) / top, 1);
    surface.strokeStyle = value < 0 ? NEGATIVE : color;
    surface.globalAlpha = 0.08 + 0.87 * share;
    surface.lineWidth = 0.6 + 3.4 * share;
    surface.beginPath();
    traceLine(surface, layout, row, column);
    surface.stroke();
  }
  surface.globalAlpha = 1;
}

/**
 * @param {Surface} surface
 * @param {LinesLayout} layout
 * @param {ShownMatrix} matrix
 * @param {Cell} active
 * @param {Theme} theme
 * @param {[number, number]} window top and bottom of what can be seen
 */
export function paintTokens(surface, layout, matrix, active, theme, window) {
  const label = layout.left - 14;
  const width = matrix.keys.length;
  /** @param {number} y */
  const isVisible = (y) => y >= window[0] - 20 && y <= window[1] + 20;
  matrix.queries.forEach((token, row) => {
    const y = rowMiddle(layout, row);
    const value = active.column >= 0 ? matrix.values[row * width + active.column] : null;
    if (isVisible(y)) word(surface, layout, token, [layout.left, y], "right", label, value, row === active.row, theme);
  });
  matrix.keys.forEach((token, column) => {
    const y = columnMiddle(layout, column);
    const value = active.row >= 0 ? matrix.values[active.row * width + column] : null;
    if (isVisible(y)) word(surface, layout, token, [layout.right, y], "left", label, value, column === active.column, theme);
  });
}

/**
 * One token, and behind it what it gives to or gets from the active one.
 * @param {Surface} surface @param {LinesLayout} layout @param {ShownToken} token
 * @param {[number, number]} place @param {"left" | "right"} align @param {number} room
 * @param {number | null} value @param {boolean} strong @param {Theme} theme
 */
function word(surface, layout, token, [x, y], align, room, value, strong, theme) {
  const size = Math.min(13, layout.step * 0.86);
  const number = value !== null && Math.abs(value) >= 0.0095 ? spellShort(value) : "";
  const sign = align === "left" ? 1 : -1;
  const quiet = token.special || (value !== null && !number);
  const color = strong ? theme.accent : quiet ? theme.faint : theme.ink;
  const width = writeFitted(surface, withLabel(token), room - (number ? 28 : 0), x + sign * 2, y, { size, weight: strong ? "600" : "", color, align });
  if (number) write(surface, number, x + sign * (width + 9), y, { size: size * 0.85, weight: "600", color: theme.accent, align });
}
