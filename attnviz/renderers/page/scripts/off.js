/** What is switched off: heads, links and tokens, kept in the address, with undo. */

import { isReduced } from "./model.js";

/** @typedef {ReturnType<typeof createOff>} Switches */

/** @param {(string | number)[]} part */
export const spell = (part) => part.map((name) => encodeURIComponent(name)).join(":");

/** @param {string} part */
const readPart = (part) => part.split(":").map((name) => {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
});

/** @param {string} text as the address has it @returns {Off} */
export function readOff(text) {
  /** @type {Off} */
  const off = { heads: [], links: [], tokens: [] };
  for (const part of text.split(",").filter(Boolean).map(readPart)) {
    const [first, layer, head, query, key] = part;
    if (part.length === 2 && /^\d+$/.test(layer)) off.tokens.push([first, Number(layer)]);
    else if (part.length === 3) off.heads.push([first, layer, head]);
    else if (part.length === 5 && /^\d+$/.test(query) && /^\d+$/.test(key)) {
      off.links.push([first, layer, head, Number(query), Number(key)]);
    }
  }
  return off;
}

/** @param {Store} store */
export function createOff(store) {
  let able = true;
  const parts = () => store.state.off.split(",").filter(Boolean);
  /** @param {string[]} next */
  const become = (next) => {
    const off = [...new Set(next)].join(",");
    if (off === store.state.off || (off && !able)) return;
    store.set({ off });
  };
  /** Off where one of these is on, else on again. @param {string[]} these */
  const toggle = (these) => {
    const now = parts();
    const all = these.every((part) => now.includes(part));
    become(all ? now.filter((part) => !these.includes(part)) : [...now, ...these]);
  };
  /** @param {PageMap} map @param {Head} head */
  const headPart = (map, [layer, head]) => spell([map.stream, map.layers[layer], map.heads[head]]);

  return {
    get able() {
      return able;
    },
    /** Whether the model predicts something, on which switching off has an effect. @param {boolean} can */
    allow(can) {
      able = can;
    },
    get any() {
      return store.state.off !== "";
    },
    now: () => readOff(store.state.off),
    headPart,
    parts,
    /** Whether its heads are the model's; means and the like cannot be switched off. @param {PageMap} map */
    fits: (map) => able && !map.compared && ![...map.layers, ...map.heads].some(isReduced),
    /** @param {PageMap} map @param {Head} head */
    headOff: (map, head) => parts().includes(headPart(map, head)),
    /** @param {PageMap} map @param {Head[]} heads */
    toggleHeads: (map, heads) => toggle(heads.map((head) => headPart(map, head))),
    /** Every head of the stream but these. @param {PageMap} map @param {Head[]} heads */
    only(map, heads) {
      const own = heads.map((head) => headPart(map, head));
      const all = map.layers.flatMap((_, layer) => map.heads.map((_, head) => headPart(map, [layer, head])));
      become([...parts().filter((part) => !all.includes(part)), ...all.filter((part) => !own.includes(part))]);
    },
    /** @param {PageMap} map @param {Head[]} heads @param {ShownToken} query @param {ShownToken} key */
    toggleLink(map, heads, query, key) {
      toggle(heads.flatMap(([layer, head]) =>
        places(query).flatMap((row) => places(key).map((column) =>
          spell([map.stream, map.layers[layer], map.heads[head], row, column])))));
    },
    /** @param {string} side @param {number[]} positions */
    toggleTokens: (side, positions) => toggle(positions.map((place) => spell([side, place]))),
    /** @param {string} side @param {number} position */
    tokenOff: (side, position) => parts().includes(spell([side, position])),
    /** @param {string[]} these */
    restore: (...these) => become(parts().filter((part) => !these.includes(part))),
    reset: () => become([]),
    /** Only the heads, since places in words that are no longer there would mean others. */
    withoutPlaces: () => parts().filter((part) => part.split(":").length === 3).join(","),
    /** The cells of a matrix that are cut in one of these heads. @param {PageMap} map @param {Head[]} heads @param {ShownMatrix} matrix */
    cutCells(map, heads, matrix) {
      const names = new Set(heads.map((head) => headPart(map, head)));
      return readOff(store.state.off).links.flatMap(([stream, layer, head, query, key]) => {
        if (stream !== map.stream || !names.has(spell([stream, layer, head]))) return [];
        const row = matrix.queries.findIndex((token) => places(token).includes(query));
        const column = matrix.keys.findIndex((token) => places(token).includes(key));
        return row >= 0 && column >= 0 ? [/** @type {[number, number]} */ ([row, column])] : [];
      });
    },
  };
}

/** The positions of a token or of a word's pieces. @param {ShownToken} token */
export const places = (token) => Array.from({ length: token.count }, (_, more) => token.at + more);
