/** The page: a finished run, or a model that answers; what was chosen is shown. */

import { captionOf, precision, remarksOn, scaleOf } from "./caption.js";
import { onThemeChange, paintBar, palette, setHeadColors } from "./colors.js";
import { isReadable, opening, showOverviewTools, showSwitches, showTabs } from "./controls.js";
import { createHistory } from "./history.js";
import { listen, openHelp } from "./keyboard.js";
import { createLive } from "./live.js";
import { skipTo, tellMissing, tellWhatBreaks } from "./broken.js";
import { beginning } from "./labels.js";
import { readDocument } from "./model.js";
import { createOff } from "./off.js";
import { createOverview } from "./overview.js";
import { createPane, usableView } from "./pane.js";
import { asCsv, asJson } from "./save.js";
import { createSaving, download } from "./saving.js";
import { QUESTION_KEYS, chosenMap, openStore } from "./state.js";
import { make, part } from "./surface.js";
import { stepsInPage } from "./unfold.js";
import { createWhy } from "./why.js";
import { claimList, showClaim } from "./word.js";

/** Characters of a figure's title. */
const LONGEST_TITLE = 240;
tellWhatBreaks(part("header"));
const help = /** @type {HTMLDialogElement} */ (part("help"));
const firstPage = readDocument();
setHeadColors(firstPage.head_colors);
/** @type {import("./state.js").Choices} */
const choices = { document: firstPage, maps: firstPage.maps };
const store = openStore(choices);
const off = firstPage.lenses ? createOff(store) : null;
const overview = createOverview(part("overview"), store, off);
const pane = createPane(
  { stage: part("stage"), rests: part("rests"), readout: part("readout"), view: part("view"), remark: part("remark"), table: part("table") },
  store, off, true,
);
const live = off ? createLive(firstPage, store, off, pane) : null;
let page = live ? await live.first : firstPage;
Object.assign(choices, { maps: page.maps, pieces: live?.pieces });
const why = firstPage.why || firstPage.maps.some(({ projections }) => projections) ? createWhy(store, () => page.maps, recall) : null;
if (why) part("stage").after(why.element);
if (firstPage.why?.length && !location.hash) {
  // First the link to the token that the answer needs most, which stands first among those that it needs.
  const [side, position] = firstPage.claims?.find(({ heads, tokens }) => tokens.length && !heads.length)?.tokens[0] ?? [];
  /** @param {{link: (string | number)[]}} why */
  const leads = ({ link: [stream, , , , key] }) => key === position && page.maps.some((map) => map.stream === stream && map.keys.side === side);
  showClaim(store, page.maps, { about: "", text: "", link: (firstPage.why.find(leads) ?? firstPage.why[0]).link, heads: [], tokens: [] });
}
if (firstPage.history) part("bar").before(createHistory(firstPage.history, store));
if (firstPage.claims?.length) {
  part("bar").before(make("section", { "aria-label": "What decided the answer" }, claimList(firstPage.claims, (claim) => showClaim(store, page.maps, claim))));
}
// Where a model looks in a picture is first seen on the picture.
if (page.maps[0]?.patches?.keys && !location.hash.includes("view=")) store.set({ view: "image" }, true);
// A sentence is first seen as words with their lines, a training run where it ended; an address shows what it says.
else if (page.maps.length && !firstPage.why?.length) {
  const [map, ...head] = firstPage.history?.[0].places.at(-1)?.find(Boolean) ?? [0];
  const first = { map, heads: head.join("."), ...(isReadable(page.maps[map]) ? opening(page.maps[map]) : {}) };
  if (!location.hash.includes("=")) store.set(first, true);
  if (map || "view" in first) choices.bare = "view=heatmap";
}

const corpus = make("a", { id: "corpus", hidden: true });
part("caption").after(corpus);

async function refresh() {
  const results = await Promise.all([pane.show(page, showAround), live?.showSecond()]);
  live?.showChoice();
  return results[0];
}

/** Answer with what the page has of a link: its steps, and a report. @param {{link: (string | number)[]}} asked */
async function recall({ link }) {
  const reports = firstPage.why ?? [];
  const { map, heads, matrix, state } = pane.scene;
  const [query, key] = [matrix.queries[state.row], matrix.keys[state.column]];
  const steps = query && key ? await stepsInPage(map, heads[0], query.at, key.at) : null;
  const report = reports.find((one) => one.link.join() === link.join())?.report;
  const error = reports.length ? `The page explains ${reports.length} links, from the one that was asked for along its writers. attnviz live explains any link.` : "";
  why?.hear({ id: 0, kind: "why", report, ...(steps ? { steps } : {}), ...(report ? {} : { error }) });
}

/** Everything around the view that tells of its scene. @param {Scene} scene */
function showAround(scene) {
  document.body.dataset.view = scene.state.view;
  document.body.dataset.heads = String(scene.map.layers.length * scene.map.heads.length);
  part("view").setAttribute("aria-labelledby", `tab-${scene.state.view}`);
  part("texts").replaceChildren(...page.texts.map((text) => make("q", {}, [make("bdi", {}, [text])])));
  part("caption").textContent = captionOf(scene);
  showScale(scene);
  showAtlas(scene);
  overview.pin(scene);
  why?.show(scene, { off: { heads: [], links: [], tokens: [] } });
  // A notebook's widget around the page hands it to Python.
  if (parent !== window) parent.postMessage({ attnviz: describeChoice(scene) }, "*");
}

/** What the reader has chosen, by the names that Python knows. @param {Scene} scene */
function describeChoice({ map, heads, matrix, state }) {
  const [query, key] = [matrix.queries[state.row], matrix.keys[state.column]].map((token) =>
    token ? { position: token.at, token: token.text } : null,
  );
  const names = heads.map(([layer, head]) => ({ layer: map.layers[layer], head: map.heads[head] }));
  return { stream: map.stream, view: state.view, heads: names, query, key };
}

/** The way to what the head looked at does over a corpus. @param {Scene} scene */
function showAtlas({ map, heads: [[layer, head], ...others] }) {
  const { atlas, maps } = firstPage;
  const name = `${map.layers[layer]}.${map.heads[head]}`;
  const place = Object.keys(atlas?.heads ?? {}).indexOf(map.stream);
  corpus.hidden = !atlas || others.length > 0 || !atlas.heads[map.stream]?.includes(name);
  if (!atlas || corpus.hidden) return;
  const back = [atlas.back, ...maps.map(({ stream, layers, heads }) => [stream, layers.join(" "), heads.join(" ")].join(":"))].join("|");
  corpus.setAttribute("href", `${atlas.href}#${new URLSearchParams({ stream: String(place), head: name, back })}`);
  corpus.textContent = `What layer ${map.layers[layer]} head ${map.heads[head]} does over the corpus →`;
}

/** @param {Scene} scene */
function showScale(scene) {
  part("scale").hidden = ["image", "lines", "table"].includes(scene.state.view); // the first has one for each query
  const bar = /** @type {HTMLCanvasElement} */ (part("scale-bar"));
  const { palette: colors, low, high, words } = scaleOf(scene);
  paintBar(bar, colors);
  part("scale").replaceChildren(make("span", {}, [low]), bar, make("span", {}, [high]), make("small", {}, [words]));
  part("scale").setAttribute("aria-label", `colours: ${scene.map.unit}, from ${low} to ${high}`);
}

/** Everything around the view that depends on these parts of the state. @param {Set<string>} changedNames */
function showControls(changedNames) {
  const map = chosenMap(page.maps, store.state);
  if (changedNames.has("map")) overview.build(map);
  const view = usableView(store.state, map);
  showTabs(part("views"), map, store, view);
  showSwitches(part("switches"), page, store, view);
  showOverviewTools(overview.tools, map, store);
  if (["map", "heads", "measure", "order", "filter"].some((name) => changedNames.has(name))) overview.arrange();
}

function drawOverview() {
  const map = chosenMap(page.maps, store.state);
  const scheme = page.schemes[store.state.colors] ?? page.schemes.blue;
  return overview.draw(palette(scheme, map.limits));
}

function showFooter() {
  const facts = page.provenance.map(([name, value]) => make("span", { class: "fact" }, [make("i", {}, [name]), ` ${value}`]));
  /** @param {string} id @param {string} words @param {() => unknown} onclick */
  const button = (id, words, onclick) => make("button", { type: "button", id, onclick }, [words]);
  const saves = ["CSV", ...(live ? ["JSON"] : [])].map((kind) => button(`save-${kind.toLowerCase()}`, kind, () => save(kind)));
  part("footer").replaceChildren(
    make("p", { class: "saves" }, ["Save this view as ", button("save-picture", "Picture …", saving.open), ...saves, button("keys", "Keys ?", () => openHelp(help, live !== null))]),
    ...page.notes.map((note) => make("p", { class: "note" }, [note])),
    make("p", { class: "facts" }, facts),
    make("p", { class: "hint" }, [`${page.maps[0].stream === "similarity" ? "Rows are the query's tokens, columns the document's." : "Rows are queries (who attends), columns are keys (who is attended to)."} ${page.precision ?? precision(page.maps)}`]),
    ...(page.command ? [make("p", {}, [make("code", {}, [page.command])])] : []),
  );
}

/** A file's name for what is seen, such as "self-2.1". */
function nameOfView() {
  const { map, heads, state } = pane.scene;
  const [[layer, head]] = heads;
  const what = state.view === "heads" ? "heads" : heads.length > 1 ? state.mix : `${map.layers[layer]}.${map.heads[head]}`;
  return `${map.stream}-${what}`.replace(/[^\p{L}\p{N}.]+/gu, "-");
}

/** @param {string} kind */
async function save(kind) {
  if (kind === "CSV") download(`${nameOfView()}.csv`, await asCsv(pane.scene, page.id));
  else download("attention.json", await asJson(page, live?.texts ?? {}, page.off ?? []));
}

/** What a picture of what is seen holds. @param {number} width @param {boolean} light */
async function figureOf(width, light) {
  const { scene } = pane;
  const facts = Object.fromEntries(page.provenance);
  const off = page.off ?? [];
  const panes = live?.panes() ?? [pane];
  return {
    title: beginning(panes.length > 1 ? "Two sentences through the same heads" : live ? live.sentences()[0] : [...(page.title === facts.model ? [] : [page.title]), [...page.texts].reverse().join(" → ")].filter(Boolean).join(" · ") || page.title, LONGEST_TITLE),
    caption: captionOf(scene),
    parts: await Promise.all(panes.map(async (one, number) => ({ words: beginning(live?.sentences()[number] ?? "", LONGEST_TITLE), drawing: await one.figure(width - 32, light, overview.figure) }))),
    facts: [
      `model ${facts.model ?? page.title}${facts.trained === "no" ? ", not trained" : ""}`,
      off.length ? `Switched off: ${off.join(", ")}` : "",
      [scene.rests, remarksOn(scene)].filter(Boolean).join(" "),
    ],
  };
}
const saving = createSaving(figureOf, nameOfView);

if (!("DecompressionStream" in globalThis)) {
  part("caption").textContent =
    "This browser cannot unpack the weights: it needs one of 2023 or later (DecompressionStream).";
}
skipTo("stage");
const every = new Set(Object.keys(store.state));
listen(() => page, store, help, () => ({ ...live?.keys(), p: saving.open, ...(firstPage.atlas ? { i: () => corpus.click() } : {}) }), live !== null);
showFooter();
showControls(every);
tellMissing(store.missing);
store.onChange((changedNames) => {
  tellMissing(store.missing);
  if (live && changedNames.has("off")) overview.arrange();
  showControls(changedNames);
  if ([...changedNames].every((name) => QUESTION_KEYS.includes(name) || name === "tour")) return;
  refresh();
  if (changedNames.has("map") || changedNames.has("colors")) drawOverview();
});
store.check();
onThemeChange(() => {
  refresh();
  drawOverview();
});
live?.onAnswer((next) => {
  const before = JSON.stringify([page.notes, page.provenance]);
  const firstPicture = next.maps[0]?.patches?.keys && !page.maps[0]?.patches?.keys;
  page = next;
  if (firstPicture) store.set({ view: "image" }, true);
  if (JSON.stringify([page.notes, page.provenance]) !== before) showFooter();
  showControls(new Set(["map"]));
  refresh();
  drawOverview();
});
live?.onEffects(() => showControls(new Set(["measure"])));
await refresh();
document.body.dataset.ready = String(Math.round(performance.now()));
await drawOverview();
document.body.dataset.complete = String(Math.round(performance.now()));
