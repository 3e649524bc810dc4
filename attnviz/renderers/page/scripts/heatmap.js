/** The heat map: hover for numbers, a click pins a cell, wheel and keys pan and zoom. */

import { scaleOf } from "./caption.js";
import { theme } from "./colors.js";
import { cellAt, gridGeometry, readZoom, spellZoom, wholeSize, zoomedAt } from "./grid_geometry.js";
import { gridImage, paintCut, paintGrid, paintLabel } from "./grid_painting.js";
import { NOWHERE, look, lookAt, pinOf, pointedCell } from "./look.js";
import { clamp } from "./numbers.js";
import { ARROWS, make, onceAFrame, sizeCanvas } from "./surface.js";

/** @import { Geometry, Zoom } from "./grid_geometry.js" */

/**
 * @param {Store} store
 * @param {Readout} readout
 * @param {((row: number, column: number) => void) | null} toggleLink of a page that answers
 * @param {boolean} isLinked whether the rest of the page shows what is pointed at
 * @returns {View}
 */
export function createHeatmap(store, readout, toggleLink, isLinked) {
  const base = make("canvas", { "aria-hidden": "true" });
  const over = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "heat map" });
  const element = make("div", { class: "plot" }, [base, over]);
  /** @type {Scene} */
  let scene;
  /** @type {Geometry} */
  let geometry;
  /** @type {ReturnType<typeof gridImage> | undefined} */
  let image;
  /** @type {Cell} */
  let hoverCell = NOWHERE;
  let zoom = readZoom("");

  const paintBase = () => {
    const width = Math.max(element.clientWidth, 280);
    const height = clamp(innerHeight - 150, 420, 1000);
    const ruler = /** @type {Surface} */ (base.getContext("2d"));
    geometry = gridGeometry(scene.matrix, width, height, zoom, ruler);
    image ??= gridImage(scene.matrix, scene.palette, geometry);
    const size = wholeSize(geometry);
    const surface = sizeCanvas(base, Math.max(width, size[0]), size[1]);
    paintGrid(surface, geometry, scene.matrix, scene.palette, theme(), image);
    sizeCanvas(over, Math.max(width, size[0]), size[1]);
    element.style.height = `${size[1]}px`;
    paintOver();
  };
  const repaint = onceAFrame(paintBase);

  /** The cell whose numbers are shown: the one pointed at, else the pinned one. */
  const current = () => (hoverCell.row >= 0 || hoverCell.column >= 0 ? hoverCell : pinOf(scene));

  const paintOver = () => {
    const surface = /** @type {Surface} */ (over.getContext("2d"));
    surface.clearRect(0, 0, over.width, over.height);
    paintCrossing(surface, geometry, scene, current());
    const cell = current();
    if (cell.row < 0 && cell.column < 0) readout.invite(scene, toggleLink && !scene.map.compared ? " Alt + click cuts a link." : "");
    else readout.show(scene.matrix, cell.row, cell.column);
  };
  const repaintOver = onceAFrame(paintOver);

  look.onChange((pointing) => {
    const cell = isLinked && scene && element.isConnected && pointedCell(pointing, scene, element);
    if (!cell) return;
    hoverCell = cell;
    repaintOver();
  });

  /** @param {Cell} cell */
  const hover = (cell) => {
    if (cell.row === hoverCell.row && cell.column === hoverCell.column) return;
    hoverCell = cell;
    repaintOver();
    if (isLinked) lookAt(scene, cell.row, cell.column, element);
  };
  /** @param {Zoom} next */
  const zoomTo = (next) => {
    zoom = next;
    // A swipe scrolls the page unless there is something to pan.
    over.style.touchAction = zoom.factor > 1 ? "none" : "";
    repaint();
    clearTimeout(timer);
    timer = setTimeout(() => store.set({ zoom: spellZoom(zoom) }), 250);
  };
  let timer = 0;

  over.addEventListener("wheel", (event) => {
    const { x, y } = at(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoomTo(zoomedAt(geometry, zoom, Math.exp(-event.deltaY * 0.004), x, y));
    } else if (zoom.factor > 1) {
      event.preventDefault();
      zoomTo(pan(geometry, zoom, -event.deltaX, -event.deltaY));
    }
  }, { passive: false });

  /** @type {{x: number, y: number, hasMoved: boolean} | null} */
  let grip = null;
  over.addEventListener("pointerdown", (event) => {
    grip = { ...at(event), hasMoved: false };
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointermove", (event) => {
    const { x, y } = at(event);
    if (grip && zoom.factor > 1 && (grip.hasMoved || Math.hypot(x - grip.x, y - grip.y) > 4)) {
      zoomTo(pan(geometry, zoom, x - grip.x, y - grip.y));
      grip = { x, y, hasMoved: true };
      return;
    }
    hover(cellAt(geometry, scene.matrix, x, y));
  });
  over.addEventListener("pointerup", (event) => {
    const { x, y } = at(event);
    const cell = cellAt(geometry, scene.matrix, x, y);
    const same = cell.row === scene.state.row && cell.column === scene.state.column;
    if (grip && !grip.hasMoved && toggleLink && event.altKey && cell.row >= 0 && cell.column >= 0) toggleLink(cell.row, cell.column);
    else if (grip && !grip.hasMoved) store.set(same ? NOWHERE : cell);
    grip = null;
  });
  over.addEventListener("pointercancel", () => (grip = null));
  over.addEventListener("pointerleave", () => hover(NOWHERE));
  over.addEventListener("dblclick", (event) => {
    const { x, y } = at(event);
    zoomTo(zoom.factor > 1 ? readZoom("") : zoomedAt(geometry, zoom, 4, x, y));
  });
  over.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = [geometry.left + geometry.width / 2, geometry.top + geometry.height / 2];
    if (event.key === "+" || event.key === "=") zoomTo(zoomedAt(geometry, zoom, 1.5, middle[0], middle[1]));
    else if (event.key === "-") zoomTo(zoomedAt(geometry, zoom, 1 / 1.5, middle[0], middle[1]));
    else if (event.key === "0") zoomTo(readZoom(""));
    else if (event.key === "Escape") store.set(NOWHERE);
    else if (!walk(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  /** @param {string} key */
  function walk(key) {
    const step = ARROWS[key];
    if (!step) return false;
    const from = current();
    const row = clamp(Math.max(from.row, 0) + (from.row < 0 ? 0 : step[0]), 0, scene.matrix.queries.length - 1);
    const column = clamp(Math.max(from.column, 0) + (from.column < 0 ? 0 : step[1]), 0, scene.matrix.keys.length - 1);
    hoverCell = NOWHERE;
    zoom = reveal(geometry, zoom, row, column);
    store.set({ row, column, zoom: spellZoom(zoom) });
    return true;
  }

  new ResizeObserver(() => scene && element.isConnected && repaint()).observe(element);
  return {
    element,
    show(next) {
      const same = scene && scene.matrix === next.matrix && scene.palette === next.palette;
      scene = next;
      zoom = readZoom(scene.state.zoom);
      if (!same) image = undefined;
      hoverCell = NOWHERE;
      over.ariaLabel = `Heat map of ${scene.matrix.queries.length} queries by ${scene.matrix.keys.length} keys. Arrow keys go from cell to cell; the table after it holds the numbers.`;
      paintBase();
    },
    figure(picture, width) {
      const ruler = /** @type {Surface} */ (base.getContext("2d"));
      const layout = gridGeometry(picture.matrix, width, 1000, readZoom(picture.state.zoom), ruler);
      const cells = gridImage(picture.matrix, picture.palette, layout);
      return { height: wholeSize(layout)[1], scale: scaleOf(picture), paint(surface) {
        paintGrid(surface, layout, picture.matrix, picture.palette, theme(), cells);
        paintCrossing(surface, layout, picture, pinOf(scene));
      } };
    },
  };
}

/** @param {MouseEvent} event */
const at = (event) => ({ x: event.offsetX, y: event.offsetY });

/** @param {Geometry} geometry @param {Zoom} zoom @param {number} across @param {number} down */
function pan(geometry, zoom, across, down) {
  return {
    factor: zoom.factor,
    column: Math.max((geometry.left - geometry.x - across) / geometry.cellWidth, 0),
    row: Math.max((geometry.top - geometry.y - down) / geometry.cellHeight, 0),
  };
}

/** The zoom, moved just enough to show a cell. @param {Geometry} geometry @param {Zoom} zoom @param {number} row @param {number} column */
function reveal(geometry, zoom, row, column) {
  if (zoom.factor <= 1) return zoom;
  const [across, down] = [geometry.width / geometry.cellWidth, geometry.height / geometry.cellHeight];
  return {
    factor: zoom.factor,
    column: clamp(zoom.column, column + 1 - across, column),
    row: clamp(zoom.row, row + 1 - down, row),
  };
}

/** The row and the column of a cell marked. @param {Surface} surface @param {Geometry} geometry @param {Scene} scene @param {Cell} cell */
function paintCrossing(surface, geometry, scene, { row, column }) {
  const { matrix } = scene;
  const colors = theme();
  const { left, top, width, height, cellWidth, cellHeight, x, y } = geometry;
  surface.save();
  surface.beginPath();
  surface.rect(left - 1, top - 1, width + 2, height + 2);
  surface.clip();
  const band = [Math.max(cellWidth, 2), Math.max(cellHeight, 2)];
  scene.cuts.forEach(([at, to]) => paintCut(surface, x + (to + 0.5) * cellWidth, y + (at + 0.5) * cellHeight, Math.min(cellWidth, cellHeight) * 0.22));
  [surface.strokeStyle, surface.lineWidth] = [colors.accent, 1];
  if (row >= 0) surface.strokeRect(left - 2, y + row * cellHeight - 0.5, width + 4, band[1]);
  if (column >= 0) surface.strokeRect(x + column * cellWidth - 0.5, top - 2, band[0], height + 4);
  surface.restore();
  const [middleRow, middleColumn] = [y + (row + 0.5) * cellHeight, x + (column + 0.5) * cellWidth];
  if (row >= 0 && middleRow >= top && middleRow <= top + height) {
    paintLabel(surface, geometry, matrix.queries[row], row, colors, "row", true);
  }
  if (column >= 0 && middleColumn >= left && middleColumn <= left + width) {
    paintLabel(surface, geometry, matrix.keys[column], column, colors, "column", true);
  }
}
