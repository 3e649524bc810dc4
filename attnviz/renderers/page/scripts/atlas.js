/** An atlas of heads: all of them by any two measures, and what each does over a corpus. */

import { colorOf, dotIn, headParts } from "./atlas_head.js";
import { createScatter } from "./atlas_scatter.js";
import { countNoun, explainMeasure, spell } from "./numbers.js";
import { createStore } from "./address.js";
import { skipTo, tellMissing, tellWhatBreaks } from "./broken.js";
import { createSaving } from "./saving.js";
import { make, onceAFrame, part, textOf } from "./surface.js";

/**
 * @typedef {number | null} Score null where it says nothing
 * @typedef {number[]} TextLinks place of the text, query word, then key words with their weights
 * @typedef {{layer: string, head: string, roles: [string, number, number, string][],
 *   values: [Score, Score, Score, Score, number][], offsets: Score[], classes: Score[], even: Score[],
 *   counts: number[], drawn: TextLinks[][], queries: [string, number][], keys: [string, number][],
 *   pairs: [string, string, Score, number][], nearest: [number, Score][]}} AtlasHead roles: label,
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
const page = JSON.parse(textOf("document"));
/** @param {(one: AtlasStream, value: string) => boolean | undefined} fits */
const someStream = (fits) => (/** @type {string} */ value) => (!value || page.streams.some((one) => fits(one, value)) ? value : undefined);
const measureName = someStream(({ measures }, value) => measures.some(({ name }) => name === value));
/** @type {Parameters<typeof createStore<{stream: number, x: string, y: string, head: string, find: string, back: string}, AtlasDocument>>[0]} */
const SCHEMA = {
  stream: [0, (value) => (value in page.streams ? value : undefined)],
  x: ["", measureName],
  y: ["", measureName],
  head: ["", someStream(({ heads }, value) => heads.some(({ layer, head }) => `${layer}.${head}` === value))],
  find: [""],
  // A page beside this one, and its streams with the names of their layers and heads.
  back: ["", (value) => (/^(?![/\\])[^:|\\]*(\||$)/.test(value) ? value : undefined)],
};
const store = createStore(SCHEMA, page, ["find"]);
/** @type {Set<number> | null} */
let group = null;
const scatter = createScatter(part("plot"), { choose: go, point, gather });
const head = part("head");

/** @returns {AtlasStream} */
const stream = () => page.streams[store.state.stream];
/** @param {AtlasHead} one */
const nameOf = (one) => `layer ${one.layer} head ${one.head}`;
/** @param {AtlasHead} one */
const colorIn = (one) => colorOf(page.colors, one);

function headNumber() {
  const number = stream().heads.findIndex((one) => `${one.layer}.${one.head}` === store.state.head);
  return number < 0 ? stream().first : number;
}

/** The place of an axis' measure, by its name. @param {0 | 1} axis */
function measureOf(axis) {
  const names = stream().measures.map((measure) => measure.name);
  const places = [[store.state.x, store.state.y][axis], ...USUAL[axis]].map((name) => names.indexOf(name));
  return places.find((place) => place >= 0) ?? Math.min(axis, names.length - 1);
}

/** Whether a head is what is looked for: words of it, or a measure above or below a number. @param {AtlasHead} one */
function isFound(one) {
  const words = [nameOf(one), `${one.layer}.${one.head}`, ...one.roles.flatMap(([label, , , name]) => [label, name]), ...[...one.queries, ...one.keys].map(([word]) => word)];
  if (!one.roles.length) words.push("no clear role");
  const text = words.join("\n").toLowerCase();
  return store.state.find.toLowerCase().split(/\s*,\s*/).every((term) => {
    const match = /^([\w-]+)\s*([<>])\s*([−-]?[\d.]+)$/.exec(term);
    if (!match) return text.includes(term.trim());
    const value = one.values[stream().measures.findIndex((measure) => measure.name === match[1])]?.[0] ?? NaN;
    const bound = Number(match[3].replace("−", "-"));
    return match[2] === ">" ? value > bound : value < bound;
  });
}

function show() {
  const { heads, measures } = stream();
  const [x, y] = [measureOf(0), measureOf(1)];
  const numbers = heads.map((_, number) => number).filter((number) => (!group || group.has(number)) && isFound(heads[number]));
  const names = [x, y].map((place) => `${measures[place].name} (${measures[place].unit})`);
  scatter.show({ heads, x, y, names: [names[0], names[1]], visible: new Set(numbers), choice: headNumber(), color: colorIn, name: nameOf });
  part("terms").textContent = [...new Set([x, y])].map((place) => explainMeasure(measures[place])).join(" ");
  const value = /** @param {number} number */ (number) => heads[number].values[y][0] ?? -Infinity;
  numbers.sort((one, other) => value(other) - value(one));
  const all = numbers.length === heads.length;
  const absent = heads.filter((one) => [x, y].some((place) => one.values[place][0] === null)).length;
  const remark = absent ? `; ${absent} ${absent > 1 ? "are" : "is"} not in the plot, without a value of one of the measures` : "";
  part("found").textContent = `${all ? "all" : `${numbers.length} of`} ${countNoun(heads.length, "head")}, by ${measures[y].name}${remark}`;
  part("list").replaceChildren(...numbers.slice(0, MOST).map((number) => {
    const one = heads[number];
    return make("li", {}, [make("button", { type: "button", "aria-pressed": String(number === headNumber()), title: nameOf(one), onclick: () => go(number) }, [
      dotIn(colorIn(one)), `${one.layer}·${one.head} `, make("span", {}, [one.roles[0]?.[0] ?? ""]), make("small", {}, [spell(one.values[y][0] ?? NaN)])])]);
  }));
  if (numbers.length > MOST) part("list").append(make("li", { class: "hint" }, [`and ${numbers.length - MOST} more`]));
}

function showHead() {
  const parts = headParts(page, stream(), headNumber(), { name: nameOf, dot: (one) => dotIn(colorIn(one)), go });
  head.replaceChildren(...backTo(stream().heads[headNumber()]), ...parts);
  head.dataset.head = store.state.head;
}
/** The way back to the page of one text that this atlas was opened from, at the same head. @param {AtlasHead} one */
function backTo(one) {
  const [page, ...streams] = store.state.back.split("|");
  const map = streams.findIndex((name) => name.split(":")[0] === stream().stream);
  if (!page || map < 0) return [];
  const [layer, number] = streams[map].split(":").slice(1).map((names, side) => names.split(" ").indexOf(side ? one.head : one.layer));
  const state = new URLSearchParams({ map: String(map), ...(layer < 0 || number < 0 ? {} : { heads: `${layer}.${number}` }) });
  return [make("p", {}, [make("a", { id: "back", href: `${page}#${state}` }, [`← ${nameOf(one)} in ${decodeURIComponent(page.split("/").pop() ?? page)}`])])];
}
const headShown = onceAFrame(showHead);

/** @param {number} number */
function go(number) {
  const one = stream().heads[number];
  store.set({ head: `${one.layer}.${one.head}` });
}

/** @param {number} number */
function point(number) {
  const one = stream().heads[number];
  const values = number < 0 ? [] : [measureOf(0), measureOf(1)].map((place) => {
    const [mean, low, high] = one.values[place].map((value) => spell(value ?? NaN));
    return `${stream().measures[place].name} ${mean} (${low} to ${high})`;
  });
  part("pointed").textContent = number < 0 ? HOW : [nameOf(one), one.roles.map(([name]) => name).join(", ") || "no clear role", ...values].join(" · ");
}
const HOW = "Click a head, or go from head to head by the arrow keys; draw a rectangle to gather some, Escape lets them go.";

/** @param {Set<number> | null} heads */
function gather(heads) {
  group = heads;
  show();
}

store.onChange((changedNames) => {
  tellMissing(store.missing);
  if (changedNames.has("stream")) {
    group = null;
    build();
  }
  show();
  if (changedNames.has("head") || changedNames.has("stream")) headShown();
});

/** @param {string} label @param {[string, string][]} options @param {string} value @param {(value: string) => void} change */
function choice(label, options, value, change) {
  const choices = options.map(([key, words]) => make("option", { value: key, selected: key === value }, [words]));
  return make("label", {}, [label, make("select", { "data-switch": label, onchange: ({ target }) => change(target.value) }, choices)]);
}

function build() {
  const { measures, heads } = stream();
  const names = /** @type {[string, string][]} */ (measures.map(({ name }) => [name, name]));
  const search = make("input", { type: "search", placeholder: "role, word, 3.7, entropy<1", "aria-label": "Search heads: words, or a measure above or below a number; commas between" });
  search.value = store.state.find;
  search.oninput = () => store.set({ find: search.value });
  const streams = /** @type {[string, string][]} */ (page.streams.map((one, place) => [String(place), one.stream]));
  part("choices").replaceChildren(
    ...(streams.length > 1 ? [choice("attention", streams, String(store.state.stream), (value) => store.set({ stream: Number(value), head: "" }))] : []),
    choice("across", names, measures[measureOf(0)].name, (value) => store.set({ x: value })),
    choice("up", names, measures[measureOf(1)].name, (value) => store.set({ y: value })),
    make("label", {}, ["find", search]),
  );
  part("legend").replaceChildren(...[...rolesOf()].map(([role, color]) => {
    const count = heads.filter((one) => (one.roles[0]?.[0] ?? "no clear role") === role).length;
    return make("button", { type: "button", onclick() {
      search.value = store.state.find === role ? "" : role;
      store.set({ find: search.value });
    } }, [dotIn(color), role, make("small", {}, [String(count)])]);
  }));
}

/** The colour of each role that a head of the stream has. */
const rolesOf = () => new Map(stream().heads.map((one) => [one.roles[0]?.[0] ?? "no clear role", colorIn(one)]));

/** What a picture of the heads holds. @param {number} width */
function figureOf(width) {
  const legend = [...rolesOf()].map(([words, color]) => ({ words, color: color.replace(/^var.*/, "#646a73") }));
  const words = part("found").textContent ?? "";
  return {
    title: part("title").textContent ?? "",
    caption: `${stream().stream} · ${part("caption").textContent}`,
    parts: [{ words: "", drawing: scatter.figure(width - 32, legend) }],
    facts: [`model ${Object.fromEntries(page.provenance).model ?? ""}`, words.startsWith("all") ? "" : `Strong points: ${words}`, ...page.notes],
  };
}
const saving = createSaving(figureOf, () => `heads-${stream().stream}`.replace(/[^\p{L}\p{N}]+/gu, "-"));

part("caption").textContent = `${page.caption} · ${countNoun(page.texts, page.thing)}`;
part("footer").append(
  make("p", { class: "saves" }, ["Save the heads as ", make("button", { type: "button", id: "save-picture", onclick: saving.open }, ["Picture …"])]),
  ...page.notes.map((note) => make("p", { class: "note" }, [note])),
  make("p", {}, page.provenance.map(([name, value]) => make("span", { class: "fact" }, [make("i", {}, [name]), ` ${value}`]))),
  ...(page.command ? [make("p", {}, [make("code", {}, [page.command])])] : []),
);
tellWhatBreaks(part("header"));
skipTo("head");
build();
show();
showHead();
store.check();
point(-1);
document.body.dataset.complete = "";
