/** One head of an atlas: its measures, where it looks, what it joins, its texts, its like. */

import { countNoun, inThousands, largest, percent, spell } from "./numbers.js";
import { sumOf } from "./rows.js";
import { draw, make } from "./surface.js";

/** @import { AtlasDocument, AtlasStream, AtlasHead, TextLinks } from "./atlas.js" */

/** The colour of a head's first role. @param {AtlasDocument["colors"]} colors @param {AtlasHead} head @param {string} [none] the colour of no role */
export const colorOf = (colors, { roles }, none = "var(--no-role)") => (roles.length && colors[roles[0][3]]) || none;

/** @param {string} color */
export function dotIn(color) {
  const dot = make("i", { class: "dot", "aria-hidden": "true" });
  dot.style.backgroundColor = color;
  return dot;
}

const LONG = 60;
const AROUND = 12;

/**
 * @param {AtlasDocument} page
 * @param {AtlasStream} stream
 * @param {number} number
 * @param {{name: (head: AtlasHead) => string, dot: (head: AtlasHead) => HTMLElement, go: (head: number) => void}} on
 * @returns {HTMLElement[]}
 */
export function headParts(page, stream, number, on) {
  const head = stream.heads[number];
  const roles = head.roles.map(([name, share, uniform]) =>
    make("span", { class: "role", title: `${percent(share)} of its attention; uniform attention ${percent(uniform)}` }, [name, " ", make("small", {}, [percent(share)])]));
  const steps = make("span", { class: "steps" }, [-1, 1].map((step) => {
    const count = stream.heads.length;
    return make("button", { type: "button", onclick: () => on.go((number + step + count) % count) }, [step < 0 ? "← before" : "next →"]);
  }));
  return [
    make("h2", {}, [on.dot(head), on.name(head)]),
    make("p", { class: "roles" }, [...(roles.length ? roles : [make("span", { class: "hint" }, ["no clear role"])]), steps]),
    ...(page.thing === "picture" ? pictureParts(page, stream, head) : [
    part("How far it looks", distances(stream, head), "Share of the attention between tokens of text by position, key minus query; the outermost bars: all beyond. The rest goes to special tokens."),
    part("Texts", texts(page, stream, head), `Words of the frame attend to the shaded ones; the number is the weight of the strongest link. ${page.rule}.`),
    part("What it joins", [classes(stream, head), ...joins(head)], `Classes of its keys by all attention (rank: of a word by how often it comes; the line: uniform attention), the words at the ends of each text's strongest link, with how many texts, and pairs that came ${page.fewest} times or more.`)]),
    part("Measures", [measures(page, stream, head)], `${page.interval}; the line: uniform attention.`),
    part("Nearest heads", [like(stream, head, on)], page.distance),
  ];
}

/** @param {string} title @param {Node[]} contents @param {string} how */
function part(title, contents, how) {
  const key = title.toLowerCase().replace(/\W+/g, "-");
  return make("section", { class: key }, [make("h3", {}, [title]), ...contents, make("p", { class: "hint" }, [how])]);
}

/** @param {AtlasDocument} page @param {AtlasStream} stream @param {AtlasHead} head */
function pictureParts(page, stream, head) {
  return [
    part("How far it looks", distances(stream, head), "Share of the attention between patches by their distance in patches, rounded; the last bar: all beyond. The rest goes to special tokens."),
    part("Pictures", texts(page, stream, head), `The framed patch attends to the shaded ones, the stronger the darker, and to special tokens named below; the number is the weight of the strongest link. ${page.rule}.`),
    part("What it joins", [classes(stream, head)], "Classes of its keys by all attention: special tokens, and patches by where they lie; the line: uniform attention."),
  ];
}

/** @param {AtlasDocument} page @param {AtlasStream} stream @param {AtlasHead} head */
function measures(page, stream, head) {
  const rows = stream.measures.map((measure, place) => {
    const [mean, low, high, uniform, texts] = head.values[place];
    if (mean === null) return row(measure.name, [], "", "says nothing of this head");
    const ends = stream.heads.flatMap((other) => other.values[place].slice(0, 4)).filter((value) => value !== null);
    const [least, most] = [Math.min(0, ...ends), Math.max(...ends, 1e-9)];
    const at = /** @param {number} value */ (value) => (4 + (152 * (value - least)) / (most - least)).toFixed(1);
    const lines = [draw("path", { class: "rule", d: "M4 9H156" })];
    if (uniform !== null) lines.push(draw("path", { class: "uniform", d: `M${at(uniform)} 3V15` }));
    if (low !== null && high !== null) lines.push(draw("path", { class: "interval", d: `M${at(low)} 9H${at(high)}` }));
    lines.push(draw("circle", { class: "mean", cx: at(mean), cy: 9, r: 3.5 }));
    const title = `${measure.unit} over ${countNoun(texts, page.thing)}; least: ${measure.low}; most: ${measure.high}`;
    return row(measure.name, lines, spell(mean), low === null || high === null ? "" : `${spell(low)} to ${spell(high)}`, title);
  });
  return make("table", {}, [make("tbody", {}, rows)]);
}

/** A name, its drawing, its number and what to compare it with. @param {string} name @param {Node[]} drawing @param {string} number @param {string} beside */
function row(name, drawing, number, beside, title = "") {
  const cells = [[draw("svg", { viewBox: "0 0 160 18", width: 160, "aria-hidden": "true" }, drawing)], [number], [beside]];
  return make("tr", {}, [make("th", { scope: "row" }, [name]), ...cells.map((cell, place) =>
    make("td", { class: ["", "number", "hint"][place], ...(place === 1 && title && { title }) }, cell))]);
}

/** @param {AtlasStream} stream @param {AtlasHead} head */
function distances(stream, head) {
  const { offsets } = stream;
  const first = offsets[0] < 0 ? 0 : 1; // nothing is nearer than 0
  const names = [`under ${offsets[0]}`, ...offsets.map((offset) => (offset > 0 && !first ? `+${offset}` : `${offset}`)), `over ${offsets[offsets.length - 1]}`].map((name) => name.replace("-", "−"));
  const shares = head.offsets.map((share) => share ?? 0);
  const most = Math.max(...shares, 0.01);
  const text = sumOf(shares);
  const step = first ? 22 : 12;
  const bars = shares.slice(first).map((share, at) => {
    const [height, place] = [(76 * share) / most, at + first];
    return draw("rect", { x: at * step + 1, y: (80 - height).toFixed(1), width: step - 2, height: Math.max(height, share > 0 ? 0.5 : 0).toFixed(1) }, [draw("title", {}, [`${names[place]}: ${percent(share)}`])]);
  });
  const ticks = [-16, -8, -4, 0, 4, 8, 16].map((offset) => offsets.indexOf(offset) + 1).filter(Boolean).map((place) =>
    draw("text", { x: (place - first) * step + step / 2, y: 95, "text-anchor": "middle" }, [names[place]]));
  const best = largest(shares, 3).filter((place) => shares[place] > 0.005);
  const summary = best.map((place) => `${percent(shares[place])} at ${names[place]}`).join(", ");
  const width = bars.length * step;
  return [
    draw("svg", { class: "bars", viewBox: `0 0 ${width} 100`, role: "img", "aria-label": `Attention by position: ${summary || "none between these tokens"}` }, [
      draw("path", { class: "axis", d: `M0 80.5H${width}` }), ...bars, ...ticks]),
    make("p", {}, [summary ? `${summary}; ` : "", `${percent(Math.max(1 - text, 0))} to special tokens.`]),
  ];
}

/** @param {AtlasStream} stream @param {AtlasHead} head */
function classes(stream, head) {
  const most = Math.max(...head.classes.map((share) => share ?? 0), ...head.even.map((share) => share ?? 0), 0.01);
  const rows = stream.classes.map((name, place) => {
    const [share, even] = [head.classes[place] ?? 0, head.even[place] ?? 0];
    const line = [
      draw("rect", { class: "bar", x: 0, y: 5, width: ((156 * share) / most).toFixed(1), height: 8 }),
      draw("path", { class: "uniform", d: `M${((156 * even) / most + 1).toFixed(1)} 2V16` })];
    return row(name, line, percent(share), `uniform ${percent(even)}`);
  });
  return make("table", {}, [make("tbody", {}, rows)]);
}

/** @param {AtlasHead} head */
function joins(head) {
  /** @param {string} title @param {[string, number][]} ends */
  const words = (title, ends) => make("p", { class: "ends" }, [
    make("b", {}, [title]), ...(ends.length ? ends.flatMap(([word, count]) => [" ", make("bdi", {}, [word]), make("small", {}, [inThousands(count)])]) : [" none of the frequent words"]),
  ]);
  const pairs = head.pairs.flatMap(([query, key, mean]) => [" ", make("bdi", {}, [query]), " → ", make("bdi", {}, [key]), make("small", {}, [spell(mean ?? NaN)])]);
  return [
    words("queries", head.queries), words("keys", head.keys),
    ...(pairs.length ? [make("p", { class: "ends" }, [make("b", {}, ["pairs by mean weight"]), ...pairs])] : []),
  ];
}

/** @param {AtlasDocument} page @param {AtlasStream} stream @param {AtlasHead} head */
function texts(page, stream, head) {
  const buckets = head.counts.length - 1;
  const total = sumOf(head.counts.slice(0, -1));
  const name = /** @param {number} bucket */ (bucket) =>
    bucket === buckets - 1 ? `from ${spell(bucket / buckets)} on` : `${spell(bucket / buckets)} to ${spell((bucket + 1) / buckets)}`;
  let [typical, below] = [0, 0];
  while (typical < buckets - 1 && (below += head.counts[typical]) < total / 2) typical++;
  const weakest = head.counts.findIndex((count) => count > 0);
  const parts = [];
  /** @param {string} title @param {string} more @param {TextLinks[]} links @param {boolean} there */
  const group = (title, more, links, there) => there && parts.push(
    make("h4", {}, [title, make("small", {}, [more])]),
    ...links.map((link) => (page.thing === "picture" ? picture(stream, link) : sentence(stream, link))));
  parts.push(levels(head.counts.slice(0, -1), name, page.thing));
  group("strongest", "", head.drawn[buckets], total > 0);
  for (let bucket = buckets - 1; bucket >= 0; bucket--) {
    const count = head.counts[bucket];
    const label = bucket === typical ? "typical" : bucket === weakest ? "weakest" : "";
    const above = head.drawn[bucket].filter(([text]) => head.drawn[buckets].some(([one]) => one === text));
    const others = head.drawn[bucket].filter((link) => !above.includes(link));
    const facts = [label && name(bucket), `${countNoun(count, page.thing)}, ${percent(count / (total || 1))}`, above.length && `${above.length} of those drawn ${above.length > 1 ? "are" : "is"} shown above`];
    group(label || name(bucket), ` ${facts.filter(Boolean).join(" · ")}`, others, count > 0);
  }
  const none = head.counts[buckets];
  if (none) parts.push(make("p", { class: "hint" }, [`${countNoun(none, page.thing)} with no two ${page.thing === "picture" ? "patches" : "words"} that may see each other`]));
  return parts;
}

/** How many texts there are of each strength. @param {number[]} counts @param {(bucket: number) => string} name @param {string} thing */
function levels(counts, name, thing) {
  const most = Math.max(...counts, 1);
  const bars = counts.map((count, place) => draw("rect", { x: place * 30 + 1, y: (40 - (38 * count) / most).toFixed(1), width: 28, height: ((38 * count) / most).toFixed(1) }, [draw("title", {}, [`${name(place)}: ${countNoun(count, thing)}`])]));
  const ends = counts.map((_, place) => draw("text", { x: place * 30, y: 54, "text-anchor": place ? "middle" : "start" }, [String(place / counts.length).replace("0.", ".")]));
  const label = `${thing === "text" ? "Texts" : "Pictures"} by the weight of the strongest link: ${counts.map((count, place) => `${count} ${name(place)}`).join(", ")}`;
  return draw("svg", { class: "bars levels", viewBox: `0 0 ${counts.length * 30} 58`, role: "img", "aria-label": label }, [draw("path", { class: "axis", d: `M0 40.5H${counts.length * 30}` }), ...bars, ...ends]);
}

/** Keys with their weights, which follow each other. @param {number[]} keys */
const pairsOf = (keys) => keys.flatMap((key, at) =>
  at % 2 ? [] : [/** @type {[number, number]} */ ([key, keys[at + 1]])]);

/** @param {AtlasStream} stream @param {TextLinks} link */
function sentence(stream, [place, query, ...keys]) {
  const [id, queries, others] = stream.texts[place];
  const weights = new Map(pairsOf(keys));
  const own = others === undefined;
  const lines = own ? [words(queries, query, weights)] : [words(queries, query, new Map()), words(others, -1, weights)];
  return make("p", { class: "text", title: `text ${id}` }, [make("output", {}, [spell(keys[1])]), ...lines.map((line) => make("span", { class: "line" }, line))]);
}

/** The query's patch framed, its strongest keys shaded. @param {AtlasStream} stream @param {TextLinks} link */
function picture(stream, [place, query, ...keys]) {
  const [name, { special, rows, columns, image }] = [stream.texts[place][0], stream.pictures[place]];
  const patch = /** @param {number} token */ (token) => [(token - special.length) % columns, Math.floor((token - special.length) / columns)];
  const nameOf = /** @param {number} token */ (token) => special[token] ?? patch(token).reverse().join(",");
  const links = pairsOf(keys);
  const remarks = links.filter(([key]) => key in special)
    .map(([key, weight]) => ` · ${special[key]} ${spell(weight)}`);
  const shades = links.filter(([key]) => !(key in special)).map(([key, weight]) => {
    const [x, y] = patch(key);
    const opacity = (0.7 * Math.min(weight / (keys[1] || 1), 1)).toFixed(2);
    return draw("rect", { class: "key", x, y, width: 1, height: 1, "fill-opacity": opacity });
  });
  const [x, y] = patch(query);
  const frame = ["under", "over"].map((kind) => draw("rect", { class: kind, x, y, width: 1, height: 1 }));
  const label = `${name}: patch ${nameOf(query)} attends to ${nameOf(keys[0])} by ${spell(keys[1])}`;
  return make("p", { class: "picture", title: label }, [
    make("span", { class: "patches" }, [
      image ? make("img", { src: image, alt: label }) : label,
      draw("svg", { viewBox: `0 0 ${columns} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" }, [...shades, ...frame])]),
    make("output", {}, [spell(keys[1])]), make("small", {}, remarks),
  ]);
}

/** @param {string[]} list @param {number} query @param {Map<number, number>} weights */
function words(list, query, weights) {
  const marks = [query, ...weights.keys()];
  /** @type {(Node | string)[]} */
  const parts = [];
  let isGap = false;
  list.forEach((word, place) => {
    if (list.length > LONG && marks.every((one) => Math.abs(one - place) > AROUND)) {
      if (!isGap) parts.push(" …");
      isGap = true;
      return;
    }
    isGap = false;
    const special = word.startsWith("\t");
    if (/^[ \t]/.test(word)) parts.push(" ");
    const text = special || word.startsWith(" ") ? word.slice(1) : word;
    const weight = weights.get(place) ?? 0;
    if (place !== query && !special && weight < 0.005) {
      parts.push(make("bdi", {}, [text]));
      return;
    }
    const kind = `${place === query ? "query" : ""} ${special ? "special" : ""}`.trim();
    const element = make("bdi", { ...(kind && { class: kind }), ...(weight && { title: spell(weight) }) }, [text]);
    if (weight >= 0.005) element.style.backgroundColor = `color-mix(in srgb, var(--accent) ${Math.round(8 + 37 * Math.min(weight, 1))}%, transparent)`;
    parts.push(element);
    if (special) parts.push(" ");
  });
  return parts;
}

/** @param {AtlasStream} stream @param {AtlasHead} head @param {Parameters<typeof headParts>[3]} on */
function like(stream, head, on) {
  return make("ul", { class: "like" }, head.nearest.map(([number, apart]) => make("li", {}, [
    make("button", { type: "button", onclick: () => on.go(number) }, [on.dot(stream.heads[number]), on.name(stream.heads[number]), make("small", {}, [spell(apart ?? NaN)])])])));
}
