/** Token texts short enough for their place. */

import { font, write } from "./surface.js";

const MOST_CHARACTERS = 64;
/** @type {Map<string, string>} */
const cutTexts = new Map();

/** The text's first characters, and whether that is all of it; a token may have thousands. @param {string} text @param {number} count */
export function beginning(text, count = MOST_CHARACTERS) {
  if (text.length <= count) return text;
  const characters = Array.from(text.slice(0, 2 * count));
  return characters.length <= count && text.length <= 2 * count
    ? text
    : `${characters.slice(0, count).join("")}…`;
}

/**
 * The text cut to a width in pixels, ending in … where something was cut.
 * @param {Surface} surface with its font set
 * @param {string} text
 * @param {number} width
 */
export function fitText(surface, text, width) {
  const key = `${surface.font}|${Math.round(width)}|${text.length > 200 ? text.slice(0, 200) : text}`;
  let short = cutTexts.get(key);
  if (short === undefined) {
    short = cut(surface, beginning(text), width);
    if (cutTexts.size > 20000) cutTexts.clear();
    cutTexts.set(key, short);
  }
  return short;
}

/** @param {Surface} surface @param {string} text @param {number} width */
function cut(surface, text, width) {
  if (surface.measureText(text).width <= width) return text;
  const characters = Array.from(text);
  let [low, high] = [0, characters.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    const fits = surface.measureText(`${characters.slice(0, middle).join("")}…`).width <= width;
    if (fits) low = middle;
    else high = middle - 1;
  }
  return low ? `${characters.slice(0, low).join("").trimEnd()}…` : "";
}

/** A token with its label, where it has one: Paris · B-LOC. Underscores alone would read as a rule under the name before them: “_”. @param {{text: string, label?: string}} token */
export const withLabel = ({ text, label }) => text.replace(/^_+$/, "“$&”") + (label ? ` · ${label}` : "");

/** The width of the widest name, up to a most. @param {Surface} surface @param {{text: string, label?: string}[]} tokens @param {number} most */
export function widest(surface, tokens, most) {
  let width = 0;
  for (const token of tokens) {
    width = Math.max(width, surface.measureText(beginning(withLabel(token))).width);
    if (width >= most) return most;
  }
  return Math.ceil(width);
}

/** Write a text cut to its room; answers how wide it is. @param {Surface} surface @param {string} text @param {number} room @param {number} x @param {number} y @param {Lettering} how */
export function writeFitted(surface, text, room, x, y, how) {
  surface.font = font(how.size ?? 12, how.weight);
  const short = fitText(surface, text, room);
  write(surface, short, x, y, how);
  return surface.measureText(short).width;
}
