/** Patches over their picture, in the colour of what they get from one query. */

import { cssColor, theme } from "./colors.js";
import { clamp, spell } from "./numbers.js";
import { make, onceAFrame, sized } from "./surface.js";

/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").Patches} Patches */

/** How much of the picture is left under the colours: enough to know where one is. */
const SHOWS_THROUGH = 0.35;

/** @param {HTMLImageElement} picture @param {HTMLCanvasElement} grey */
function inGrey(picture, grey) {
  grey.width = picture.naturalWidth;
  grey.height = picture.naturalHeight;
  const surface = /** @type {import("./types.js").Surface} */ (grey.getContext("2d"));
  surface.drawImage(picture, 0, 0);
  surface.globalCompositeOperation = "saturation";
  surface.fillStyle = "#808080";
  surface.fillRect(0, 0, grey.width, grey.height);
}

/**
 * @param {import("./types.js").Store} store
 * @param {ReturnType<typeof import("./readout.js").createReadout>} readout
 * @returns {import("./types.js").View}
 */
export function createImage(store, readout) {
  const canvas = make("canvas", { tabindex: 0, role: "img", "aria-roledescription": "picture in patches" });
  const queries = make("select", { "aria-label": "query" });
  const ends = make("span", { class: "hint" }, []);
  const tools = make("p", { class: "tools" }, [make("label", {}, ["attention of ", queries]), ends]);
  const element = make("div", { class: "image" }, [tools, canvas]);
  const picture = new Image();
  const grey = document.createElement("canvas");
  /** @type {Scene} */
  let scene;
  /** @type {Patches} */
  let patches;
  const size = () => {
    const most = [Math.max(element.clientWidth, 280), clamp(innerHeight - 280, 320, 800)];
    const scale = Math.min(most[0] / picture.naturalWidth, most[1] / picture.naturalHeight) || 1;
    return /** @type {[number, number]} */ ([picture.naturalWidth * scale, picture.naturalHeight * scale]);
  };
  /** The query whose attention is shown; by default the first that is not special. */
  const row = () => {
    if (scene.state.row >= 0) return Math.min(scene.state.row, scene.shown.queries.length - 1);
    return Math.max(scene.shown.queries.findIndex((token) => !token.special), 0);
  };

  /** @param {import("./types.js").Surface} surface */
  const paint = (surface) => {
    const [width, height] = size();
    surface.drawImage(grey, 0, 0, width, height);
    const colors = theme();
    const count = scene.shown.keys.length;
    const own = scene.shown.values.subarray(row() * count, (row() + 1) * count);
    const most = own.reduce((one, value, column) => (placeOfPatch(column) < 0 ? one : Math.max(one, Math.abs(value) || 0)), 0) || 1;
    const scale = { ...scene.palette, limits: /** @type {[number, number]} */ ([scene.palette.limits[0] < 0 ? -most : 0, most]) };
    ends.textContent = `Colours end at ${spell(most)}, the largest share of a patch; the picture in grey.`;
    const [across, down] = [width / patches.columns, height / patches.rows];
    scene.shown.keys.forEach((token, column) => {
      const place = placeOfPatch(column);
      if (place < 0) return;
      // Whole pixels, or the edges of neighbours would both shine through.
      const [left, top] = [place % patches.columns, Math.floor(place / patches.columns)];
      const [x, y] = [Math.round(left * across), Math.round(top * down)];
      const [wide, high] = [Math.round((left + 1) * across) - x, Math.round((top + 1) * down) - y];
      surface.globalAlpha = 1 - SHOWS_THROUGH;
      surface.fillStyle = cssColor(scale, own[column]);
      surface.fillRect(x, y, wide, high);
      surface.globalAlpha = 1;
      if (!scene.map.patches.queries || token.at !== scene.shown.queries[row()].at) return;
      surface.strokeStyle = colors.accent;
      surface.lineWidth = 3;
      surface.strokeRect(x + 1.5, y + 1.5, wide - 3, high - 3);
    });
  };
  /** Which patch a column is, from 0, row by row; -1 for none. @param {number} column */
  const placeOfPatch = (column) => {
    const place = scene.shown.keys[column].at - patches.first;
    return place < patches.rows * patches.columns ? Math.max(place, -1) : -1;
  };
  const paintNow = () => {
    if (!scene || !picture.naturalWidth) return;
    if (grey.width !== picture.naturalWidth) inGrey(picture, grey);
    paint(sized(canvas, ...size()));
  };
  const repaint = onceAFrame(paintNow);
  picture.addEventListener("load", repaint);

  /** The column of the patch at a point; -1 where its token is not shown. @param {MouseEvent} event */
  const columnAt = (event) => {
    const [width, height] = size();
    const across = clamp(Math.floor((event.offsetX / width) * patches.columns), 0, patches.columns - 1);
    const down = clamp(Math.floor((event.offsetY / height) * patches.rows), 0, patches.rows - 1);
    const at = patches.first + down * patches.columns + across;
    return scene.shown.keys.findIndex((token) => token.at === at);
  };
  canvas.addEventListener("pointermove", (event) => readout.show(scene.shown, row(), columnAt(event)));
  canvas.addEventListener("click", (event) => {
    const token = scene.shown.keys[columnAt(event)];
    const query = token ? scene.shown.queries.findIndex((other) => other.at === token.at) : -1;
    if (scene.map.patches.queries && query >= 0) store.set({ row: query });
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    store.set({ row: clamp(row() + step, 0, scene.shown.queries.length - 1) });
    event.preventDefault();
    event.stopPropagation();
  });
  queries.addEventListener("change", () => store.set({ row: Number(queries.value) }));

  return {
    element,
    show(next) {
      scene = next;
      patches = /** @type {Patches} */ (scene.map.patches.keys);
      if (picture.src !== patches.image) picture.src = patches.image;
      queries.replaceChildren(...scene.shown.queries.map((token, place) =>
        make("option", { value: place, selected: place === row() }, [`${place} ${token.text.slice(0, 40)}`])));
      canvas.setAttribute("aria-label", `Picture in ${patches.rows} by ${patches.columns} patches. Arrow keys choose the query.`);
      readout.show(scene.shown, row(), -1);
      repaint();
    },
    paint,
    size,
  };
}
