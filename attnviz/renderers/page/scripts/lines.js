/** The view of weighted lines between queries on the left and keys on the right. */

import { spellName } from "./caption.js";
import { NEGATIVE, headColor, theme } from "./colors.js";
import { AXES, paintCut } from "./grid_painting.js";
import { MOST_LINES, columnMiddle, linesLayout, linesOf, paintLines, paintTokens, rowMiddle, traceLine } from "./lines_painting.js";
import { NOWHERE, look, lookAt, pinOf, pointedCell } from "./look.js";
import { clamp, countNoun, inThousands, largest, spell } from "./numbers.js";
import { headsOfLayer } from "./model.js";
import { spellHeads } from "./state.js";
import { ARROWS, make, onceAFrame, patch, sizeCanvas, write } from "./surface.js";

/** @import { Line, LinesLayout } from "./lines_painting.js" */

const FEW_LINES = 600;
/** How many of these views there are. */
let count = 0;

/**
 * @param {Store} store
 * @param {Readout} readout
 * @param {((row: number, column: number) => void) | null} toggleLink of a page that answers
 * @param {boolean} isLinked whether the rest of the page shows what is pointed at
 * @returns {View}
 */
export function createLines(store, readout, toggleLink, isLinked) {
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "lines between tokens" });
  const room = make("div", { class: "lines-room" }, [canvas]);
  const scroller = make("div", { class: "lines" }, [room]);
  const slider = make("input", { type: "range", min: 0, max: 1, step: 0.001, id: count++ ? `least-${count}` : "least" });
  const least = make("output");
  const tiles = make("div", { class: "tiles", role: "group" });
  const tools = make("div", { class: "tools" }, [make("label", {}, ["lines from ", slider]), least]);
  const element = make("div", {}, [tiles, scroller, tools]);
  /** @type {Scene} */
  let scene;
  /** @type {LinesLayout} */
  let layout;
  /** @type {Line[]} */
  let every = [];
  let hover = NOWHERE;
  let threshold = 0;

  const readPin = () => (scene.state.row >= 0 ? { ...pinOf(scene), column: -1 } : pinOf(scene));
  const active = () => (hover.row >= 0 || hover.column >= 0 ? hover : readPin());

  /** @param {Surface} surface @param {LinesLayout} plan @param {[number, number]} window @param {Cell} now what is looked at @param {Scene} target @param {typeof every} all */
  const paintAll = (surface, plan, window, now, target, all) => {
    const colors = theme();
    const one = now.row >= 0 || now.column >= 0;
    const lines = one ? linesOf(matricesOf(target), Math.min(threshold, 0.002), now.row, now.column, colors.accent) : all;
    const top = broadest(target, all);
    paintLines(surface, plan, visible(lines, plan, window), top);
    const cuts = target.cuts.map(([row, column]) => ({ row, column, value: -0.25 * top, color: NEGATIVE }));
    paintLines(surface, plan, cuts, top);
    cuts.forEach(({ row, column }) => paintCut(surface, (plan.left + plan.right) / 2, (rowMiddle(plan, row) + columnMiddle(plan, column)) / 2, 5));
    paintTokens(surface, plan, target.matrix, now, colors, window);
    const [query, key] = target.matrix.axes ?? AXES;
    write(surface, query, plan.left, window[0] + 12, { size: 11, color: colors.faint, align: "right" });
    write(surface, key, plan.right, window[0] + 12, { size: 11, color: colors.faint });
  };
  const paintNow = () => {
    const height = scroller.clientHeight;
    const surface = sizeCanvas(canvas, layout.width, Math.min(height, layout.height));
    const from = scroller.scrollTop;
    surface.translate(0, -from);
    const now = active();
    paintAll(surface, layout, [from, from + height], now, scene, every);
    if (scene.state.view !== "lines") return; // the matrix beside them tells of both
    if (now.row >= 0 || now.column >= 0) readout.show(scene.matrix, now.row, now.column);
    else readout.invite(scene, toggleLink ? " A click on a line cuts that link." : "");
  };
  const repaint = onceAFrame(paintNow);

  /** Every line from the threshold on. @param {Scene} target */
  const linesFrom = (target) => linesOf(matricesOf(target), Math.max(threshold, 1e-6), -1, -1, theme().accent);
  const arrange = () => {
    const most = clamp(innerHeight - 260, 360, 860);
    layout = linesLayout(scene.matrix, Math.max(scroller.clientWidth || 600, 260), most);
    scroller.style.height = `${Math.min(most, layout.height)}px`;
    room.style.height = `${layout.height}px`;
    threshold = scene.state.least >= 0 ? scene.state.least : usual(matricesOf(scene));
    every = linesFrom(scene);
    slider.max = String(Math.max(broadest(scene, every), 0.001));
    slider.value = String(threshold);
    slider.setAttribute("aria-valuetext", spell(threshold));
    const shownCount = Math.min(every.length, MOST_LINES);
    const words = shownCount < every.length ? `, the strongest ${countNoun(shownCount, "line")} of ${inThousands(every.length)}` : `, ${countNoun(shownCount, "line")}`;
    least.textContent = ` ${spell(threshold)}${words}`;
    every = every.slice(-MOST_LINES);
    showTiles();
    const remark = /** @type {HTMLElement | null | undefined} */ (element.closest("section")?.querySelector(".remark"));
    if (remark) remark.dataset.lines = String(shownCount);
    paintNow();
  };

  /** The heads of the layer looked at, and others that are chosen, each a tile in the colour of its lines. */
  function showTiles() {
    const { map, heads, separate } = scene;
    const names = [...new Set([...headsOfLayer(map, heads[0][0]), ...heads].map((head) => spellHeads([head])))];
    tiles.hidden = names.length < 2;
    tiles.ariaLabel = "Heads whose lines are drawn";
    patch(tiles, [make("span", { class: "hint" }, [spellName("layer", map.layers[heads[0][0]]), ", heads"]), ...names.map((name) => {
      const [layer, head] = name.split(".").map(Number);
      const place = heads.findIndex((one) => spellHeads([one]) === name);
      const own = layer === heads[0][0] ? map.heads[head] : `${map.layers[layer]}.${map.heads[head]}`;
      const chosen = spellHeads(heads.filter((_, other) => other !== place)).split(",").filter(Boolean);
      const tile = make("button", {
        type: "button", "data-key": name, "aria-pressed": String(place >= 0), title: `layer ${map.layers[layer]} ${spellName("head", map.heads[head])}: click adds or takes away, double-click looks at it alone`,
        onclick: () => store.set({ heads: (place < 0 ? [...chosen, name] : chosen).join(",") || name }), ondblclick: () => store.set({ heads: name }),
      }, [own]);
      if (place >= 0) tile.style.setProperty("--tile", separate.length ? headColor(place) : "var(--accent)");
      return tile;
    })]);
  }

  /** The strongest line under a point. @param {number} x @param {number} y */
  const lineAt = (x, y) => {
    const surface = /** @type {Surface} */ (document.createElement("canvas").getContext("2d"));
    surface.lineWidth = 10;
    return [...scene.cuts.map(([row, column]) => ({ row, column })), ...every.toReversed()].find(({ row, column }) => {
      surface.beginPath();
      traceLine(surface, layout, row, column);
      return surface.isPointInStroke(x, y);
    });
  };

  slider.addEventListener("input", () => store.set({ least: Number(slider.value) }));
  scroller.addEventListener("scroll", () => scene && repaint());
  canvas.addEventListener("pointermove", (event) => {
    const next = tokenAt(layout, scene, event.offsetX, event.offsetY + scroller.scrollTop);
    if (next.row === hover.row && next.column === hover.column) return;
    hover = next;
    repaint();
    if (isLinked) lookAt(scene, next.row, next.column, element);
  });
  canvas.addEventListener("pointerleave", () => {
    hover = NOWHERE;
    repaint();
    if (isLinked) look.at([]);
  });
  look.onChange((pointing) => {
    const cell = isLinked && scene && element.isConnected && pointedCell(pointing, scene, element);
    if (!cell) return;
    hover = cell.row >= 0 ? { row: cell.row, column: -1 } : cell;
    repaint();
  });
  canvas.addEventListener("click", (event) => {
    const token = tokenAt(layout, scene, event.offsetX, event.offsetY + scroller.scrollTop);
    const line = toggleLink && token === NOWHERE ? lineAt(event.offsetX, event.offsetY + scroller.scrollTop) : undefined;
    if (line) return toggleLink?.(line.row, line.column);
    const same = token.row === scene.state.row && token.column === scene.state.column;
    store.set(same ? NOWHERE : token);
  });
  canvas.addEventListener("keydown", (event) => {
    const [step, across] = ARROWS[event.key] ?? [0, 0];
    const now = store.state; // the scene may be behind
    if (step) {
      const side = now.column >= 0 ? "column" : "row";
      const count = side === "row" ? scene.matrix.queries.length : scene.matrix.keys.length;
      const place = clamp(now[side] + step, 0, count - 1);
      store.set({ ...NOWHERE, [side]: place });
      const middle = side === "row" ? rowMiddle(layout, place) : columnMiddle(layout, place);
      scroller.scrollTop = clamp(scroller.scrollTop, middle - scroller.clientHeight + 40, middle - 40);
    } else if (across) {
      const [side, tokens] = across < 0 ? ["row", scene.matrix.queries] : ["column", scene.matrix.keys];
      store.set({ ...NOWHERE, [side]: clamp(Math.max(now.row, now.column), 0, tokens.length - 1) });
    } else if (event.key === "Escape") store.set(NOWHERE);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  new ResizeObserver(() => scene && element.isConnected && arrange()).observe(element);

  return {
    element,
    show(next) {
      scene = next;
      hover = NOWHERE;
      canvas.setAttribute("aria-label", "Lines from queries to keys. Up and down choose a token, left and right its side.");
      arrange();
    },
    figure(target, width) {
      const plan = linesLayout(target.matrix, width, 860);
      const heads = namesOf(target).map((words, number) => ({ color: headColor(number), words }));
      const all = linesFrom(target).slice(-MOST_LINES);
      const words = `lines from ${spell(threshold)} on; the broadest ${spell(broadest(target, all))}, ${target.map.unit}`;
      return { height: plan.height, legend: [...heads, { color: "", words }], paint: (surface) => paintAll(surface, plan, [0, plan.height], readPin(), target, all) };
    },
  };
}

/** What the broadest line stands for: the largest weight, since only large ones are drawn. @param {Scene} scene @param {{value: number}[]} lines strongest last */
const broadest = ({ palette }, lines) => Math.max(palette.limits[1], Math.abs(lines.at(-1)?.value ?? 0));

/** @param {Scene} scene */
const matricesOf = ({ separate, matrix }) => (separate.length ? separate : [matrix]);

/** The heads that are shown side by side. @param {Scene} scene */
const namesOf = ({ map, heads, separate }) => separate.map((_, number) => `${spellName("layer", map.layers[heads[number][0]])} ${spellName("head", map.heads[heads[number][1]])}`);

/** A weight above which some hundreds of lines remain, but never below a twentieth. @param {ShownMatrix[]} matrices */
function usual(matrices) {
  const values = matrices[0].values;
  if (values.length <= 100) return 0.02;
  const strong = largest(values, Math.min(FEW_LINES, values.length >> 1, 250));
  return Math.max(0.02, Math.round(Math.abs(values[strong[strong.length - 1]]) * 500) / 500);
}

/** @param {Line[]} lines @param {LinesLayout} layout @param {[number, number]} window */
function visible(lines, layout, [top, bottom]) {
  return lines.filter(({ row, column }) => {
    const [from, to] = [rowMiddle(layout, row), columnMiddle(layout, column)];
    return Math.max(from, to) >= top && Math.min(from, to) <= bottom;
  });
}

/** @param {LinesLayout} layout @param {Scene} scene @param {number} x @param {number} y */
function tokenAt(layout, scene, x, y) {
  const [row, column] = [layout.rows, layout.columns].map(({ top, step }) => Math.floor((y - top) / step));
  if (x <= layout.left + 4) return row >= 0 && row < scene.matrix.queries.length ? { row, column: -1 } : NOWHERE;
  if (x < layout.right - 4) return NOWHERE;
  return column >= 0 && column < scene.matrix.keys.length ? { row: -1, column } : NOWHERE;
}
