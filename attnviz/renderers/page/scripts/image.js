/**
 * Patches over their picture, in the colour of what they get from one query. Where words look, they
 * stand beside it: a word shows where it looked, a patch which words looked at it.
 */

import { cssColor, paintBar, theme } from "./colors.js";
import { clamp, spell } from "./numbers.js";
import { rowOf, sumOf } from "./rows.js";
import { ARROWS, make, onceAFrame, sizeCanvas } from "./surface.js";
import { plain, joinWords, shadeWord, word } from "./text.js";

/** How much so many times an even look cover, by their logarithm; an even look leaves the picture as it is (`features/image/overlay.py`). */
const [OPAQUE, TIMES] = [0.9, 10];
/** @param {number} share of the scale */
const covers = (share) => OPAQUE * clamp(share, 0, 1);

/** @param {Surface} surface @param {string} color @param {number[]} box */
function outline(surface, color, ...[x, y, wide, high]) {
  [surface.strokeStyle, surface.lineWidth] = [color, 3];
  surface.strokeRect(x + 1.5, y + 1.5, wide - 3, high - 3);
}

/** @param {Store} store @param {Readout} readout @returns {View} */
export function createImage(store, readout) {
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "picture in patches" });
  const queries = make("select", { "aria-label": "query", onchange: () => store.set({ row: Number(queries.value) }) });
  const bar = make("canvas", { width: 160, height: 1, class: "ramp", "aria-hidden": "true" });
  const [low, high] = [make("span", {}, []), make("span", {}, [])];
  const ends = make("span", { class: "hint" }, [low, " ", bar, " ", high]);
  const choice = make("label", {}, ["attention of ", queries]);
  const tools = make("p", { class: "tools" }, [choice, ends]);
  const text = make("div", { class: "beside", role: "group", "aria-label": "Words" });
  const element = make("div", { class: "image" }, [tools, make("div", { class: "together" }, [canvas, text])]);
  const picture = new Image();
  /** @type {Scene} */
  let scene;
  /** @type {Patches} */
  let patches;
  /** @type {HTMLButtonElement[]} */
  let words = [];
  /** What is pointed at, before anything is chosen. */
  const over = { row: -1, column: -1 };
  /** @param {number} most */
  const sizeIn = (most) => {
    const wide = most * (words.length && most > 700 ? 0.6 : 1);
    const scale = Math.min(Math.max(wide, 240) / picture.naturalWidth, clamp(innerHeight - 280, 320, 800) / picture.naturalHeight) || 1;
    return /** @type {[number, number]} */ ([picture.naturalWidth * scale, picture.naturalHeight * scale]);
  };
  const size = () => sizeIn(element.clientWidth);
  /** The query whose attention is shown: the class token, or the first word, where none is chosen; -1: all alike. */
  const row = () => {
    const place = over.row >= 0 ? over.row : scene.state.row;
    if (place >= 0) return Math.min(place, scene.matrix.queries.length - 1);
    const patches = scene.map.patches.queries !== undefined;
    return scene.matrix.queries.findIndex((token) => Boolean(token.special) === patches);
  };
  /** What each patch gets from the query, or from all of them on average; an even look at them, and the colours. @param {Scene} of */
  const rowShares = ({ matrix, palette, map }) => {
    const [count, place] = [matrix.keys.length, row()];
    const mean = () => Float32Array.from(matrix.keys, (_, column) => matrix.queries.reduce((sum, _, place) => sum + (matrix.values[place * count + column] || 0), 0) / matrix.queries.length);
    const own = place < 0 ? mean() : rowOf(matrix.values, place, count);
    const sizes = [...own].filter((_, column) => placeOfPatch(column) >= 0).map((value) => Math.abs(value) || 0);
    const [most, signed] = [Math.max(...sizes) || 1, palette.limits[0] < 0];
    const even = signed ? 0 : sumOf(sizes) / sizes.length;
    const limits = /** @type {[number, number]} */ (signed ? [-most, most] : [0, 1]);
    const times = signed ? own : own.map((value) => Math.log10(Math.max(value / even, 1)));
    const words = `${map.unit} that ${place < 0 ? "all queries give on average" : `“${matrix.queries[place].text}” gives`}: ${spell(most)} at most`;
    return { times, scale: { palette: { ...palette, limits }, low: signed ? spell(-most) : `even look ${spell(even)}`, high: signed ? spell(most) : `${TIMES} × and more:`, words, fading: covers } };
  };

  /** @param {Surface} surface @param {Scene} target @param {[number, number]} place */
  const paint = (surface, target, [width, height]) => {
    surface.drawImage(picture, 0, 0, width, height);
    const colors = theme();
    const { times, scale } = rowShares(target);
    const [across, down] = [width / patches.columns, height / patches.rows];
    target.matrix.keys.forEach((token, column) => {
      const place = placeOfPatch(column);
      if (place < 0) return;
      // Whole pixels, or the edges of neighbours would both shine through.
      const [left, top] = [place % patches.columns, Math.floor(place / patches.columns)];
      const [x, y] = [Math.round(left * across), Math.round(top * down)];
      const [wide, high] = [Math.round((left + 1) * across) - x, Math.round((top + 1) * down) - y];
      surface.globalAlpha = Number.isNaN(times[column]) ? OPAQUE : covers(Math.abs(times[column]) / scale.palette.limits[1]);
      surface.fillStyle = cssColor(scale.palette, times[column]);
      surface.fillRect(x, y, wide, high);
      surface.globalAlpha = 1;
      const looks = scene.map.patches.queries && token.at === target.matrix.queries[row()]?.at;
      if (looks || (words.length && column === patch())) outline(surface, colors.accent, x, y, wide, high);
    });
  };
  /** The column of the patch that words are shaded by; -1 for none. */
  const patch = () => {
    const place = over.column >= 0 ? over.column : scene.state.column;
    return place < scene.matrix.keys.length ? place : -1;
  };
  /** Words in the colour of what they give to a patch; the one that looks is marked. */
  const shade = () => {
    const width = scene.matrix.keys.length;
    const column = patch();
    const values = words.map((_, place) => (column < 0 ? 0 : scene.matrix.values[place * width + column]));
    const most = values.reduce((one, value) => Math.max(one, Math.abs(value) || 0), 0) || 1;
    const scale = { ...scene.palette, limits: /** @type {[number, number]} */ ([scene.palette.limits[0] < 0 ? -most : 0, most]) };
    words.forEach((button, place) => {
      plain(button);
      const looks = column < 0 && place === row();
      button.classList.toggle("active", looks);
      button.setAttribute("aria-pressed", String(looks));
      if (column < 0 || !(Math.abs(values[place]) > most / 20)) return;
      button.setAttribute("aria-description", spell(values[place]));
      shadeWord(button, scale, values[place], spell(values[place]));
    });
  };
  const look = () => {
    shade();
    readout.show(scene.matrix, patch() >= 0 && words.length ? -1 : row(), patch());
    repaint();
  };
  /** @param {number} place @param {number} column */
  const point = (place, column) => {
    Object.assign(over, { row: place, column });
    look();
  };
  const build = () => {
    words = scene.map.patches.queries || scene.matrix.queries.length < 2 ? [] : scene.matrix.queries.map((token, place) => {
      const button = word(token, () => store.set({ row: place, column: -1 }));
      button.onpointerenter = (event) => event.pointerType === "mouse" && point(place, -1);
      button.onfocus = () => point(place, -1);
      button.onblur = button.onpointerleave = () => point(-1, -1);
      return button;
    });
    text.replaceChildren(...(words.length ? [joinWords(scene.matrix.queries, words), make("p", { class: "hint" }, ["A word shows where it looked, a patch which words looked at it (arrow keys on the picture move over its patches). Choose one to keep it."])] : []));
    tools.replaceChildren(...(words.length ? [ends] : [choice, ends]));
  };
  /** Which patch a column is, from 0, row by row; -1 for none. @param {number} column */
  const placeOfPatch = (column) => {
    const place = scene.matrix.keys[column].at - patches.first;
    return place < patches.rows * patches.columns ? Math.max(place, -1) : -1;
  };
  const paintNow = () => {
    if (!scene || !picture.naturalWidth) return;
    const { scale } = rowShares(scene);
    paintBar(bar, scale.palette, covers);
    low.textContent = scale.low;
    high.textContent = `${scale.high}  ${scale.words}`;
    paint(sizeCanvas(canvas, ...size()), scene, size());
  };
  const repaint = onceAFrame(paintNow);
  picture.addEventListener("load", repaint);

  /** The column of the patch at a point; -1 where its token is not shown. @param {MouseEvent} event */
  const columnAt = (event) => {
    const [width, height] = size();
    const across = clamp(Math.floor((event.offsetX / width) * patches.columns), 0, patches.columns - 1);
    const down = clamp(Math.floor((event.offsetY / height) * patches.rows), 0, patches.rows - 1);
    const at = patches.first + down * patches.columns + across;
    return scene.matrix.keys.findIndex((token) => token.at === at);
  };
  canvas.addEventListener("pointermove", (event) => {
    if (words.length) {
      if (event.pointerType === "mouse") point(-1, columnAt(event));
    } else readout.show(scene.matrix, row(), columnAt(event));
  });
  canvas.addEventListener("pointerleave", () => words.length && point(-1, -1));
  canvas.addEventListener("click", (event) => {
    if (words.length) return store.set({ column: columnAt(event) === scene.state.column ? -1 : columnAt(event) });
    const token = scene.matrix.keys[columnAt(event)];
    const query = token ? scene.matrix.queries.findIndex((other) => other.at === token.at) : -1;
    if (scene.map.patches.queries && query >= 0) store.set({ row: query });
  });
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    event.stopPropagation();
    if (words.length) {
      const [first, last] = [scene.matrix.keys.findIndex((token) => token.at === patches.first), scene.matrix.keys.length - 1];
      const next = scene.state.column < first ? first : scene.state.column + down * patches.columns + right;
      return store.set({ column: next < first || next > last ? scene.state.column : next });
    }
    store.set({ row: clamp(row() + down + right, 0, scene.matrix.queries.length - 1), column: -1 });
  });

  return {
    element,
    show(next) {
      scene = next;
      patches = /** @type {Patches} */ (scene.map.patches.keys);
      if (picture.src !== patches.image) picture.src = patches.image;
      const every = row() < 0 ? [make("option", { value: -1, selected: true }, ["all on average"])] : [];
      queries.replaceChildren(...every, ...scene.matrix.queries.map((token, place) =>
        make("option", { value: place, selected: place === row() }, [`${place} ${token.text.slice(0, 40)}`])));
      build();
      const moves = words.length ? "move over its patches" : "choose the query";
      canvas.setAttribute("aria-label", `Picture in ${patches.rows} by ${patches.columns} patches. Arrow keys ${moves}.`);
      look();
    },
    figure(target, width) {
      const place = sizeIn(width);
      return { height: place[1], scale: rowShares(target).scale, paint: (surface) => paint(surface, target, place) };
    },
  };
}
