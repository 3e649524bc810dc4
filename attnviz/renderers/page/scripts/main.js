/** The page: a finished run, or a model that answers; what was chosen is shown. */

import { captionOf, precision, which } from "./caption.js";
import { onThemeChange, paintBar, palette, setHeadColors } from "./colors.js";
import { showOverviewTools, showSwitches, showTabs } from "./controls.js";
import { fillHelp, listen } from "./keyboard.js";
import { createLive } from "./live.js";
import { tellWhatBreaks } from "./broken.js";
import { readDocument } from "./model.js";
import { spell } from "./numbers.js";
import { createOff } from "./off.js";
import { createOverview } from "./overview.js";
import { createPane, usableView } from "./pane.js";
import { asCsv, asJson, asPng, asSvg, download } from "./save.js";
import { beyond } from "./shown.js";
import { ASKED, chosenMap, openStore } from "./state.js";
import { make, part } from "./surface.js";
import { createWhy } from "./why.js";

/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").PageDocument} PageDocument */

tellWhatBreaks(part("header"));
const finished = readDocument();
setHeadColors(finished.head_colors);
const known = { document: finished, maps: finished.maps };
const store = openStore(known);
const off = finished.lenses ? createOff(store) : null;
const overview = createOverview(part("overview"), store, off);
const pane = createPane(
  { stage: part("stage"), readout: part("readout"), view: part("view"), remark: part("remark"), table: part("table") },
  store, off,
);
const live = off ? createLive(finished, store, off, pane) : null;
let page = live ? await live.first : finished;
known.maps = page.maps;
const why = finished.why ? createWhy(store, () => page.maps, recall) : null;
if (why) part("stage").after(why.element);
if (finished.why?.length && !location.hash) openOn(finished.why[0].link);
if (finished.claims?.length) part("bar").before(make("ul", { id: "claims", "aria-label": "What decided the answer" }, finished.claims.map(claimItem)));
// Where a model looks in a picture is first seen on the picture.
if (page.maps[0]?.patches?.keys && !location.hash.includes("view=")) store.set({ view: "image" }, true);

async function refresh() {
  const shown = await Promise.all([pane.show(page, told), live?.showSecond()]);
  live?.showChoice();
  return shown[0];
}

/** Answer with the report that the page has of a link. @param {{link: (string | number)[]}} asked */
function recall({ link }) {
  const known = finished.why ?? [];
  const found = known.find((one) => one.link.join() === link.join());
  const error = `The page explains ${known.length} links, from the one that was asked for along its writers. attnviz serve explains any link.`;
  why?.hear(found ? { id: 0, kind: "why", report: found.report } : { id: 0, kind: "why", error });
}

/** @param {{text: string, link: (string | number)[] | null}} claim */
function claimItem({ text, link }) {
  const [about, ...words] = text.split(": ");
  const shown = [make("b", {}, [about]), make("span", {}, [words.join(": ")])];
  if (!link) return make("li", {}, shown);
  return make("li", {}, [make("button", { type: "button", title: "Show this link", onclick: () => openOn(link) }, shown)]);
}

/** @param {(string | number)[]} link */
function openOn([stream, layer, head, row, column]) {
  const number = finished.maps.findIndex((one) => one.stream === stream);
  const map = finished.maps[number];
  const heads = [map.layers.indexOf(String(layer)), map.heads.indexOf(String(head))];
  store.set({ map: number, heads: heads.join("."), row: Number(row), column: Number(column) }, !document.body.dataset.ready);
}

/** Everything around the view that tells of its scene. @param {Scene} scene */
function told(scene) {
  document.body.dataset.view = scene.state.view;
  document.body.dataset.heads = String(scene.map.layers.length * scene.map.heads.length);
  part("view").setAttribute("aria-labelledby", `tab-${scene.state.view}`);
  part("texts").replaceChildren(...page.texts.map((text) => make("q", {}, [make("bdi", {}, [text])])));
  part("caption").textContent = captionOf(scene);
  showScale(scene);
  why?.show(scene, { off: { heads: [], links: [], tokens: [] } });
  // A notebook's widget around the page hands it to Python.
  if (parent !== window) parent.postMessage({ attnviz: selected(scene) }, "*");
}

/** What the reader has chosen, by the names that Python knows. @param {Scene} scene */
function selected({ map, heads, shown, state }) {
  const [query, key] = [shown.queries[state.row], shown.keys[state.column]].map((token) =>
    token ? { position: token.at, token: token.text } : null,
  );
  const named = heads.map(([layer, head]) => ({ layer: map.layers[layer], head: map.heads[head] }));
  return { stream: map.stream, view: state.view, heads: named, query, key };
}

/** @param {Scene} of */
function showScale({ palette: colors, map, shown, state }) {
  part("scale").hidden = state.view === "image"; // which has a scale for each query
  const bar = /** @type {HTMLCanvasElement} */ (part("scale-bar"));
  paintBar(bar, colors);
  const [low, high] = colors.limits.map((limit) => (Number.isInteger(limit) ? String(limit) : spell(limit)));
  const words = [make("span", {}, [low]), bar, make("span", {}, [high]), make("small", {}, [map.unit + beyond(shown, colors.limits)])];
  part("scale").replaceChildren(...words);
  part("scale").setAttribute("aria-label", `colours: ${map.unit}, from ${low} to ${high}`);
}

/** Everything around the view that depends on these parts of the state. @param {Set<string>} changed */
function showControls(changed) {
  const map = chosenMap(page.maps, store.state);
  if (changed.has("map")) overview.build(map);
  const view = usableView(store.state, map);
  showTabs(part("views"), map, store, view);
  showSwitches(part("switches"), page, store, view);
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
  const saves = ["PNG", "SVG", "CSV", ...(live ? ["JSON"] : [])].map((kind) => {
    const button = make("button", { type: "button", id: `save-${kind.toLowerCase()}` }, [kind]);
    button.addEventListener("click", () => save(kind));
    return button;
  });
  const keys = make("button", { type: "button", id: "keys" }, ["Keys ?"]);
  keys.addEventListener("click", () => /** @type {HTMLDialogElement} */ (part("help")).showModal());
  part("footer").replaceChildren(
    make("p", { class: "saves" }, ["Save this view as ", ...saves, keys]),
    ...page.notes.map((note) => make("p", { class: "note" }, [note])),
    make("p", { class: "facts" }, facts),
    make("p", { class: "hint" }, [`Rows are queries (who attends), columns are keys (who is attended to). ${precision(page.maps)}`]),
    ...(page.command ? [make("p", {}, [make("code", {}, [page.command])])] : []),
  );
}

/** @param {string} kind */
async function save(kind) {
  const { scene } = pane;
  const name = `${scene.map.stream}-${which(scene)}`.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/-$/, "");
  const title = [live ? Object.values(live.texts).join(" → ") : page.title, part("caption").textContent ?? ""];
  if (kind === "CSV") download(`${name}.csv`, asCsv(scene, page.id));
  else if (kind === "JSON") download("attention.json", await asJson(page, live?.texts ?? {}, live?.switchedOff() ?? []));
  else if (kind === "SVG") download(`${name}.svg`, asSvg(await pane.painted(), title));
  else download(`${name}.png`, await asPng(await pane.painted(), title));
}

if (!("DecompressionStream" in globalThis)) {
  part("caption").textContent =
    "This browser cannot unpack the weights: it needs one of 2023 or later (DecompressionStream).";
}
/** What the address asked for that is not here. */
function tellAmiss() {
  const asked = store.amiss.map((one) => `“${one.length > 60 ? `${one.slice(0, 60)}…` : one}”`);
  part("amiss").textContent = asked.length ? `The address asks for what is not here: ${asked.join(", ")}. The usual is shown.` : "";
}

/** To the view, past everything before it; the address keeps the state. */
part("skip").onclick = (event) => {
  event.preventDefault();
  part("stage").focus();
};
const every = new Set(Object.keys(store.state));
const help = /** @type {HTMLDialogElement} */ (part("help"));
fillHelp(help, live !== null);
listen(() => page, store, help, live?.keys ?? (() => ({})));
showFooter();
showControls(every);
tellAmiss();
store.onChange((changed) => {
  tellAmiss();
  if (live && changed.has("off")) overview.arrange();
  if (live && ASKED.some((name) => changed.has(name))) live.ask(changed);
  showControls(changed);
  if ([...changed].every((name) => ASKED.includes(name) || name === "tour")) return;
  refresh();
  if (changed.has("map") || changed.has("colors")) drawOverview();
});
store.check();
onThemeChange(() => {
  refresh();
  drawOverview();
});
live?.onAnswer((next) => {
  const told = JSON.stringify([page.notes, page.provenance]);
  page = next;
  if (JSON.stringify([page.notes, page.provenance]) !== told) showFooter();
  showControls(new Set(["map"]));
  refresh();
  drawOverview();
});
live?.onEffects(() => showControls(new Set(["measure"])));
await refresh();
document.body.dataset.ready = String(Math.round(performance.now()));
await drawOverview();
document.body.dataset.complete = String(Math.round(performance.now()));
