/** What is pointed at: the sentence, its translation, every thumbnail and the matrix show it at once. */

import { onceAFrame } from "./surface.js";

/** @typedef {[string, number]} Spot a token by its side and position */
/** @typedef {{spots: Spot[], cell: [number, number] | null, by?: Element}} Pointing tokens, and query and key where a cell is pointed at, and the view that does */

/** @type {Pointing} */
const NOTHING = { spots: [], cell: null };
let [now, base] = [NOTHING, NOTHING];
let lastName = "";
/** @type {((pointing: Pointing) => void)[]} */
const listeners = [];

const tell = onceAFrame(() => {
  const name = JSON.stringify(now);
  if (name === lastName) return;
  lastName = name;
  listeners.forEach((listener) => listener(now));
});

export const look = {
  /** Point at tokens, or let go: what was kept is lit again. @param {Spot[]} spots @param {[number, number] | null} [cell] @param {Element} [by] */
  at(spots, cell = null, by) {
    now = spots.length ? { spots, cell, by } : base;
    tell();
  },
  /** Keep tokens lit while nothing is pointed at. @param {Spot[]} spots @param {[number, number] | null} [cell] */
  keep(spots, cell = null) {
    now = base = { spots, cell };
    tell();
  },
  /** What is pinned stays lit; more that is kept with it stays too. @param {Spot[]} spots @param {[number, number]} cell */
  pin(spots, cell) {
    const names = new Set(base.spots.map((spot) => spot.join(":")));
    if (!spots.length || !spots.every((spot) => names.has(spot.join(":")))) this.keep(spots, cell);
  },
  /** @param {(pointing: Pointing) => void} listener */
  onChange(listener) {
    listeners.push(listener);
  },
};

export const NOWHERE = { row: -1, column: -1 };
/** The cell that is pinned, as far as this matrix has it. @param {Scene} scene */
export const pinOf = ({ state: { row, column }, matrix: { queries, keys } }) => ({ row: row < queries.length ? row : -1, column: column < keys.length ? column : -1 });

/** The place of a token among those shown; −1: it is not there. @param {ShownToken[]} tokens @param {number} position */
const placeAmong = (tokens, position) => tokens.findIndex(({ at, count }) => at <= position && position < at + count);

/** Words with the place of their token (`data-token`) point at it, and light up where it is pointed at. @param {HTMLElement} element that holds them */
export function linkWords(element) {
  /** @param {Event} event */
  const point = ({ target, type }) => {
    const token = /** @type {HTMLElement} */ (target).closest("[data-token]");
    const [side, place] = /** @type {HTMLElement | null} */ (token)?.dataset.token?.split(/:(?=\d+$)/) ?? [];
    look.at(side === undefined || type === "pointerleave" || type === "focusout" ? [] : [[side, Number(place)]]);
  };
  ["pointerover", "pointerleave", "focusin", "focusout"].forEach((name) => element.addEventListener(name, point));
  look.onChange(({ spots }) => {
    const names = new Set(spots.map((spot) => spot.join(":")));
    element.querySelectorAll("[data-token]").forEach((one) => one.classList.toggle("lit", names.has(/** @type {HTMLElement} */ (one).dataset.token ?? "")));
  });
}

/** Point at a row and a column of what a view shows; −1: none. @param {Scene} scene @param {number} row @param {number} column @param {Element} by */
export function lookAt({ map, matrix }, row, column, by) {
  const [query, key] = [matrix.queries[row]?.at ?? -1, matrix.keys[column]?.at ?? -1];
  /** @type {Spot[]} */
  const ends = [[map.queries.side, query], [map.keys.side, key]];
  look.at(ends.filter(([, place]) => place >= 0), [query, key], by);
}

/** Row and column of a view at which something outside of it points; null: it does itself. @param {Pointing} pointing @param {Scene} scene @param {Element} own */
export function pointedCell(pointing, { map, matrix }, own) {
  if (pointing.by === own) return null;
  const [row, column] = findCell(pointing, map);
  return { row: placeAmong(matrix.queries, row), column: placeAmong(matrix.keys, column) };
}

/** Row and column of a map that are pointed at; −1: none. @param {Pointing} pointed @param {{queries: {side: string}, keys: {side: string}}} map */
export function findCell({ spots, cell }, { queries, keys }) {
  if (cell) return cell;
  const [row, column] = [queries, keys].map(({ side }) => spots.find(([own]) => own === side)?.[1] ?? -1);
  return /** @type {[number, number]} */ ([row, column]);
}
