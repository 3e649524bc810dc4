/** The page: what was chosen becomes a scene, and the scene is shown. */

import { captionOf, precision, remarksOn, which } from "./caption.js";
import { onThemeChange, palette, setHeadColors } from "./colors.js";
import { offered, showOverviewTools, showSwitches, showTabs } from "./controls.js";
import { createHeatmap } from "./heatmap.js";
import { createImage } from "./image.js";
import { fillHelp, listen } from "./keyboard.js";
import { createLines } from "./lines.js";
import { readDocument } from "./model.js";
import { spell } from "./numbers.js";
import { createOverview } from "./overview.js";
import { createQueryKey } from "./query_key.js";
import { createReadout } from "./readout.js";
import { asCsv, asPng, asSvg, download } from "./save.js";
import { beyond, ownLimits, shownMatrix } from "./shown.js";
import { chosenHeads, chosenMap, createStore, spellHeads } from "./state.js";
import { make, part } from "./surface.js";
import { tableOf } from "./table.js";
import { createText } from "./text.js";

/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").PageMap} PageMap */
/** @typedef {import("./types.js").State} State */

/** More heads than these side by side could not be told apart by colour. */
const page = readDocument();
setHeadColors(page.head_colors);
const MOST_COLORS = page.head_colors.light.length;
const store = createStore();
const readout = createReadout(part("readout"));
const overview = createOverview(part("overview"), store);
/** @type {Record<string, import("./types.js").View>} */
const views = {
  heatmap: createHeatmap(store, readout),
  lines: createLines(store, readout),
  text: createText(store, readout),
  "query-key": createQueryKey(store, readout),
  image: createImage(store, readout),
};
/** @type {Scene} */
let scene;
let turn = 0;

/** @param {State} state @param {PageMap} map */
function usableView(state, map) {
  return offered(map).some(([name]) => name === state.view) ? state.view : "heatmap";
}

/** Work out the scene that the state asks for and show it, unless something newer was asked. */
async function refresh() {
  const mine = ++turn;
  part("stage").setAttribute("aria-busy", "true");
  const state = { ...store.state };
  const map = chosenMap(page.maps, state);
  state.view = usableView(state, map);
  if (state.view === "query-key") Object.assign(state, { unit: "tokens", specials: "keep" });
  const heads = chosenHeads(map, state);
  const shown = await cachedMatrix(map, heads, state);
  const apart = state.view === "lines" && heads.length > 1 && heads.length <= MOST_COLORS;
  const separate = apart ? await Promise.all(heads.map((head) => cachedMatrix(map, [head], state))) : [];
  if (mine !== turn) return;
  const scheme = page.schemes[state.colors] ?? page.schemes.blue;
  const limits = state.range === "view" ? ownLimits(map, shown) : map.limits;
  readout.signed = map.values === "signed";
  scene = { map, heads, shown, separate, palette: palette(scheme, limits), state };
  document.body.dataset.view = state.view;
  document.body.dataset.heads = String(map.layers.length * map.heads.length);
  showCaption();
  showScale();
  await showView();
  if (mine === turn) part("stage").setAttribute("aria-busy", "false");
}

/** @type {Map<string, Promise<import("./types.js").Shown>>} */
const matrices = new Map();

/** @param {PageMap} map @param {import("./types.js").Head[]} heads @param {State} state */
function cachedMatrix(map, heads, state) {
  const key = [map.blob, spellHeads(heads), state.mix, state.unit, state.specials].join("|");
  let matrix = matrices.get(key);
  if (!matrix) {
    if (matrices.size > 24) matrices.clear();
    matrix = shownMatrix(map, heads, state);
    matrices.set(key, matrix);
  }
  return matrix;
}

function showCaption() {
  part("texts").replaceChildren(...page.texts.map((text) => make("q", {}, [make("bdi", {}, [text])])));
  part("caption").textContent = captionOf(scene);
  part("remark").textContent = remarksOn(scene);
}

function showScale() {
  const { palette: colors, map, shown } = scene;
  const bar = /** @type {HTMLCanvasElement} */ (part("scale-bar"));
  const image = new ImageData(bar.width, 1);
  for (let x = 0; x < bar.width; x++) {
    const place = 3 * Math.round((x / (bar.width - 1)) * (colors.steps - 1));
    image.data.set([...colors.table.subarray(place, place + 3), 255], 4 * x);
  }
  /** @type {CanvasRenderingContext2D} */ (bar.getContext("2d")).putImageData(image, 0, 0);
  const [low, high] = colors.limits.map((limit) => (Number.isInteger(limit) ? String(limit) : spell(limit)));
  const words = [make("span", {}, [low]), bar, make("span", {}, [high]), make("small", {}, [map.unit + beyond(shown, colors.limits)])];
  part("scale").replaceChildren(...words);
  part("scale").setAttribute("aria-label", `colours: ${map.unit}, from ${low} to ${high}`);
}

async function showView() {
  const { state } = scene;
  const view = views[state.view];
  const holder = part("view");
  holder.setAttribute("aria-labelledby", `tab-${state.view}`);
  const table = part("table");
  table.classList.toggle("unseen", state.view !== "table");
  table.setAttribute("aria-busy", "true");
  if (view && holder.firstChild !== view.element) holder.replaceChildren(view.element);
  if (!view) holder.replaceChildren();
  part("readout").hidden = !view;
  if (view) await view.show(scene);
  if (state.view === "table") fillTable(table, scene);
  else later(() => fillTable(table, scene));
}

/** @param {HTMLElement} table @param {Scene} of */
function fillTable(table, of) {
  const caption = `${page.title}: ${of.map.stream}, ${which(of)}`;
  table.replaceChildren(tableOf(of.shown, caption));
  table.setAttribute("aria-busy", "false");
}

let waiting = 0;
/** @param {() => void} action */
function later(action) {
  clearTimeout(waiting);
  waiting = setTimeout(action, 400);
}

/** Everything around the view that depends on these parts of the state. @param {Set<string>} changed */
function showControls(changed) {
  const map = chosenMap(page.maps, store.state);
  if (changed.has("map")) overview.build(map);
  showTabs(part("views"), map, { ...store, state: { ...store.state, view: usableView(store.state, map) } });
  showSwitches(part("switches"), page, store);
  showOverviewTools(overview.tools, map, store);
  if (["map", "heads", "measure", "order", "filter"].some((name) => changed.has(name))) overview.arrange();
}

function drawOverview() {
  const map = chosenMap(page.maps, store.state);
  const scheme = page.schemes[store.state.colors] ?? page.schemes.blue;
  return overview.draw(palette(scheme, map.limits));
}

function showFooter() {
  const facts = page.provenance.map(([name, value]) => make("span", { class: "fact" }, [make("i", {}, [name]), ` ${value}`]));
  const saves = ["PNG", "SVG", "CSV"].map((kind) => {
    const button = make("button", { type: "button", id: `save-${kind.toLowerCase()}` }, [kind]);
    button.addEventListener("click", () => save(kind));
    return button;
  });
  const keys = make("button", { type: "button", id: "keys" }, ["Keys ?"]);
  keys.addEventListener("click", () => /** @type {HTMLDialogElement} */ (part("help")).showModal());
  part("footer").append(
    make("p", { class: "saves" }, ["Save this view as ", ...saves, keys]),
    ...page.notes.map((note) => make("p", { class: "note" }, [note])),
    make("p", { class: "facts" }, facts),
    make("p", { class: "hint" }, [`Rows are queries (who attends), columns are keys (who is attended to). ${precision(page.maps)}`]),
    ...(page.command ? [make("p", {}, [make("code", {}, [page.command])])] : []),
  );
}

/** @param {string} kind */
async function save(kind) {
  const name = `${scene.map.stream}-${which(scene)}`.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/-$/, "");
  const title = [page.title, part("caption").textContent ?? ""];
  const view = views[scene.state.view] ?? views.heatmap;
  if (!views[scene.state.view]) await view.show(scene);
  if (kind === "CSV") download(`${name}.csv`, asCsv(scene, page.id));
  else if (kind === "SVG") download(`${name}.svg`, asSvg(view, title));
  else download(`${name}.png`, await asPng(view, title));
}

if (!("DecompressionStream" in globalThis)) {
  part("caption").textContent =
    "This browser cannot unpack the weights: it needs one of 2023 or later (DecompressionStream).";
}
const every = new Set(Object.keys(store.state));
fillHelp(/** @type {HTMLDialogElement} */ (part("help")));
listen(page, store, /** @type {HTMLDialogElement} */ (part("help")));
showFooter();
showControls(every);
store.onChange((changed) => {
  showControls(changed);
  refresh();
  if (changed.has("map") || changed.has("colors")) drawOverview();
});
onThemeChange(() => {
  refresh();
  drawOverview();
});
await refresh();
document.body.dataset.ready = String(Math.round(performance.now()));
await drawOverview();
document.body.dataset.complete = String(Math.round(performance.now()));
