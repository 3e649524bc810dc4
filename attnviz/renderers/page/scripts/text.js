/** The running text: a chosen word, and the others shaded by what it gives them or gets from them. */

import { scaleOf } from "./caption.js";
import { cssColor, inkOn, theme } from "./colors.js";
import { beginning, fitText } from "./labels.js";
import { linkWords } from "./look.js";
import { spell, spellShort } from "./numbers.js";
import { rowOf } from "./rows.js";
import { ARROWS, font, make, write } from "./surface.js";

const LONGEST = 400;
/** What is next to nothing is not shaded. */
const LEAST = 0.005;

/** @param {Store} store @param {Readout} readout @param {boolean} isLinked whether the page shows what is pointed at @returns {View} */
export function createText(store, readout, isLinked) {
  const element = make("div", { class: "text" });
  if (isLinked) linkWords(element);
  element.addEventListener("keydown", (event) => {
    const [down, across] = ARROWS[event.key] ?? [0, 0];
    const all = [...new Set([...words.queries, ...words.keys])];
    const next = all[all.indexOf(/** @type {HTMLButtonElement} */ (event.target)) + down + across];
    if (!(down || across) || !next || !all.some((button) => button === event.target)) return;
    event.preventDefault();
    event.stopPropagation();
    stopAt(next).focus();
  });
  /** The word that Tab goes to, from which the arrow keys walk. @param {HTMLButtonElement} stop */
  const stopAt = (stop) => {
    [...words.queries, ...words.keys].forEach((button) => (button.tabIndex = button === stop ? 0 : -1));
    return stop;
  };
  /** @type {Scene} */
  let scene;
  /** @type {{queries: HTMLButtonElement[], keys: HTMLButtonElement[]}} */
  let words = { queries: [], keys: [] };
  let twoTexts = false;

  /** @param {"row" | "column"} axis @param {number} place */
  const choose = (axis, place) => {
    if (twoTexts) store.set(axis === "row" ? { row: place, column: -1, direction: "from" } : { row: -1, column: place, direction: "to" });
    else store.set(scene.state.direction === "from" ? { row: place, column: -1 } : { row: -1, column: place });
  };

  /** The token that is looked at, and what each other gives it or gets from it. @param {Scene} of */
  const readRow = ({ matrix, state, links }) => {
    const width = matrix.keys.length;
    const from = state.direction === "from";
    const place = from ? state.row : state.column;
    const own = place >= 0 && place < (from ? matrix.queries : matrix.keys).length;
    const [link = -1] = links; // shades the text where nothing is chosen
    const choice = own ? place : from ? Math.floor(link / width) : link < 0 ? -1 : link % width;
    if (choice < 0) return { from, own, choice, values: [] };
    const values = from ? rowOf(matrix.values, choice, width)
      : matrix.queries.map((_, at) => matrix.values[at * width + choice]);
    return { from, own, choice, values: Array.from(values) };
  };

  const shade = () => {
    const { matrix, palette } = scene;
    const { from, own, choice, values } = readRow(scene);
    const buttons = from ? words.keys : words.queries;
    const all = new Set([...words.queries, ...words.keys]);
    all.forEach((button) => plain(button));
    if (!own) readout.invite(scene);
    if (choice < 0) return;
    buttons.forEach((button, at) => {
      button.setAttribute("aria-description", spell(values[at]));
      if (!(Math.abs(values[at]) < LEAST)) shadeWord(button, palette, values[at], spellShort(values[at]));
    });
    const active = (from ? words.queries : words.keys)[choice];
    active?.classList.add("active");
    active?.setAttribute("aria-pressed", String(own));
    if (active && !element.contains(document.activeElement)) stopAt(active);
    if (own) readout.show(matrix, from ? choice : -1, from ? -1 : choice);
  };

  /** What stands above the words of each side. @param {Scene} of @returns {[string, string]} */
  const headings = ({ map }) => {
    const signed = map.values === "signed";
    return [`${sideName(map.queries.side, "query")}${signed ? "" : ": attends"}`, `${sideName(map.keys.side, "key")}${signed ? "" : ": is attended to"}`];
  };

  /** @param {Scene} next */
  const build = (next) => {
    const { matrix, map } = next;
    twoTexts = !sameTokens(matrix.queries, matrix.keys) || map.queries.side !== map.keys.side;
    words = { queries: [], keys: [] };
    const signed = map.values === "signed";
    const direction = toggle(store, next.state.direction, signed);
    if (twoTexts) {
      words.queries = matrix.queries.map((token, place) => word(token, () => choose("row", place)));
      words.keys = matrix.keys.map((token, place) => word(token, () => choose("column", place)));
      element.replaceChildren(
        make("h2", {}, [headings(next)[0]]), joinWords(matrix.queries, words.queries),
        make("h2", {}, [headings(next)[1]]), joinWords(matrix.keys, words.keys),
      );
    } else {
      words.queries = matrix.queries.map((token, place) => word(token, () => choose(store.state.direction === "from" ? "row" : "column", place)));
      words.keys = words.queries;
      element.replaceChildren(direction, joinWords(matrix.queries, words.queries));
    }
    stopAt(words.queries[0]);
    matrix.queries.forEach(({ at }, place) => (words.queries[place].dataset.token = `${map.queries.side}:${at}`));
    matrix.keys.forEach(({ at }, place) => (words.keys[place].dataset.token = `${map.keys.side}:${at}`));
  };

  return {
    element,
    show(next) {
      const same = scene && scene.map === next.map && sameTokens(scene.matrix.queries, next.matrix.queries) && sameTokens(scene.matrix.keys, next.matrix.keys) && scene.state.direction === next.state.direction;
      scene = next;
      if (!same || !element.firstChild) build(next);
      shade();
    },
    figure(target, width) {
      const { from, choice, values } = readRow(target);
      const sides = twoTexts ? /** @type {const} */ (["queries", "keys"]) : /** @type {const} */ (["queries"]);
      const ruler = /** @type {Surface} */ (document.createElement("canvas").getContext("2d"));
      let y = 0;
      const lines = sides.map((side, number) => {
        const [top, isActive] = [y, (side === "queries") === from];
        const layout = flow(ruler, target.matrix[side], width, y + (twoTexts ? 30 : 8));
        y = layout.bottom + 10;
        return { side, top, layout, heading: twoTexts ? headings(target)[number] : "", active: isActive ? choice : -1, shades: !isActive || !twoTexts ? values : [] };
      });
      return { height: y, scale: choice < 0 ? undefined : scaleOf(target), paint(surface) {
        for (const { side, top, layout, heading, active, shades } of lines) {
          write(surface, heading, 0, top + 14, { color: theme().faint, base: "alphabetic" });
          layout.boxes.forEach((box, place) => paintWord(surface, target, target.matrix[side][place], box, shades[place] ?? 0, place === active || (!twoTexts && place === choice)));
        }
      } };
    },
  };
}

/** @param {HTMLButtonElement} button @param {Palette} palette @param {number} value @param {string} number below it */
export function shadeWord(button, palette, value, number) {
  button.style.backgroundColor = cssColor(palette, value);
  button.style.color = inkOn(palette, value);
  /** @type {HTMLElement} */ (button.lastChild).textContent = number;
}

/** @param {HTMLButtonElement} button */
export function plain(button) {
  button.style.backgroundColor = "";
  button.style.color = "";
  /** @type {HTMLElement} */ (button.lastChild).textContent = "";
  button.classList.remove("active");
  button.setAttribute("aria-pressed", "false");
  button.removeAttribute("aria-description");
}

/** @param {ShownToken} token @param {() => void} choose */
export function word(token, choose) {
  return make("button", { type: "button", class: token.special ? "word special" : "word", onclick: choose }, [
    make("bdi", {}, [beginning(token.text, LONGEST)]),
    make("span", { class: "number" }),
  ]);
}

/** @param {ShownToken[]} tokens @param {HTMLElement[]} words */
export function joinWords(tokens, words) {
  /** @type {Node[]} */
  const parts = [];
  tokens.forEach((token, place) => {
    if (token.gap === "\n") parts.push(make("br"));
    else if (token.gap) parts.push(make("span", { class: "gap" }));
    parts.push(words[place]);
  });
  return make("p", { class: "running" }, parts);
}

/** @param {Store} store @param {string} direction @param {boolean} signed */
function toggle(store, direction, signed) {
  const [from, to] = signed ? ["the word as query", "the word as key"] : ["the word attends to", "the word is attended by"];
  /** @param {string} name */
  const turn = (name) => {
    const place = Math.max(store.state.row, store.state.column);
    store.set(name === "from" ? { direction: name, row: place, column: -1 } : { direction: name, row: -1, column: place });
  };
  return make("div", { class: "segments", role: "group", "aria-label": "Direction" }, [["from", from], ["to", to]].map(([name, words]) =>
    make("button", { type: "button", "aria-pressed": String(direction === name), onclick: () => turn(name) }, [words])));
}

/** @param {ShownToken[]} one @param {ShownToken[]} other */
function sameTokens(one, other) {
  return one.length === other.length && one.every((token, place) => token.text === other[place].text && token.at === other[place].at);
}

/** @param {string} side @param {string} role */
const sideName = (side, role) => (side && side !== "text" ? `${side} (${role})` : role);

/**
 * Where each word of a running text stands: left, top and width.
 * @param {Surface} ruler
 * @param {ShownToken[]} tokens
 * @param {number} width
 * @param {number} top
 */
function flow(ruler, tokens, width, top) {
  ruler.font = font(15);
  let [x, y] = [0, top];
  const boxes = tokens.map((token) => {
    const text = fitText(ruler, token.text, width - 6);
    const wide = ruler.measureText(text).width + 6;
    x += token.gap ? 5 : 0;
    if ((x && x + wide > width) || token.gap === "\n") [x, y] = [0, y + 40];
    const box = { text, x, y, wide };
    x += wide;
    return box;
  });
  return { boxes, bottom: y + 36 };
}

/** @param {Surface} surface @param {Scene} of @param {ShownToken} token @param {{text: string, x: number, y: number, wide: number}} box @param {number} value @param {boolean} active */
function paintWord(surface, { palette }, token, { text, x, y, wide }, value, active) {
  const [colors, hasShade] = [theme(), Math.abs(value) >= LEAST];
  if (hasShade) {
    surface.fillStyle = cssColor(palette, value);
    surface.fillRect(x, y, wide, 36);
  }
  if (active) {
    [surface.strokeStyle, surface.lineWidth] = [colors.accent, 2];
    surface.strokeRect(x + 1, y + 1, wide - 2, 34);
  }
  const color = hasShade ? inkOn(palette, value) : token.special ? colors.faint : colors.ink;
  write(surface, text, x + wide / 2, y + 13, { size: 15, color, align: "center" });
  if (hasShade) write(surface, spellShort(value), x + wide / 2, y + 28, { size: 9.5, color, align: "center" });
}
