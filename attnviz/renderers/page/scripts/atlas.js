/** An atlas of heads: all of them by any two measures, and what each does over a corpus. */

import { headParts } from "./atlas_head.js";
import { createScatter } from "./atlas_scatter.js";
import { counted, spell } from "./numbers.js";
import { make, onceAFrame, part } from "./surface.js";

/**
 * @typedef {number | null} Known null where it says nothing
 * @typedef {number[]} Drawn place of the text, query word, then key words with their weights
 * @typedef {{layer: string, head: string, roles: [string, number, number, string][],
 *   values: [Known, Known, Known, Known, number][], offsets: Known[], classes: Known[], even: Known[],
 *   counts: number[], drawn: Drawn[][], queries: [string, number][], keys: [string, number][],
 *   pairs: [string, string, Known, number][], nearest: [number, Known][]}} AtlasHead roles: label,
 *   share, that of uniform attention, name; values: mean, low, high, uniform, texts
 * @typedef {{stream: string, measures: {name: string, unit: string, low: string, high: string}[],
 *   first: number, offsets: number[], classes: string[], texts: [string, string[], string[]?][], pictures: Patches[],
 *   heads: AtlasHead[]}} AtlasStream texts: name, query words and, where others, key words
 * @typedef {{special: string[], rows: number, columns: number, image: string}} Patches a picture:
 *   tokens without a place, then patches
 * @typedef {{caption: string, texts: number, thing: string, interval: string, fewest: number, rule: string,
 *   distance: string, notes: string[], provenance: [string, string][], command: string,
 *   colors: Record<string, string>, streams: AtlasStream[]}} AtlasDocument
 */

const MOST = 200;
const USUAL = [["relative-entropy", "entropy"], ["effect", "distance", "patch-distance", "span"]];

/** @type {AtlasDocument} */
const page = JSON.parse(part("document").textContent ?? "");
const state = { stream: 0, x: "", y: "", head: "", find: "", ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
/** @type {Set<number> | null} */
let gathered = null;
const scatter = createScatter(part("plot"), { choose: go, point, gather });
const head = part("head");

/** @returns {AtlasStream} */
const stream = () => page.streams[Number(state.stream)] ?? page.streams[0];
/** @param {AtlasHead} one */
const nameOf = (one) => `layer ${one.layer} head ${one.head}`;
/** @param {AtlasHead} one */
const colorOf = (one) => (one.roles.length && page.colors[one.roles[0][3]]) || "var(--no-role)";

/** @param {string} color */
function swatch(color) {
  const found = make("i", { class: "dot", "aria-hidden": "true" });
  found.style.backgroundColor = color;
  return found;
}

function chosen() {
  const found = stream().heads.findIndex((one) => `${one.layer}.${one.head}` === state.head);
  return found < 0 ? stream().first : found;
}

/** The place of an axis' measure, by its name. @param {0 | 1} axis */
function measureOf(axis) {
  const names = stream().measures.map((measure) => measure.name);
  const wanted = [[state.x, state.y][axis], ...USUAL[axis]].map((name) => names.indexOf(name));
  return wanted.find((place) => place >= 0) ?? Math.min(axis, names.length - 1);
}

/** Whether a head is what is looked for: words of it, or a measure above or below a number. @param {AtlasHead} one */
function isFound(one) {
  const words = [nameOf(one), `${one.layer}.${one.head}`, ...one.roles.flatMap(([label, , , name]) => [label, name]), ...[...one.queries, ...one.keys].map(([word]) => word)];
  if (!one.roles.length) words.push("no clear role");
  const told = words.join("\n").toLowerCase();
  return state.find.toLowerCase().split(/\s*,\s*/).every((term) => {
    const asked = /^([\w-]+)\s*([<>])\s*([−-]?[\d.]+)$/.exec(term);
    if (!asked) return told.includes(term.trim());
    const value = one.values[stream().measures.findIndex((measure) => measure.name === asked[1])]?.[0] ?? NaN;
    const bound = Number(asked[3].replace("−", "-"));
    return asked[2] === ">" ? value > bound : value < bound;
  });
}

function show() {
  const { heads, measures } = stream();
  const [x, y] = [measureOf(0), measureOf(1)];
  const found = heads.map((_, number) => number).filter((number) => (!gathered || gathered.has(number)) && isFound(heads[number]));
  const names = [x, y].map((place) => `${measures[place].name} (${measures[place].unit})`);
  scatter.show({ heads, x, y, names: [names[0], names[1]], shown: new Set(found), chosen: chosen(), color: colorOf, name: nameOf });
  const value = /** @param {number} number */ (number) => heads[number].values[y][0] ?? -Infinity;
  found.sort((one, other) => value(other) - value(one));
  const all = found.length === heads.length;
  const unplaced = heads.filter((one) => [x, y].some((place) => one.values[place][0] === null)).length;
  const aside = unplaced ? `; ${unplaced} of which one of the measures says nothing ${unplaced > 1 ? "are" : "is"} not in the plot` : "";
  part("found").textContent = `${all ? "all" : `${found.length} of`} ${counted(heads.length, "head")}, by ${measures[y].name}${aside}`;
  part("list").replaceChildren(...found.slice(0, MOST).map((number) => {
    const one = heads[number];
    const button = make("button", { type: "button", "aria-pressed": String(number === chosen()) }, [
      swatch(colorOf(one)), `${one.layer}·${one.head} `, make("span", {}, [one.roles[0]?.[0] ?? ""]), make("small", {}, [spell(one.values[y][0] ?? NaN)])]);
    button.title = nameOf(one);
    button.addEventListener("click", () => go(number));
    return make("li", {}, [button]);
  }));
  if (found.length > MOST) part("list").append(make("li", { class: "hint" }, [`and ${found.length - MOST} more`]));
}

function showHead() {
  const parts = headParts(page, stream(), chosen(), { name: nameOf, dot: (one) => swatch(colorOf(one)), go });
  head.replaceChildren(...parts);
  head.dataset.head = state.head;
}
const headShown = onceAFrame(showHead);

/** @param {number} number */
function go(number) {
  const one = stream().heads[number];
  set({ head: `${one.layer}.${one.head}` });
}

/** @param {number} number */
function point(number) {
  const one = stream().heads[number];
  const told = number < 0 ? [] : [measureOf(0), measureOf(1)].map((place) => {
    const [mean, low, high] = one.values[place].map((value) => spell(value ?? NaN));
    return `${stream().measures[place].name} ${mean} (${low} to ${high})`;
  });
  part("pointed").textContent = number < 0 ? HOW : [nameOf(one), one.roles.map(([name]) => name).join(", ") || "no clear role", ...told].join(" · ");
}
const HOW = "Click a head, or go from head to head by the arrow keys; draw a rectangle to gather some, Escape lets them go.";

/** @param {Set<number> | null} heads */
function gather(heads) {
  gathered = heads;
  show();
}

/** @param {Partial<typeof state>} changes */
function set(changes) {
  Object.assign(state, changes);
  if ("stream" in changes) [state.head, gathered] = ["", null];
  remember();
  if ("stream" in changes) build();
  show();
  if ("head" in changes || "stream" in changes) headShown();
}

function remember() {
  const fragment = Object.entries(state).filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  try {
    history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
  } catch {
    // A frame without an address of its own has nowhere to remember it.
  }
}

/** @param {string} label @param {[string, string][]} options @param {string} value @param {(value: string) => void} change */
function choice(label, options, value, change) {
  const select = make("select", { "data-switch": label }, options.map(([key, words]) => make("option", { value: key, selected: key === value }, [words])));
  select.addEventListener("change", () => change(select.value));
  return make("label", {}, [label, select]);
}

function build() {
  const { measures, heads } = stream();
  const names = /** @type {[string, string][]} */ (measures.map(({ name }) => [name, name]));
  const search = make("input", { type: "search", placeholder: "role, word, 3.7, entropy<1", "aria-label": "Search heads: words, or a measure above or below a number; commas between" });
  search.value = state.find;
  search.addEventListener("input", () => set({ find: search.value }));
  const streams = /** @type {[string, string][]} */ (page.streams.map((one, place) => [String(place), one.stream]));
  part("choices").replaceChildren(
    ...(streams.length > 1 ? [choice("attention", streams, String(state.stream), (value) => set({ stream: Number(value) }))] : []),
    choice("across", names, measures[measureOf(0)].name, (value) => set({ x: value })),
    choice("up", names, measures[measureOf(1)].name, (value) => set({ y: value })),
    make("label", {}, ["find", search]),
  );
  const roles = new Map(heads.map((one) => [one.roles[0]?.[0] ?? "no clear role", colorOf(one)]));
  part("legend").replaceChildren(...[...roles].map(([role, color]) => {
    const count = heads.filter((one) => (one.roles[0]?.[0] ?? "no clear role") === role).length;
    const button = make("button", { type: "button" }, [swatch(color), role, make("small", {}, [String(count)])]);
    button.addEventListener("click", () => {
      search.value = state.find === role ? "" : role;
      set({ find: search.value });
    });
    return button;
  }));
}

part("caption").textContent = `${page.caption} · ${counted(page.texts, page.thing)}`;
part("footer").append(
  ...page.notes.map((note) => make("p", { class: "note" }, [note])),
  make("p", {}, page.provenance.map(([name, value]) => make("span", { class: "fact" }, [make("i", {}, [name]), ` ${value}`]))),
  ...(page.command ? [make("p", {}, [make("code", {}, [page.command])])] : []),
);
addEventListener("hashchange", () => {
  Object.assign(state, { stream: 0, x: "", y: "", head: "", find: "" }, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  build();
  show();
  headShown();
});
build();
show();
showHead();
point(-1);
document.body.dataset.complete = "";
