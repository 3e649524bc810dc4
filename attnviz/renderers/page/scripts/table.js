/** The numbers as a table: to be read by eye, by a screen reader, or copied. */

import { beginning } from "./labels.js";
import { largest, spell } from "./numbers.js";
import { make } from "./surface.js";

/** @typedef {import("./types.js").Shown} Shown */

const [MOST_CELLS, MOST_ROWS, STRONGEST] = [2500, 600, 8];

/**
 * Every weight where they are few, else the strongest of each row.
 * @param {Shown} shown
 * @param {string} caption
 */
export function tableOf(shown, caption) {
  const { queries, keys } = shown;
  return queries.length * keys.length <= MOST_CELLS ? whole(shown, caption) : strongest(shown, caption);
}

/** @param {Shown} shown @param {string} caption */
function whole({ queries, keys, values }, caption) {
  const head = keys.map((token) => make("th", { scope: "col" }, [name(token)]));
  const rows = queries.map((token, row) =>
    make("tr", {}, [
      make("th", { scope: "row" }, [name(token)]),
      ...keys.map((_, column) => make("td", {}, [spell(values[row * keys.length + column])])),
    ]));
  return make("table", {}, [
    make("caption", {}, [`${caption}. A row for each query, a column for each key.`]),
    make("thead", {}, [make("tr", {}, [make("td"), ...head])]),
    make("tbody", {}, rows),
  ]);
}

/** @param {Shown} shown @param {string} caption */
function strongest({ queries, keys, values }, caption) {
  const rows = queries.slice(0, MOST_ROWS).map((token, row) => {
    const own = values.subarray(row * keys.length, (row + 1) * keys.length);
    const cells = largest(own, STRONGEST).map((place) =>
      make("td", {}, [name(keys[place]), ` ${spell(own[place])}`]));
    return make("tr", {}, [make("th", { scope: "row" }, [name(token)]), ...cells]);
  });
  const cut = queries.length > MOST_ROWS ? ` Rows 0 to ${MOST_ROWS - 1} of ${queries.length}.` : "";
  return make("table", {}, [
    make("caption", {}, [`${caption}. The ${STRONGEST} strongest keys of each query; the CSV file has every weight.${cut}`]),
    make("tbody", {}, rows),
  ]);
}

/** @param {import("./types.js").ShownToken} token */
const name = (token) => make("bdi", { title: beginning(token.text, 300) }, [beginning(token.text, 28)]);
