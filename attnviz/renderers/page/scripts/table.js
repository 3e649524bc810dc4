/** The numbers as a table: to be read by eye, by a screen reader, copied, or printed. */

import { clamp, largest, spell } from "./numbers.js";
import { theme } from "./colors.js";
import { beginning, widest, withLabel, writeFitted } from "./labels.js";
import { rowOf } from "./rows.js";
import { font, make, write } from "./surface.js";

const [MOST_CELLS, MOST_ROWS, STRONGEST] = [2500, 600, 6];

/** Every weight where they are few, else the strongest of each row. @param {ShownMatrix} shown @param {string} caption */
export function tableOf({ queries, keys, values }, caption) {
  const whole = queries.length * keys.length <= MOST_CELLS;
  const rows = queries.slice(0, whole ? queries.length : MOST_ROWS).map((token, row) => {
    const own = rowOf(values, row, keys.length);
    const cells = whole ? Array.from(own, (value) => [spell(value)]) : largest(own, STRONGEST).map((place) => [name(keys[place], 16), ` ${spell(own[place])}`]);
    return make("tr", {}, [make("th", { scope: "row" }, [name(token)]), ...cells.map((cell) => make("td", {}, cell))]);
  });
  const remark = rows.length < queries.length ? ` Rows 0 to ${MOST_ROWS - 1} of ${queries.length}.` : "";
  const how = whole ? "A row for each query, a column for each key." : `The ${STRONGEST} strongest keys of each query; the CSV file has every weight.${remark}`;
  const heads = whole ? keys.map((token) => name(token)) : Array.from({ length: Math.min(STRONGEST, keys.length) }, (_, place) => `${["1st", "2nd", "3rd"][place] ?? `${place + 1}th`} key`);
  const head = make("tr", {}, [make("td"), ...heads.map((one) => make("th", { scope: "col" }, [one]))]);
  return make("table", {}, [make("caption", {}, [`${caption}. ${how}`]), make("thead", {}, [head]), make("tbody", {}, rows)]);
}

/** @param {ShownToken} token */
const name = (token, most = 28) => make("bdi", { title: beginning(token.text, 300) }, [beginning(withLabel(token), most)]);

/**
 * The table as a figure: as many columns side by side as the width has room for, the others below.
 * @param {Scene} scene
 * @param {number} width
 * @returns {Drawing}
 */
export function tableFigure({ matrix: { queries, keys, values } }, width) {
  const [ROW, LEAST, MOST] = [18, 39, 64];
  const ruler = /** @type {Surface} */ (document.createElement("canvas").getContext("2d"));
  ruler.font = font(12);
  const label = widest(ruler, queries, width * 0.3) + 8;
  const across = clamp(Math.floor((width - label) / LEAST), 1, keys.length);
  const cell = Math.min((width - label) / across, MOST);
  const blocks = Array.from({ length: Math.ceil(keys.length / across) }, (_, number) => number * across);
  const high = (queries.length + 2) * ROW;
  return { height: blocks.length * high, paint(surface) {
    const colors = theme();
    blocks.forEach((first, block) => {
      const top = block * high + ROW / 2;
      const group = keys.slice(first, first + across);
      group.forEach((key, place) => writeFitted(surface, key.text, cell - 6, label + (place + 1) * cell, top, { weight: "600", color: colors.ink, align: "right" }));
      surface.fillStyle = colors.line;
      surface.fillRect(0, top + ROW / 2, label + group.length * cell, 1);
      queries.forEach((query, row) => {
        const y = top + (row + 1) * ROW;
        writeFitted(surface, withLabel(query), label - 8, 0, y, { color: colors.ink });
        group.forEach((_, place) => write(surface, spell(values[row * keys.length + first + place]), label + (place + 1) * cell, y, { color: colors.ink, align: "right" }));
      });
    });
  } };
}
