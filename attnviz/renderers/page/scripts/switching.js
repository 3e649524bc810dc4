/** What is switched off, what of that is looked at, and the buttons and keys that switch it. */

import { button } from "./controls.js";
import { beginning } from "./labels.js";
import { places, readOff, spell } from "./off.js";
import { chosenHeads, chosenMap } from "./state.js";
import { make, part, patch } from "./surface.js";

/** More heads than these that are off are named together. */
const MOST_NAMES = 5;

/**
 * @param {Store} store
 * @param {import("./off.js").Switches} off
 * @param {import("./pane.js").Pane} pane
 * @param {() => PageDocument | undefined} page the answer about the first sentence
 * @param {{open: (stream: string, layer: string, head: string) => void} | null} card what a head does in other texts, if the page knows
 */
export function createSwitching(store, off, pane, page, card) {
  const list = make("ul", { class: "off-list", "aria-label": "Switched off" });
  const element = make("div", { class: "off-bar", role: "group", "aria-label": "What is switched off" }, [list, button("Everything on", "n", () => off.reset())]);

  /** A head, a link or a token, in words. @param {string} name */
  function spellPart(name) {
    const { heads, links, tokens } = readOff(name);
    for (const [stream, layer, head] of heads) return `${stream} layer ${layer} head ${head}`;
    for (const [stream, layer, head, query, key] of links) {
      const map = page()?.maps.find((item) => item.stream === stream);
      const [from, to] = [map?.queries.tokens[query]?.text ?? query, map?.keys.tokens[key]?.text ?? key];
      return `${from} → ${to} in ${stream} ${layer}·${head}`;
    }
    const [side, position] = tokens[0] ?? ["", 0];
    const axes = page()?.maps.flatMap(({ queries, keys }) => [queries, keys]) ?? [];
    return axes.find((axis) => axis.side === side)?.tokens[position]?.text ?? `${side} ${position}`;
  }

  /** @param {string} words @param {string[]} parts */
  const item = (words, ...parts) => make("li", {}, [make("button", { type: "button", "aria-label": `Switch on again: ${words}`, onclick: () => off.restore(...parts) },
    [make("bdi", {}, [words]), make("span", { "aria-hidden": "true" }, [" ×"])])]);

  function showOff() {
    element.hidden = !off.any;
    const parts = off.parts();
    const heads = parts.filter((name) => name.split(":").length === 3);
    const others = heads.length > MOST_NAMES ? parts.filter((name) => !heads.includes(name)) : parts;
    const together = heads.length > MOST_NAMES ? [item(`${heads.length} heads`, ...heads)] : [];
    patch(list, [make("li", {}, ["Off:"]), ...together, ...others.map((name) => item(spellPart(name), name))]);
  }

  /** What can be done with what is looked at: its heads, its pinned link, its token. */
  function showChoice() {
    const { map, heads, matrix, state, cuts } = pane.scene;
    const [query, key] = [matrix.queries[state.row], matrix.keys[state.column]];
    const [isOff, one] = [heads.every((head) => off.headOff(map, head)), heads.length === 1];
    const name = one ? `layer ${map.layers[heads[0][0]]} head ${map.heads[heads[0][1]]}` : `these ${heads.length} heads`;
    const isCut = cuts.some(([row, column]) => row === state.row && column === state.column);
    const hidden = key ?? query;
    const short = (/** @type {{text: string}} */ token) => beginning(token.text, 14);
    const fits = off.fits(map);
    /** @type {[string, string, boolean][]} */
    const facts = [
      [isOff ? `Switch ${name} on` : `Switch ${name} off`, "o", fits],
      [one ? "All heads off but this one" : "All heads off but these", "a", fits],
      [query && key ? `${isCut ? "Mend" : "Cut"} ${short(query)} → ${short(key)}` : "Cut a link", "k", Boolean(fits && query && key)],
      [hidden ? `Hide ${short(hidden)}` : "Hide a token", "h", Boolean(hidden) && off.able],
      ...(card ? [/** @type {[string, string, boolean]} */ (["In other texts", "i", one && off.fits(map)])] : []),
    ];
    patch(part("acts"), facts.map(([words, letter, can]) => {
      const element = button(words, letter, keys()[letter], !can);
      if (!can && fits) element.title = "Choose a cell of the heat map, or two tokens, first";
      return element;
    }));
  }

  /** @returns {Record<string, () => void>} */
  function keys() {
    const maps = page()?.maps;
    const map = maps && chosenMap(maps, store.state);
    const heads = map ? chosenHeads(map, store.state) : [];
    const { row, column } = store.state;
    return {
      o: () => {
        const focus = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.head?.split(".").map(Number);
        if (map && off.fits(map)) off.toggleHeads(map, focus ? [[focus[0], focus[1]]] : heads);
      },
      a: () => map && off.fits(map) && off.only(map, heads),
      k: () => pane.toggleLink(row, column),
      h: () => {
        const { matrix } = pane.scene;
        const [token, side] = map && matrix.keys[column] ? [matrix.keys[column], map.keys.side] : [matrix.queries[row], map?.queries.side ?? ""];
        if (token) off.toggleTokens(side, places(token));
      },
      n: () => off.reset(),
      i: () => map && off.fits(map) && card?.open(map.stream, map.layers[heads[0][0]], map.heads[heads[0][1]]),
    };
  }

  /** @param {Off} off */
  const listNames = ({ heads, links, tokens }) => [...heads, ...links, ...tokens].map((part) => spellPart(spell(part)));

  return { element, showOff, showChoice, keys, listNames };
}
