/** One text's maps, looked at: what was chosen becomes a scene, and the scene is shown. */

import { remarksOn, which } from "./caption.js";
import { inLight, palette, schemeName } from "./colors.js";
import { offeredViews } from "./controls.js";
import { createHeatmap } from "./heatmap.js";
import { createImage } from "./image.js";
import { createLines } from "./lines.js";
import { createQueryKey } from "./query_key.js";
import { createReadout } from "./readout.js";
import { whatItSays } from "./says.js";
import { ownLimits, buildMatrix } from "./shown.js";
import { chosenHeads, chosenMap, spellHeads } from "./state.js";
import { make, paintAt } from "./surface.js";
import { tableFigure, tableOf } from "./table.js";
import { createText } from "./text.js";

/** @typedef {ReturnType<typeof createPane>} Pane */

/** @param {State} state @param {PageMap} map */
export const usableView = (state, map) => offeredViews(map).some(([name]) => name === state.view) ? state.view : "heatmap";

/** The parts of a stage of its own, for a second text. */
export function secondStage() {
  const [readout, view] = [make("div", { class: "readout" }), make("div", { class: "view", role: "group", "aria-label": "View of the second sentence" })];
  const [remark, table] = [make("p", { class: "remark" }), make("div", { class: "table unseen", role: "region", "aria-label": "Table of the second sentence" })];
  const [caption, rests] = [make("p", { class: "hint" }), make("p", { class: "rests" })];
  const stage = make("section", { class: "stage", id: "stage-2", "aria-label": "Second sentence" }, [caption, rests, readout, view, remark, table]);
  return { stage, caption, rests, readout, view, remark, table };
}

/** The lines of a sentence beside its matrix: what is pointed at in one is marked in the other. @param {View} lines @param {View} matrix @returns {View} */
function sideBySide(lines, matrix) {
  const element = make("div", { class: "together" });
  return {
    element,
    async show(scene) {
      if (matrix.element.parentElement !== element) element.replaceChildren(lines.element, matrix.element); // else the focus stays
      await lines.show(scene);
      await matrix.show(scene);
    },
    async figure(scene, width) {
      const wide = width > 560 ? width * 0.4 : width;
      const [left, right] = [await lines.figure(scene, wide), await matrix.figure(scene, width > 560 ? width - wide : width)];
      const [x, y] = width > 560 ? [wide, 0] : [0, left.height];
      return { ...right, legend: left.legend, height: Math.max(left.height, y + right.height), paint(surface) {
        left.paint(surface);
        paintAt(surface, x, y, () => right.paint(surface));
      } };
    },
  };
}

/**
 * @param {{stage: HTMLElement, rests: HTMLElement, readout: HTMLElement, view: HTMLElement, remark: HTMLElement, table: HTMLElement}} parts
 * @param {Store} store
 * @param {import("./off.js").Switches | null} off what is switched off, of a page that answers
 * @param {boolean} [isLinked] whether the rest of the page shows what is pointed at
 */
export function createPane(parts, store, off, isLinked = false) {
  const readout = createReadout(parts.readout);
  /** @type {Record<string, View>} */
  const views = {
    heatmap: createHeatmap(store, readout, off && toggleLink, isLinked),
    lines: createLines(store, readout, off && toggleLink, isLinked),
    text: createText(store, readout, isLinked),
    "query-key": createQueryKey(store, readout),
    image: createImage(store, readout),
  };
  views.sentence = sideBySide(views.lines, views.heatmap);
  /** @type {Scene} */
  let scene;
  let [turn, timer] = [0, 0];
  /** @type {WeakMap<PageMap, Map<string, Promise<ShownMatrix>>>} */
  const matrices = new WeakMap();

  /** Cut a link in the heads looked at, or mend it. @param {number} row @param {number} column */
  function toggleLink(row, column) {
    const [query, key] = [scene.matrix.queries[row], scene.matrix.keys[column]];
    if (query && key && off?.fits(scene.map)) off.toggleLink(scene.map, scene.heads, query, key);
  }

  /** @param {PageMap} map @param {Head[]} heads @param {State} state */
  function cachedMatrix(map, heads, state) {
    const key = [spellHeads(heads), state.mix, state.unit, state.specials].join("|");
    const own = matrices.get(map) ?? new Map();
    matrices.set(map, own);
    if (!own.has(key)) {
      if (own.size > 24) own.clear();
      own.set(key, buildMatrix(map, heads, state));
    }
    return /** @type {Promise<ShownMatrix>} */ (own.get(key));
  }

  /**
   * Work out the scene that the state asks for and show it, unless something newer was asked.
   * @param {PageDocument} page
   * @param {(scene: Scene) => void} before gets the scene before it is shown
   * @param {Partial<State>} [apart] what of the state is other here
   */
  async function show(page, before, apart = {}) {
    const ownTurn = ++turn;
    parts.stage.setAttribute("aria-busy", "true");
    const state = { ...store.state, ...apart };
    const map = chosenMap(page.maps, state);
    state.view = usableView(state, map);
    if (state.view === "query-key") Object.assign(state, { unit: "tokens", specials: "keep" });
    const heads = chosenHeads(map, state);
    const matrix = await cachedMatrix(map, heads, state);
    // More heads side by side than there are colours could not be told apart.
    const several = ["lines", "sentence"].includes(state.view) && heads.length > 1 && heads.length <= page.head_colors.light.length;
    const separate = several ? await Promise.all(heads.map((head) => cachedMatrix(map, [head], state))) : [];
    const whole = await cachedMatrix(map, heads, { ...state, specials: "keep" });
    if (ownTurn !== turn) return false;
    const { links, rests } = whatItSays(map, whole, matrix);
    const scheme = page.schemes[schemeName(state)] ?? page.schemes.blue;
    // A mean over heads is far below the largest weight of any head.
    const mean = state.range === "auto" && heads.length > 1 && state.mix === "mean";
    const limits = state.range === "view" || mean ? ownLimits(map, matrix) : map.limits;
    readout.signed = map.values === "signed";
    const cuts = off?.cutCells(map, heads, matrix) ?? [];
    scene = { map, heads, matrix, links, rests, separate, palette: palette(scheme, limits), scheme, state, cuts };
    before(scene);
    parts.remark.textContent = remarksOn(scene);
    parts.rests.textContent = rests;
    await showView(page.title);
    if (ownTurn === turn) parts.stage.setAttribute("aria-busy", "false");
    return ownTurn === turn;
  }

  /** @param {string} title */
  async function showView(title) {
    const { state } = scene;
    const view = views[state.view];
    const { table, view: holder } = parts;
    table.classList.toggle("unseen", state.view !== "table");
    table.setAttribute("aria-busy", "true");
    if (view && holder.firstChild !== view.element) holder.replaceChildren(view.element);
    if (!view) holder.replaceChildren();
    parts.readout.hidden = !view;
    if (view) await view.show(scene);
    clearTimeout(timer);
    const current = scene;
    const fill = () => {
      table.tabIndex = state.view === "table" ? 0 : -1;
      table.replaceChildren(tableOf(current.matrix, `${title}: ${current.map.stream}, ${which(current)}`));
      table.setAttribute("aria-busy", "false");
    };
    if (state.view === "table") fill();
    else timer = setTimeout(fill, 400);
  }

  return {
    show,
    toggleLink,
    get scene() {
      return scene;
    },
    /** Draw the present view again, for a file. @param {number} width @param {boolean} light @param {(scene: Scene, width: number) => Promise<Drawing>} heads draws every head */
    figure(width, light, heads) {
      return inLight(light, () => {
        const current = { ...scene, palette: palette(scene.scheme, scene.palette.limits) };
        if (scene.state.view === "heads") return heads(current, width);
        return views[scene.state.view]?.figure(current, width) ?? tableFigure(current, width);
      });
    },
  };
}
