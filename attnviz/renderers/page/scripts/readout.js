/** The numbers under the pointer: the link itself, and the strongest of its row and its column. */

import { beginning } from "./labels.js";
import { largest, spell } from "./numbers.js";
import { rowOf } from "./rows.js";
import { make } from "./surface.js";

const STRONGEST = 5;
/** What can be done in each view. @type {Record<string, string>} */
const HINTS = {
  sentence: "Point at a word to see its lines, at a cell for its number; a click keeps it.",
  heatmap: "Point at a cell for its numbers; click keeps it. Drag pans, pinch or Ctrl + wheel zooms, as do + and −.",
  lines: "Point at a token to see only its lines; click keeps it.",
  text: "Choose a word: the others are shaded by what it gives them.",
};

/** A token's place in its text: 7, or 16–31 for a block or a word. @param {ShownToken} token */
export const placeOf = (token) => token.count > 1 ? `${token.at}–${token.at + token.count - 1}` : `${token.at}`;

/** A token as it is spoken of. @param {ShownToken} token */
export function tokenElement(token) {
  const label = token.label ? [make("i", {}, [` ${token.label}`])] : [];
  const place = make("small", {}, [` ${placeOf(token)}`]);
  return make("b", {}, [make("bdi", {}, [beginning(token.text, 200)]), ...label, place]);
}

/** A number in the colour of its sign. @param {number} value @param {keyof HTMLElementTagNameMap} name of the element */
export const numberElement = (value, name = "b") => make(name, value < 0 ? { class: "below" } : {}, [spell(value)]);

/** @param {HTMLElement} element */
export function createReadout(element) {
  const link = make("p", { class: "link" });
  const row = make("p", { class: "strongest" });
  const column = make("p", { class: "strongest" });
  const spoken = make("p", { class: "unseen", "aria-live": "polite" });
  element.append(link, row, column, spoken);
  let timer = 0;
  return {
    signed: false, // whether the numbers are effects, and no shares of attention
    /** @param {ShownMatrix} matrix @param {number} query its row; -1 for none @param {number} key its column; -1 for none */
    show(matrix, query, key) {
      const width = matrix.keys.length;
      const queryToken = matrix.queries[query];
      const keyToken = matrix.keys[key];
      const weight = queryToken && keyToken ? matrix.values[query * width + key] : null;
      const words = this.signed
        ? ["→", "largest as query", "largest as key"]
        : ["attends to", "attends most to", "is attended most by"];
      link.replaceChildren(...sentence(queryToken, keyToken, weight, words[0]));
      const own = rowOf(matrix.values, query, width);
      row.replaceChildren(...(queryToken ? list(words[1], own, matrix.keys) : []));
      column.replaceChildren(...(keyToken ? list(words[2], matrix.queries.map((_, at) => matrix.values[at * width + key]), matrix.queries) : []));
      clearTimeout(timer);
      timer = setTimeout(() => (spoken.textContent = link.textContent), 300);
    },
    /** Nothing is pointed at: say what is worth a look, and what can be done. @param {Scene} scene @param {string} [more] */
    invite(scene, more = "") {
      link.replaceChildren(...linkElements(scene));
      row.replaceChildren(make("span", { class: "hint" }, [`${HINTS[scene.state.view]}${more}`]));
      column.replaceChildren();
    },
  };
}

/** @param {ShownToken | undefined} query @param {ShownToken | undefined} key @param {number | null} weight @param {string} verb */
function sentence(query, key, weight, verb) {
  if (query && key) {
    const number = weight === null ? "" : numberElement(weight, "output");
    return [tokenElement(query), ` ${verb} `, tokenElement(key), " ", number];
  }
  if (query) return [tokenElement(query), " (query)"];
  return key ? [tokenElement(key), " (key)"] : [];
}

/** Links of a matrix, each with its number. @param {Pick<Scene, "matrix" | "links">} of */
export function linkElements({ matrix: { queries, keys, values }, links }) {
  const word = (/** @type {ShownToken} */ { text }) => make("bdi", {}, [beginning(text, 24)]);
  return links.map((at) =>
    make("span", { class: "entry" }, [word(queries[Math.floor(at / keys.length)]), " → ", word(keys[at % keys.length]), " ", numberElement(values[at], "output")]));
}

/** @param {string} words @param {ArrayLike<number>} values @param {ShownToken[]} tokens */
function list(words, values, tokens) {
  const parts = largest(values, STRONGEST).map((place) =>
    make("span", { class: "entry" }, [make("bdi", {}, [beginning(tokens[place].text, 18)]), ` ${spell(values[place])}`]));
  return [make("span", { class: "hint" }, [words]), ...parts];
}
