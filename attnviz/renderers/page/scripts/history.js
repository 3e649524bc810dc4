/** The heads of a training run by its steps, as a heat map of a measure; a cell opens the head there. */

import { spell } from "./numbers.js";
import { ARROWS, make } from "./surface.js";

/** @param {HistoryRun[]} runs @param {Store} store */
export function createHistory(runs, store) {
  const names = Object.keys(runs[0].measures);
  const choice = make("select", {}, names.map((name) => make("option", { value: name }, [name])));
  const unit = make("small");
  const tables = make("div", { class: "runs" });
  const element = make("section", { id: "history", "aria-label": "Heads over the steps" }, [
    make("label", {}, [make("span", {}, ["measure over the steps"]), choice]), unit, tables,
  ]);
  const draw = () => {
    const name = choice.value;
    const values = runs.flatMap((run) => run.measures[name].values.flat()).filter((one) => one !== null);
    const [low, high] = [Math.min(0, ...values), Math.max(...values, 0) || 1];
    unit.textContent = `${runs[0].measures[name].about}; from ${spell(low)} to ${spell(high)}`;
    tables.replaceChildren(...runs.map((run) => table(run, name, low, high)));
    mark();
  };
  const mark = () => {
    const { map, heads } = store.state;
    for (const cell of tables.querySelectorAll("button[data-place]")) {
      cell.setAttribute("aria-pressed", String(cell.getAttribute("data-place") === `${map} ${heads}`));
    }
  };

  /** @param {HistoryRun} run @param {string} name @param {number} low @param {number} high */
  function table(run, name, low, high) {
    const { values } = run.measures[name];
    const head = make("tr", {}, [make("th", {}, [run.name]), ...run.steps.map((step) => make("th", { scope: "col" }, [String(step)]))]);
    const rows = run.heads.map((title, number) => {
      const own = run.verdicts.filter((one) => one.head === number);
      const cells = run.steps.map((step, place) => {
        const value = values[place][number];
        const at = run.places[place][number];
        const since = own.filter((one) => one.step === step).map((one) => one.name);
        const words = `${title}, step ${step}: ${value === null ? "no value" : spell(value)}${since.map((one) => `, ${one}`).join("")}`;
        const cell = make("button", { type: "button", title: words, "aria-label": words, disabled: !at, tabindex: place ? -1 : 0, "data-place": at ? `${at[0]} ${at[1]}.${at[2]}` : "" }, since.length ? ["▸"] : []);
        const share = value === null ? 0 : Math.round((100 * (value - low)) / (high - low));
        cell.style.background = value === null ? "none" : `color-mix(in oklab, var(--accent) ${share}%, var(--ground))`;
        cell.style.color = share > 50 ? "var(--paper)" : "var(--ink)";
        return make("td", {}, [cell]);
      });
      const verdicts = own.map((one) => make("span", { class: `verdict ${one.name === "settled" ? "" : "bad"}`, title: one.detail }, [`${one.name} since ${one.step}`]));
      return make("tr", {}, [make("th", { scope: "row" }, [title]), ...cells, make("td", {}, verdicts)]);
    });
    return make("table", {}, [make("thead", {}, [head]), make("tbody", {}, rows)]);
  }

  tables.addEventListener("click", (event) => {
    const cell = /** @type {Element} */ (event.target).closest("button[data-place]");
    const [map, heads] = (cell?.getAttribute("data-place") ?? "").split(" ");
    if (heads) store.set({ map: Number(map), heads, view: "heatmap" });
  });
  tables.addEventListener("keydown", (event) => {
    const way = ARROWS[event.key];
    const cell = /** @type {Element} */ (event.target).closest("td");
    if (!way || !cell) return;
    const row = /** @type {HTMLTableRowElement} */ (cell.parentElement);
    const next = /** @type {HTMLTableElement} */ (row.closest("table")).rows[row.rowIndex + way[0]]?.cells[cell.cellIndex + way[1]]?.querySelector("button");
    next?.focus();
    event.preventDefault();
  });
  choice.addEventListener("change", draw);
  store.onChange(mark);
  draw();
  return element;
}
