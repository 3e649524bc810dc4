/** Tabs, switches and the tools of the overview. */

import { schemeName } from "./colors.js";
import { chosenHeads, chosenMap, spellHeads } from "./state.js";
import { everyHead, headsOfLayer } from "./model.js";
import { explainMeasure, spell } from "./numbers.js";
import { make, patch } from "./surface.js";

/** Words that are read at a glance, each with its line. */
const MOST_WORDS = 40;
/** Whether both sides are of so many words, and of more than one. @param {PageMap} map */
export function isReadable({ queries, keys, values, patches, compared }) {
  const short = (/** @type {Axis} */ { words, tokens, block }) => {
    const count = words ? words[words.length - 1] + 1 : tokens.length;
    return block === 1 && count - tokens.filter(({ special }) => special).length > 1 && count <= MOST_WORDS;
  };
  return values === "share" && !compared && !patches.keys && short(queries) && short(keys);
}

/** A sentence as it is seen first: its words alone, and rows that sum to 1. @param {PageMap} map */
export const opening = ({ queries, keys }) => ({
  view: "sentence",
  ...(queries.words || keys.words ? { unit: "words" } : {}),
  ...([queries, keys].some(hasSpecials) ? { specials: "renormalise" } : {}),
});

/** Whether some tokens are special, and others not. @param {Axis} axis */
const hasSpecials = ({ tokens }) => tokens.some(({ special }) => special) && !tokens.every(({ special }) => special);

/** @type {[string, string, (map: PageMap) => boolean][]} */
export const VIEWS = [
  ["sentence", "Sentence", isReadable],
  ["heads", "Heads", (map) => map.layers.length * map.heads.length > 1],
  ["heatmap", "Heat map", () => true],
  ["lines", "Lines", () => true],
  ["text", "Text", () => true],
  ["query-key", "Query · key", (map) => map.projections !== null],
  ["image", "Image", (map) => map.patches.keys !== undefined],
  ["table", "Table", () => true],
];

/** @param {PageMap} map */
export const offeredViews = (map) => VIEWS.filter(([, , offers]) => offers(map));

/** @param {HTMLElement} element @param {PageMap} map @param {Store} store @param {string} view */
export function showTabs(element, map, store, view) {
  const hasFocus = element.contains(document.activeElement);
  patch(element, offeredViews(map).map(([name, words], place) => make("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view", onclick: () => store.set({ view: name }),
    "aria-selected": String(view === name), tabindex: view === name ? 0 : -1, title: `${words} (${place + 1})`,
  }, [words])));
  if (hasFocus) /** @type {HTMLElement} */ (element.querySelector('[tabindex="0"]')).focus();
}

/** @param {HTMLElement} element @param {PageDocument} page @param {Store} store @param {string} view */
export function showSwitches(element, page, store, view) {
  const { state } = store;
  const map = chosenMap(page.maps, state);
  const parts = [
    ...mapSwitches(page.maps, map, store),
    ...headSwitches(map, store),
    ...tokenSwitches(map, store),
    select("colours", [...Object.keys(page.schemes)].map((name) => [name, name]), schemeName(state), (colors) => store.set({ colors }), map.values === "signed"),
    // A picture has a scale of its own for each query.
    view === "image" ? null : select("scale", [["auto", "auto"], ["shared", "shared"], ["view", "this view"]], state.range, (range) => store.set({ range })),
    button("Undo", "u", () => store.undo(), !store.canUndo),
    button("Redo", "U", () => store.redo(), !store.canRedo),
  ];
  patch(element, parts.filter((part) => part !== null));
}

/** @param {PageMap[]} maps @param {PageMap} map @param {Store} store */
function mapSwitches(maps, map, store) {
  const streams = [...new Set(maps.map((item) => item.stream))];
  const lenses = maps.filter((item) => item.stream === map.stream);
  /** @param {PageMap} next */
  const open = (next) => store.set({ map: maps.indexOf(next), heads: "", row: -1, column: -1, zoom: "", measure: "", filter: "" });
  const steps = streams.length > 1 && streams.every((name) => /^(.+: )?(step|call) \d+( of \d+)?(, |$)/.test(name));
  const run = map.stream.replace(/(step|call) \d+.*/, "");
  return [
    steps ? stepSlider(maps, streams.filter((name) => name.replace(/(step|call) \d+.*/, "") === run), map, store) : streams.length > 1
      ? select("stream", streams.map((name) => [name, name]), map.stream, (name) => {
          const same = maps.find((item) => item.stream === name && item.lens === map.lens);
          open(same ?? /** @type {PageMap} */ (maps.find((item) => item.stream === name)));
        })
      : null,
    lenses.length > 1
      ? select(steps ? "stream" : "lens", lenses.map((item) => [item.lens, item.lens || "weights"]), map.lens, (lens) =>
          open(/** @type {PageMap} */ (lenses.find((item) => item.lens === lens))))
      : null,
  ];
}

/** The samples of a training run, or the calls of a module: the same heads at another step. @param {PageMap[]} maps @param {string[]} steps @param {PageMap} map @param {Store} store */
function stepSlider(maps, steps, map, store) {
  return slider("step", map.stream, { min: 0, max: steps.length - 1, step: 1, value: steps.indexOf(map.stream), "aria-label": map.stream.startsWith("call") ? "call of the module" : / of \d+$/.test(map.stream) ? "step of the model" : "step of the training run" }, (value) => {
    const now = chosenMap(maps, store.state);
    const next = maps.findIndex((item) => item.stream === steps[Number(value)] && item.lens === now.lens);
    if (next >= 0) store.set({ map: next, heads: spellHeads(chosenHeads(now, store.state)) });
  });
}

/** @param {PageMap} map @param {Store} store */
function headSwitches(map, store) {
  const choice = chosenHeads(map, store.state);
  const layers = new Set(choice.map(([layer]) => layer));
  const layer = layers.size === 1 ? choice[0][0] : -1;
  const heads = spellHeads(choice);
  const ofLayer = layer >= 0 && heads === spellHeads(headsOfLayer(map, layer)) && choice.length > 1;
  const all = heads === spellHeads(everyHead(map)) && choice.length > 1 && map.layers.length > 1;
  const head = choice.length === 1 ? String(choice[0][1]) : ofLayer || all ? "all" : "chosen";
  const layerChoices = map.layers.map((name, place) => [String(place), name]);
  if (map.layers.length > 1) layerChoices.push(["all", "all"]);
  if (layers.size > 1 && !all) layerChoices.push(["chosen", "several"]);
  const headChoices = map.heads.map((name, place) => [String(place), name]);
  if (map.heads.length > 1) headChoices.push(["all", "all"]);
  if (head === "chosen") headChoices.push(["chosen", `${choice.length} chosen`]);
  return [
    map.layers.length > 1
      ? select("layer", layerChoices, all ? "all" : layer >= 0 ? String(layer) : "chosen", (value) => {
          if (value === "all") store.set({ heads: spellHeads(everyHead(map)) });
          else if (value !== "chosen") {
            const next = Number(value);
            store.set({ heads: head === "all" || head === "chosen" ? spellHeads(headsOfLayer(map, next)) : `${next}.${head}` });
          }
        })
      : null,
    map.heads.length > 1
      ? select("head", headChoices, head, (value) => {
          if (value === "all") store.set({ heads: spellHeads(all ? everyHead(map) : headsOfLayer(map, Math.max(layer, 0))) });
          else if (value !== "chosen") store.set({ heads: `${Math.max(layer, 0)}.${value}` });
        })
      : null,
    choice.length > 1
      ? select("several as", [["mean", "mean"], ["max", "maximum"]], store.state.mix, (mix) => store.set({ mix }))
      : null,
  ];
}

/** @param {PageMap} map @param {Store} store */
function tokenSwitches(map, store) {
  const words = map.queries.words !== null || map.keys.words !== null;
  const special = [map.queries, map.keys].some(hasSpecials);
  const noPin = { row: -1, column: -1, zoom: "" };
  // As --special calls them; signed rows have no sum.
  const treatments = map.values === "signed" ? ["keep", "drop"] : ["keep", "drop", "renormalise"];
  return [
    words
      ? select("by", [["tokens", "tokens"], ["words", "words"]], store.state.unit, (unit) => store.set({ unit, ...noPin }), store.state.view === "query-key")
      : null,
    special
      ? select("special tokens", treatments.map((name) => [name, name]), store.state.specials, (specials) => store.set({ specials, ...noPin }), store.state.view === "query-key")
      : null,
  ];
}

/**
 * @param {string} name
 * @param {string[][]} choices value and words
 * @param {string} choice
 * @param {(value: string) => void} choose
 * @param {boolean} [disabled]
 */
export function select(name, choices, choice, choose, disabled = false) {
  const options = choices.map(([value, words]) => make("option", { value, selected: value === choice }, [words]));
  const field = make("select", { "data-switch": name, disabled, onchange: (event) => choose(event.target.value) }, options);
  return make("label", { "data-key": name }, [make("span", {}, [name]), field]);
}

/** A slider that says its value. @param {string} name @param {string} words @param {Parameters<typeof make>[1]} attributes @param {(value: string) => void} move */
function slider(name, words, attributes, move) {
  const field = make("input", { type: "range", "data-switch": name, "aria-valuetext": words, ...attributes, oninput: ({ target }) => {
    target.focus(); // not every browser does
    move(target.value);
  } });
  return make("label", { "data-key": name }, [make("span", {}, [words]), field]);
}

/** @param {string} words @param {string} key @param {() => void} onclick */
export const button = (words, key, onclick, disabled = false) =>
  make("button", { type: "button", title: `${words} (${key})`, "aria-keyshortcuts": key, onclick, disabled }, [words]);

/** @param {HTMLElement} element @param {PageMap} map @param {Store} store */
export function showOverviewTools(element, map, store) {
  const { measure: name, order, filter } = store.state;
  const measure = map.measures.find((item) => item.name === name);
  const choices = [["", "no measure"], ...map.measures.map((item) => [item.name, item.label ?? item.name])];
  /** @type {HTMLElement[]} */
  const parts = [
    select("measure", choices, name, (value) => store.set({ measure: value, filter: "", order: value ? order === "layout" ? "high" : order : "layout" })),
  ];
  if (measure) {
    const values = measure.values.flat().filter((value) => value !== null);
    const [low, top] = [Math.min(...values, 0), Math.max(...values, 0)];
    parts.push(
      select("order", [["layout", "by layer"], ["high", "highest first"], ["low", "lowest first"]], order, (value) => store.set({ order: value })),
      slider("at least", `at least ${spell(Number(filter || low))}`, { min: low, max: top, step: (top - low) / 200 || 1, value: filter || low },
        (value) => store.set({ filter: Number(value) > low ? value : "" })),
      make("p", { class: "hint" }, [explainMeasure(measure)]),
    );
  }
  patch(element, parts);
}
