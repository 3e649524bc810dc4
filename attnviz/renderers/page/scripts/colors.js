/** Colours of weights, from the tables that the page brings along, and of everything around. */

import { bytesOf } from "./decode.js";
import { clamp } from "./numbers.js";

/** @type {PageDocument["head_colors"]} */
let heads = { light: [], dark: [] };

/** Take the colours of heads side by side that the page brings along. @param {typeof heads} colors */
export function setHeadColors(colors) {
  heads = colors;
}

/** What is below 0, where blue is above. */
export const NEGATIVE = "#d55e00";

const [darkness, contrast] = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) => matchMedia(query));
/** Whether all is to be drawn as for paper. */
let bright = false;
const isDark = () => darkness.matches && !bright;

/** What is drawn on the light ground, whatever the reader's is. @template T @param {boolean} light @param {() => T} draw @returns {T} */
export function inLight(light, draw) {
  const root = document.documentElement;
  const before = bright;
  bright ||= light;
  root.toggleAttribute("data-bright", bright);
  try {
    return draw();
  } finally {
    bright = before;
    root.toggleAttribute("data-bright", bright);
  }
}

/** The colour of one of several heads. @param {number} number */
export function headColor(number) {
  const colors = heads[isDark() ? "dark" : "light"];
  return colors[number % colors.length];
}

/** @param {() => void} listener */
export function onThemeChange(listener) {
  for (const media of [darkness, contrast]) media.addEventListener("change", listener);
}

/** @returns {Theme} */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const colors = ["ink", "faint", "line", "paper", "accent"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
  return { ...Object.fromEntries(colors), dark: isDark() };
}

/** @param {Scheme} scheme @param {[number, number]} limits @returns {Palette} */
export function palette(scheme, limits) {
  const ground = isDark() ? "dark" : "light";
  const name = limits[0] < 0 ? /** @type {const} */ (`${ground}_signed`) : ground;
  const colors = bytesOf(scheme[name]);
  const grey = ground === "dark" ? 96 : 190;
  return { limits, table: Uint8Array.of(...colors, grey, grey, grey), steps: colors.length / 3 };
}

/** The name of the chosen colours; over a picture, the usual blues would hardly be visible. @param {State} state */
export const schemeName = ({ view, colors }) => view === "image" && colors === "blue" ? "glow" : colors;

/** Paint a bar of all colours. @param {HTMLCanvasElement} bar @param {Palette} colors @param {(share: number) => number} [fading] how opaque a share of the largest is */
export function paintBar(bar, colors, fading = () => 1) {
  const image = new ImageData(bar.width, 1);
  for (let x = 0; x < bar.width; x++) {
    const share = x / (bar.width - 1);
    const place = 3 * Math.round(share * (colors.steps - 1));
    image.data.set([...colors.table.subarray(place, place + 3), 255 * fading(colors.limits[0] < 0 ? Math.abs(2 * share - 1) : share)], 4 * x);
  }
  /** @type {CanvasRenderingContext2D} */ (bar.getContext("2d")).putImageData(image, 0, 0);
}

/** The place of a value's colour in the table; behind the last step is that of no value. @param {Palette} colors @param {number} value */
export function colorPlace(colors, value) {
  const [low, high] = colors.limits;
  if (Number.isNaN(value)) return colors.steps;
  return Math.round(clamp((value - low) / (high - low || 1), 0, 1) * (colors.steps - 1));
}

/** @param {Palette} colors @param {number} value */
export function cssColor(colors, value) {
  const place = 3 * colorPlace(colors, value);
  const [red, green, blue] = colors.table.subarray(place, place + 3);
  return `rgb(${red} ${green} ${blue})`;
}

/** Colours as pixels of an image, one a step, and that of no value. @param {Palette} colors */
export function pixels(colors) {
  const table = new Uint32Array(colors.steps + 1);
  for (let step = 0; step <= colors.steps; step++) {
    const [red, green, blue] = colors.table.subarray(3 * step, 3 * step + 3);
    table[step] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return table;
}

/** Dark or light text, whichever reads on a value's colour. @param {Palette} colors @param {number} value */
export function inkOn(colors, value) {
  const place = 3 * colorPlace(colors, value);
  const [red, green, blue] = [0, 1, 2].map((channel) => {
    const share = colors.table[place + channel] / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return 1.05 / (luminance + 0.05) >= 4.5 ? "#ffffff" : "#000000";
}
