/** A figure, laid out to a width: title, what it is of, what is drawn, legend, scale, and what must be known. */

import { inLight, paintBar, theme } from "./colors.js";
import { font, paintAt, write } from "./surface.js";
import { SvgSurface } from "./svg.js";

/**
 * @typedef {object} Contents
 * @property {string} title
 * @property {string} caption
 * @property {{words: string, drawing: Drawing}[]} parts what is drawn, one below the other, under words of its own
 * @property {string[]} facts the model, what is off, and what was done on the way
 * @typedef {{width: number, height: number, paint: (surface: Surface) => void}} Figure
 */

const [EDGE, GAP, BAR, CHIP] = [16, 12, 150, 14];

/** Lines of at most such a width; a word that is longer is broken. @param {Surface} surface with its font set @param {string} text @param {number} width */
export function wrapLines(surface, text, width) {
  const fits = (/** @type {string} */ line) => surface.measureText(line.trimEnd()).width <= width;
  const lines = [""];
  for (const word of text.match(/\S+\s*/g) ?? []) {
    const pieces = fits(word) ? [word] : Array.from(word);
    for (const piece of pieces) {
      if (fits(lines[lines.length - 1] + piece)) lines[lines.length - 1] += piece;
      else lines.push(piece);
    }
  }
  return lines.filter((line, place) => line || place);
}

/**
 * @param {Contents} contents
 * @param {{width: number, withTitle: boolean, light: boolean}} how width in CSS pixels, of all of it
 * @returns {Figure}
 */
export function layout({ title, caption, parts, facts }, { width, withTitle, light }) {
  const ruler = /** @type {Surface} */ (document.createElement("canvas").getContext("2d"));
  const inner = width - 2 * EDGE;
  /** @type {((surface: Surface, colors: Theme) => void)[]} */
  const steps = [];
  let y = EDGE;
  /** @param {string} text @param {number} size @param {"ink" | "faint"} color @param {string} [weight] */
  const say = (text, size, color, weight = "") => {
    ruler.font = font(size, weight);
    for (const line of wrapLines(ruler, text, inner)) {
      y += size * 1.35;
      const at = y;
      steps.push((surface, colors) => write(surface, line.trimEnd(), EDGE, at, { size, weight, color: colors[color], base: "alphabetic" }));
    }
  };
  /** Small things side by side, as many to a line as fit. @param {{room: number, words: string, draw: (surface: Surface, x: number, y: number) => void}[]} items */
  const row = (items) => {
    ruler.font = font(11.5);
    let x = EDGE;
    y += GAP;
    for (const { room, words, draw } of items) {
      const lines = wrapLines(ruler, words, inner - room);
      const wide = room + Math.max(...lines.map((line) => ruler.measureText(line).width));
      if (x > EDGE && x + wide > width - EDGE) [x, y] = [EDGE, y + 18];
      lines.forEach((line, number) => {
        if (number) y += 16;
        const [left, top] = [x, y];
        steps.push((surface, colors) => {
          if (!number) draw(surface, left, top);
          write(surface, line.trimEnd(), left + room, top + 6, { size: 11.5, color: colors.ink });
        });
      });
      x += wide + 16;
    }
    y += 14;
  };

  if (withTitle) {
    say(title, 15, "ink", "600");
    say(caption, 12, "faint");
  }
  for (const { words, drawing } of parts) {
    if (parts.length > 1) {
      y += GAP;
      say(words, 13, "ink", "600");
    }
    y += GAP;
    const at = y;
    steps.push((surface) => paintAt(surface, EDGE, at, () => drawing.paint(surface)));
    y += drawing.height;
  }
  const { legend = [], scale } = parts[0].drawing;
  if (legend.length) {
    row(legend.map(({ color, words }) => ({ room: color ? CHIP + 6 : 0, words, draw(surface, x, top) {
      surface.fillStyle = color;
      if (color) surface.fillRect(x, top + 3, CHIP, 6);
    } })));
  }
  if (scale) {
    const bar = document.createElement("canvas");
    [bar.width, bar.height] = [256, 1];
    paintBar(bar, scale.palette, scale.fading);
    ruler.font = font(11.5);
    const low = ruler.measureText(scale.low).width;
    const [room, whole] = [low + BAR + 14, `${scale.high}  ${scale.words}`];
    const fits = ruler.measureText(whole).width <= inner - room;
    row([{ room, words: fits ? whole : scale.high, draw(surface, x, top) {
      surface.imageSmoothingEnabled = true;
      surface.drawImage(bar, x + low + 6, top + 1, BAR, 10);
      write(surface, scale.low, x, top + 6, { size: 11.5, color: theme().ink });
    } }]);
    if (!fits) say(scale.words, 11.5, "ink");
  }
  facts.filter(Boolean).forEach((fact) => {
    y += 3;
    say(fact, 11, "faint");
  });
  const height = Math.ceil(y + EDGE);
  return { width, height, paint: (surface) => inLight(light, () => {
    const colors = theme();
    surface.fillStyle = colors.paper;
    surface.fillRect(0, 0, width, height);
    steps.forEach((step) => step(surface, colors));
  }) };
}

/** @param {Figure} figure @param {number} millimetres its width on paper; 0: in pixels */
export function asSvg(figure, millimetres) {
  const surface = new SvgSurface();
  figure.paint(/** @type {any} */ (surface));
  const file = surface.asFile(figure.width, figure.height, millimetres);
  return new Blob([file], { type: "image/svg+xml" });
}

/** @param {Figure} figure @param {number} scale @param {HTMLCanvasElement} [canvas] */
export function onCanvas(figure, scale, canvas = document.createElement("canvas")) {
  const most = Math.min(scale, 16000 / figure.height);
  [canvas.width, canvas.height] = [Math.round(figure.width * most), Math.round(figure.height * most)];
  const surface = /** @type {Surface} */ (canvas.getContext("2d"));
  surface.scale(most, most);
  figure.paint(surface);
  return canvas;
}
