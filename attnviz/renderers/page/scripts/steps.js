/** A calculation matrix by matrix: point at a number and see the rows and columns that make it. */

import { ARROWS, make, part, textOf } from "./surface.js";

/**
 * What a matrix reads of another: rows and columns are those of the number that is made ("i", "j"),
 * the number of its own matrix among several ("s"), or all of them ("*").
 * @typedef {{name: string, rows: string, columns: string, by: string}} Read
 * @typedef {{name: string, size: string, formula: string, origin: string, stage: string,
 *   product: boolean, tint: number, rows: string[], columns: string[], places: number[][],
 *   full: number[], slices: {name: string, cells: string[][], values: number[][]}[],
 *   reads: Read[]}} Matrix
 * @typedef {{title: string, about: string, notes: string[], agreed: string[], matrices: Matrix[]}} Calculation
 * @typedef {{title: string, command: string, calculations: Calculation[]}} Steps
 * @typedef {{matrix: Matrix, slice: number, row: number, column: number}} Place
 */

const STAGES = {
  inputs: "what goes in",
  projections: "what is learned",
  projected: "queries, keys and values",
  scores: "scores and weights",
  output: "what comes out",
};
const MOST_TERMS = 16;

/** @type {Steps} */
const steps = JSON.parse(textOf("document"));
/** The cells of each matrix: [slice][row][column], where shown. @type {Map<Matrix, HTMLElement[][][]>} */
const cells = new Map();
/** @type {Map<HTMLElement, Place>} */
const places = new Map();
/** @type {Map<Matrix, Calculation>} */
const homes = new Map();
/** @type {HTMLElement | null} */
let pin = null;

/** @param {Matrix} matrix @param {number} number */
const idOf = (matrix, number) => `m${number}-${matrix.name}`;

part("steps").append(...steps.calculations.map(section));
if (steps.command) part("footer").append(make("p", {}, [make("code", {}, [steps.command])]));

/** @param {Calculation} calculation @param {number} number */
function section(calculation, number) {
  const parts = [make("h2", {}, [calculation.title])];
  if (steps.calculations.length === 1) parts.pop();
  if (calculation.about) parts.push(make("p", {}, [calculation.about]));
  parts.push(...calculation.notes.map((note) => make("p", { class: "note" }, [note])));
  parts.push(...calculation.agreed.map((line) => make("p", { class: "hint" }, [line])));
  let stage = "";
  for (const matrix of calculation.matrices) {
    homes.set(matrix, calculation);
    if (matrix.stage !== stage) {
      stage = matrix.stage;
      const asks = stage !== "projected" || calculation.matrices.some(({ name }) => /query|key/.test(name));
      const title = asks ? STAGES[/** @type {keyof typeof STAGES} */ (stage)] : "on the way";
      parts.push(make("div", { class: "stage" }, [make(steps.calculations.length === 1 ? "h2" : "h3", {}, [title])]));
    }
    parts[parts.length - 1].append(figure(matrix, number));
  }
  return make("section", {}, parts);
}

/** @param {Matrix} matrix @param {number} number */
function figure(matrix, number) {
  const calculation = steps.calculations[number];
  const names = calculation.matrices.map((one) => one.name);
  const words = matrix.formula.split(/([a-z_]+)/).map((word) => {
    const other = matrix.reads.some((read) => read.name === word) ? calculation.matrices[names.indexOf(word)] : null;
    return other ? make("a", { href: `#${idOf(other, number)}` }, [word]) : word;
  });
  const caption = make("figcaption", {}, [
    make("b", {}, [matrix.name]), make("small", {}, [matrix.size]),
    make("span", { class: "formula" }, matrix.formula ? ["= ", ...words] : [matrix.origin]),
  ]);
  cells.set(matrix, []);
  const tables = matrix.slices.map((_, slice) => table(matrix, slice));
  return make("figure", { id: idOf(matrix, number) }, [
    caption, make("div", { class: "scroll" }, [make("div", { class: "slices" }, tables)]),
  ]);
}

/** @param {Matrix} matrix @param {number} slice */
function table(matrix, slice) {
  const [rows, columns] = matrix.places;
  const own = matrix.slices[slice];
  const grid = /** @type {HTMLElement[][][]} */ (cells.get(matrix));
  grid[slice] = [];
  const body = rows.map((row, down) => {
    if (row < 0) return make("tr", {}, [make("td", { class: "gap", colspan: columns.length + 1 }, ["⋮"])]);
    grid[slice][row] = [];
    const tds = columns.map((column, across) => {
      if (column < 0) return make("td", { class: "gap" }, ["…"]);
      const first = !places.size || (down === 0 && across === 0);
      const cell = make("td", { tabindex: first ? 0 : -1 }, [own.cells[down][across]]);
      tint(cell, own.values[down][across], matrix.tint);
      grid[slice][row][column] = cell;
      places.set(cell, { matrix, slice, row, column });
      return cell;
    });
    const head = matrix.rows.length ? [make("th", { scope: "row" }, [make("bdi", {}, [matrix.rows[row]])])] : [];
    return make("tr", {}, [...head, ...tds]);
  });
  const parts = own.name ? [make("caption", {}, [make("bdi", {}, [own.name])])] : [];
  if (matrix.columns.length) {
    const heads = columns.map((column) =>
      make("th", { scope: "col" }, column < 0 ? [] : [make("bdi", {}, [matrix.columns[column]])]));
    parts.push(/** @type {any} */ (make("thead", {}, [make("tr", {}, [...(matrix.rows.length ? [make("td")] : []), ...heads])])));
  }
  return make("table", {}, [...parts, make("tbody", {}, body)]);
}

/** @param {HTMLElement} cell @param {number} value @param {number} most */
function tint(cell, value, most) {
  if (!most || !value) return;
  cell.style.setProperty("--shade", value < 0 ? "var(--below)" : "var(--accent)");
  cell.style.setProperty("--share", `${Math.min(60, (60 * Math.abs(value)) / most).toFixed(1)}%`);
}

/**
 * The places of another matrix that a number is made of.
 * @param {Read} read
 * @param {Place} place
 * @returns {{matrix: Matrix, slices: number[], rows: number[], columns: number[]}}
 */
function sources(read, { matrix, slice, row, column }) {
  const home = /** @type {Calculation} */ (homes.get(matrix));
  const other = /** @type {Matrix} */ (home.matrices.find((one) => one.name === read.name));
  const [height, width] = other.full;
  if (read.by === "split") {
    return { matrix: other, slices: [0], rows: [row], columns: [slice * matrix.full[1] + column] };
  }
  if (read.by === "join") {
    return { matrix: other, slices: [Math.floor(column / width)], rows: [row], columns: [column % width] };
  }
  const each = other.slices.length / matrix.slices.length;
  const first = Math.floor(slice * each + 1e-9);
  const slices = read.by === "row" ? [first + row] : all(Math.max(1, Math.floor(each))).map((n) => first + n);
  /** @type {(code: string, count: number) => number[]} */
  const placesOf = (code, count) =>
    code === "i" ? [row] : code === "j" ? [column] : code === "s" ? [slice % count] : all(count);
  return { matrix: other, slices, rows: placesOf(read.rows, height), columns: placesOf(read.columns, width) };
}

/** @param {number} count */
const all = (count) => [...Array(count).keys()];

/** @param {HTMLElement} cell */
function show(cell) {
  clear();
  const place = /** @type {Place} */ (places.get(cell));
  cell.classList.add("made");
  const origins = place.matrix.reads.map((read) => sources(read, place));
  for (const { matrix, slices, rows, columns } of origins) {
    const grid = /** @type {HTMLElement[][][]} */ (cells.get(matrix));
    for (const slice of slices) {
      for (const row of rows) for (const column of columns) grid[slice]?.[row]?.[column]?.classList.add("source");
    }
    grid[0]?.find(Boolean)?.find(Boolean)?.closest("figure")?.classList.add("reads");
  }
  part("made").replaceChildren(...describeNumber(place, origins));
}

/** @param {Place} place @param {ReturnType<typeof sources>[]} origins */
function describeNumber({ matrix, slice, row, column }, origins) {
  const own = matrix.slices[slice];
  const [rows, columns] = matrix.places;
  const value = own.values[rows.indexOf(row)][columns.indexOf(column)];
  const at = [matrix.rows[row] ?? `row ${row}`, matrix.columns[column] ?? `column ${column}`];
  const name = `${matrix.name}${own.name ? ` · ${own.name}` : ""} [${at.join(", ")}] = ${value}`;
  const parts = [make("b", {}, [make("bdi", {}, [name])])];
  if (matrix.formula) parts.push(make("span", { class: "sum" }, [`  = ${matrix.formula}`]));
  const terms = matrix.product ? origins.slice(0, 2).map(numbers) : [];
  if (terms.length === 2 && terms[0].length === terms[1].length && terms[0].length <= MOST_TERMS) {
    const products = terms[0].map((one, n) => `${one} · ${terms[1][n] < 0 ? `(${terms[1][n]})` : terms[1][n]}`);
    parts.push(make("span", {}, [`  = ${products.join(" + ")}`]));
  } else if (origins.length) {
    parts.push(make("span", {}, [`  made of ${origins.map(spellSource).join(", ")}`]));
  }
  return parts;
}

/** @param {ReturnType<typeof sources>} source */
function numbers({ matrix, slices, rows, columns }) {
  const [down, across] = matrix.places;
  const own = matrix.slices[slices[0]].values;
  return rows.flatMap((row) => columns.map((column) => own[down.indexOf(row)]?.[across.indexOf(column)] ?? NaN))
    .filter((value, _, list) => !list.some(Number.isNaN) || Number.isNaN(value));
}

/** @param {ReturnType<typeof sources>} source */
function spellSource({ matrix, slices, rows, columns }) {
  const [height, width] = matrix.full;
  const row = rows.length === 1 && height > 1 ? ` row ${matrix.rows[rows[0]] ?? rows[0]}` : "";
  const column = columns.length === 1 && width > 1 ? ` column ${matrix.columns[columns[0]] ?? columns[0]}` : "";
  const which = slices.length === 1 && matrix.slices.length > 1 ? ` · ${matrix.slices[slices[0]].name}` : "";
  return `${matrix.name}${which}${row}${column}`;
}

function clear() {
  for (const cell of document.querySelectorAll(".made, .source, .reads")) {
    cell.classList.remove("made", "source", "reads");
  }
  part("made").replaceChildren();
}

/** @param {Event} event */
const cellOf = (event) => {
  const cell = event.target instanceof Element ? event.target.closest("td") : null;
  return cell && places.has(cell) ? cell : null;
};

document.addEventListener("pointerover", (event) => {
  const cell = cellOf(event);
  // The line covers cells: if it went as soon as the pointer was on it, both would flicker.
  if (pin || part("made").contains(/** @type {Node} */ (event.target))) return;
  if (cell) show(cell);
  else clear();
});
document.addEventListener("click", (event) => {
  const cell = cellOf(event);
  pin = cell && cell !== pin ? cell : null;
  if (cell) show(cell);
});
document.addEventListener("focusin", (event) => {
  const cell = cellOf(event);
  if (cell && !pin) show(cell);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    pin = null;
    clear();
  }
  const cell = cellOf(event);
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") pin = pin === cell ? null : cell;
  const next = nextCell(cell, event.key);
  if (!next && event.key !== "Enter") return;
  event.preventDefault();
  if (next) {
    pin = null;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
});

/** @param {HTMLElement} cell @param {string} key */
function nextCell(cell, key) {
  const { matrix, slice, row, column } = /** @type {Place} */ (places.get(cell));
  const [rows, columns] = matrix.places.map((list) => list.filter((place) => place >= 0));
  const [down, across] = ARROWS[key] ?? [0, 0];
  let [y, x] = [rows.indexOf(row) + down, columns.indexOf(column) + across];
  if (key === "Home") x = 0;
  if (key === "End") x = columns.length - 1;
  if (!ARROWS[key] && key !== "Home" && key !== "End") return null;
  return cells.get(matrix)?.[slice]?.[rows[y]]?.[columns[x]] ?? null;
}

document.body.dataset.complete = "";
