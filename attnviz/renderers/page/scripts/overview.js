/** Every head as a thumbnail, layers down and heads across, or in the order of a measure. */

import { spellName, scaleOf } from "./caption.js";
import { NEGATIVE, theme } from "./colors.js";
import { NO_VALUE } from "./decode.js";
import { everyHead, headCodes, layerCodes, weightTable } from "./model.js";
import { showOverviewTools } from "./controls.js";
import { rowOf, sumOf } from "./rows.js";
import { chosenHeads, spellHeads } from "./state.js";
import { countNoun, spell } from "./numbers.js";
import { beginning, fitText } from "./labels.js";
import { linkElements, numberElement } from "./readout.js";
import { clearLinks, whatItSays } from "./says.js";
import { buildMatrix } from "./shown.js";
import { ARROWS, font, make, sizeCanvas } from "./surface.js";
import { findCell, look } from "./look.js";
import { codePixels, drawThumbnail } from "./thumbnail.js";

/** @import { Pointing, Spot } from "./look.js" */
/** @import { Switches } from "./off.js" */

const LINKS = 6;

/** @param {HTMLElement} element @param {Store} store @param {Switches | null} off what is switched off, of a page that answers */
export function createOverview(element, store, off) {
  const tools = make("div", { class: "tools" });
  const count = make("p", { class: "hint", "aria-live": "polite" });
  const grid = make("div", { class: "heads", role: "group", "aria-label": "Heads" });
  const links = make("div", { class: "links" });
  const effects = make("div", { class: "links" });
  const legend = make("p", { class: "hint legend" });
  const marks = make("canvas", { class: "marks", "aria-hidden": "true" });
  /** Left, top and size of each thumbnail; null: to be measured. @type {[number, number, number][] | null} */
  let squares = null;
  let hasMarks = false;
  /** What is pointed at. @type {Pointing | null} */
  let now = null;
  new ResizeObserver(() => {
    squares = null;
    if (now) light(now);
  }).observe(grid);
  element.append(tools, count, make("div", { class: "heads-room" }, [grid, marks]), ...(off ? [legend] : []), links, effects);
  /** @type {PageMap} */
  let map;
  /** @type {Map<string, HTMLButtonElement>} */
  let buttons = new Map();
  /** @type {Node[]} */
  let lastCells = [];
  grid.addEventListener("keydown", (event) => walk(event, grid));
  look.onChange(light);

  /** A band over the row and one over the column that are pointed at, in every thumbnail. @param {Pointing} pointing */
  function light(pointing) {
    now = pointing;
    const places = map ? findCell(pointing, map) : [-1, -1];
    if (!hasMarks && places.every((place) => place < 0)) return;
    squares ??= [...buttons.values()].filter((button) => button.isConnected).map((button) => squareOf(/** @type {HTMLElement} */ (button.firstChild), grid));
    const surface = sizeCanvas(marks, grid.clientWidth, grid.clientHeight);
    const [row, column] = places.map((place, end) => Math.floor(place / (end ? map.keys : map.queries).block));
    const [rows, columns] = [map.queries.tokens.length, map.keys.tokens.length];
    surface.strokeStyle = NEGATIVE;
    surface.lineWidth = 1.2;
    hasMarks = row >= 0 || column >= 0;
    for (const [left, top, size] of squares) {
      if (row >= 0) frame(surface, left, top + (size * row) / rows, size, size / rows);
      if (column >= 0) frame(surface, left + (size * column) / columns, top, size / columns, size);
    }
  }

  /**
   * What is pinned as a measure of heads: its link, what its key receives on average, or the most
   * that its query gives to one key.
   * @param {Scene} scene
   */
  async function pin({ map: target, matrix, state }) {
    const [query, key] = [matrix.queries[state.row], matrix.keys[state.column]];
    /** @type {Spot[]} */
    const spots = [...(query ? [[target.queries.side, query.at]] : []), ...(key ? [[target.keys.side, key.at]] : [])].map(([side, at]) => [String(side), Number(at)]);
    look.pin(spots, [query?.at ?? -1, key?.at ?? -1]);
    const before = target.measures.find(({ name }) => name === "pinned");
    const one = [query, key].every((token) => !token || token.count === 1);
    const label = one && (query || key) ? (query && key ? `${query.text} → ${key.text}` : query ? `from ${query.text}` : `to ${key.text}`) : "";
    if ((before?.label ?? "") === label) return;
    const measures = target.measures.filter((measure) => measure !== before);
    const [table, rows, columns] = [weightTable(target), target.queries.tokens.length, target.keys.tokens.length];
    const [row, column] = [query?.at ?? -1, key?.at ?? -1];
    /** @param {Int16Array} codes of a head */
    const valueIn = (codes) => {
      const at = (/** @type {number} */ place) => (codes[place] === NO_VALUE ? NaN : table[codes[place] + target.levels]);
      if (query && key) return at(row * columns + column);
      const cells = Array.from({ length: query ? columns : rows }, (_, place) => at(query ? row * columns + place : place * columns + column)).filter((value) => value === value);
      return query ? Math.max(...cells) : sumOf(cells) / cells.length;
    };
    const layers = label ? await Promise.all(target.layers.map((_, layer) => layerCodes(target, layer))) : [];
    const values = layers.map((codes) => target.heads.map((_, head) => {
      const value = valueIn(rowOf(codes, head, rows * columns));
      return Number.isFinite(value) ? value : null;
    }));
    target.measures = label ? [...measures, { name: "pinned", label, unit: target.unit, low: "little", high: "much", values }] : measures;
    if (map === target) {
      showOverviewTools(tools, map, store);
      arrange();
    }
  }

  /** @param {PageMap} next */
  function build(next) {
    const same = map && [map.layers, map.heads].join("|") === [next.layers, next.heads].join("|");
    map = next;
    if (!same) buildButtons();
    effects.replaceChildren(...map.effects.flatMap(({ title, links: items }) => [
      make("h2", {}, [title]),
      make("ol", {}, items.map(effectItem)),
    ]));
  }

  function buildButtons() {
    buttons = new Map();
    for (const head of everyHead(map)) {
      const name = `${head[0]}.${head[1]}`;
      const button = make("button", {
        type: "button", class: "head", tabindex: -1, "data-head": name,
        onclick: (event) => choose(name, event), ondblclick: () => store.set({ heads: name, view: "heatmap" }),
      }, [make("canvas"), make("span", { class: "name" }), make("span", { class: "value" })]);
      const size = map.groups?.[head[0]] ?? 1;
      if (size > 1) button.dataset.group = head[1] % size === size - 1 ? "last" : "in";
      buttons.set(name, button);
      // The second switches it off and on, without looking at it.
      if (off) make("div", { class: "switchable" }, [button, make("button", { type: "button", class: "power", tabindex: -1, onclick: () => off.toggleHeads(map, [head]) })]);
    }
  }

  /** Whether a head is off, and in a bar what log p loses without it. @param {HTMLElement} holder @param {Head} head @param {string} name */
  function showPower(holder, head, name) {
    const power = /** @type {HTMLElement} */ (holder.lastChild);
    const isOff = off?.headOff(map, head) ?? false;
    holder.classList.toggle("off", isOff);
    power.hidden = !off?.fits(map);
    power.setAttribute("aria-pressed", String(isOff));
    power.setAttribute("aria-label", `switch off ${name}`);
    power.title = isOff ? `switch ${name} on (o)` : `switch ${name} off (o)`;
    const effect = map.measures.find((item) => item.name === "effect");
    const most = Math.max(...(effect?.values.flat().map((value) => Math.abs(value ?? 0)) ?? []), 0.01);
    const value = effect?.values[head[0]][head[1]] ?? 0;
    holder.style.setProperty("--effect", String(Math.abs(value) / most));
    holder.classList.toggle("hurts", value < 0);
    holder.classList.toggle("stale", effect?.unit.includes("being computed") ?? false);
  }

  /** A link with its weight and its effect; a click shows it. @param {EffectLink} link */
  function effectItem({ ends: [query, key], where, place, numbers: [weight, estimate, measurement] }) {
    const guess = measurement === null ? "" : `, estimated ${spell(estimate)}`;
    return make("li", {}, [make("button", { type: "button", disabled: !place, onclick: () => place && point(place) }, [
      make("bdi", {}, [beginning(query, 18)]), " → ", make("bdi", {}, [beginning(key, 18)]), " ", numberElement(measurement ?? estimate), make("small", {}, [`weight ${spell(weight)}${guess} · ${where}`])])]);
  }

  /** Look at one cell of one head. @param {[number, number, number, number]} place */
  function point([layer, head, row, column]) {
    store.set({ heads: `${layer}.${head}`, unit: "tokens", specials: "keep", row, column, zoom: "", direction: "from" });
  }

  /** A click looks at one head alone; with a modifier it adds it, or takes it away. @param {string} name @param {MouseEvent} event */
  function choose(name, event) {
    if (!(event.ctrlKey || event.metaKey || event.shiftKey)) {
      store.set({ heads: name, ...(store.state.view === "heads" ? { view: "heatmap" } : {}) });
      return;
    }
    const names = spellHeads(chosenHeads(map, store.state)).split(",");
    const others = names.filter((other) => other !== name);
    if (others.length === names.length) others.push(name);
    store.set({ heads: others.join(",") || name });
  }

  /** Put the buttons in order, out of sight what the filter leaves out, and mark the chosen. */
  function arrange() {
    const { measure: name, order, filter } = store.state;
    const measure = map.measures.find((item) => item.name === name);
    const inOrder = everyHead(map);
    if (measure && order !== "layout") {
      const sign = order === "high" ? -1 : 1;
      const last = order === "high" ? -Infinity : Infinity;
      /** @param {Head} head */
      const value = ([layer, head]) => measure.values[layer][head] ?? last;
      inOrder.sort((a, b) => sign * (value(a) - value(b)) || 0);
    }
    const isSorted = Boolean(measure) && order !== "layout";
    grid.classList.toggle("sorted", isSorted);
    grid.style.setProperty("--columns", String(isSorted ? 0 : map.heads.length));
    const names = new Set(spellHeads(chosenHeads(map, store.state)).split(","));
    const hasFilter = measure !== undefined && filter !== "";
    let passCount = 0;
    /** @type {Node[]} */
    const cells = isSorted ? [] : [make("span", { class: "corner" }, ["layer"]), ...headNames(map)];
    for (const head of inOrder) {
      const key = `${head[0]}.${head[1]}`;
      const button = /** @type {HTMLButtonElement} */ (buttons.get(key));
      const value = measure?.values[head[0]][head[1]] ?? undefined;
      const passes = !hasFilter || (value ?? -Infinity) >= Number(filter);
      passCount += passes ? 1 : 0;
      button.classList.toggle("left-out", !passes);
      label(button, map, head, measure, value, names.has(key));
      if (!isSorted && head[1] === 0) {
        cells.push(make("span", { class: "layer-name" }, [map.layers[head[0]]]));
      }
      const holder = off ? /** @type {HTMLElement} */ (button.parentElement) : button;
      if (off) showPower(holder, head, `layer ${map.layers[head[0]]} head ${map.heads[head[1]]}`);
      if (!isSorted || passes) cells.push(holder);
    }
    // What stands in order already is left alone: the page is laid out less, and the focus stays.
    if (cells.length !== lastCells.length || cells.some((cell, place) => cell !== lastCells[place] && (cell.nodeName !== "SPAN" || cell.textContent !== lastCells[place].textContent))) {
      const focus = /** @type {HTMLElement | null} */ (grid.contains(document.activeElement) ? document.activeElement : null);
      squares = null;
      grid.replaceChildren(...cells);
      focus?.focus();
      lastCells = cells;
    }
    const tabStop = grid.querySelector(".head[aria-pressed=true]") ?? grid.querySelector(".head");
    buttons.forEach((button) => (button.tabIndex = button === tabStop ? 0 : -1));
    const effect = map.measures.find((item) => item.name === "effect");
    legend.hidden = !off?.fits(map);
    legend.textContent = effect && !effect.unit.includes("being computed") ? "Bars: what log p of the output loses without the head; orange: gains." : "The effect of each head is being computed …";
    count.textContent = hasFilter ? `${passCount} of ${countNoun(buttons.size, "head")}` : "";
  }

  /** @param {Palette} colors */
  async function draw(colors) {
    const target = map;
    const table = codePixels(weightTable(map), colors);
    const [rows, columns] = [map.queries.tokens.length, map.keys.tokens.length];
    links.replaceChildren();
    // All are unpacked at once, so that many are drawn between two frames.
    const layers = map.layers.map((_, layer) => layerCodes(map, layer));
    for (let layer = 0; layer < map.layers.length; layer++) {
      const codes = await layers[layer];
      if (map !== target) return;
      for (let head = 0; head < map.heads.length; head++) {
        const button = /** @type {HTMLButtonElement} */ (buttons.get(`${layer}.${head}`));
        const canvas = /** @type {HTMLCanvasElement} */ (button.firstChild);
        drawThumbnail(canvas, rowOf(codes, head, rows * columns), rows, columns, table);
      }
    }
    const items = await headsThatSay();
    if (map !== target) return;
    links.replaceChildren(...(items.length ? [make("h2", { title: "What neither distance nor popular words explain (the measure “informative”, in nats); shares without special tokens" }, ["heads that say most about this text"]), make("ol", {}, items)] : []));
    grid.dataset.drawn = map.blob;
  }

  /** The heads that say most, each with its clear links, as buttons that show them. */
  async function headsThatSay() {
    const says = map.measures.find(({ name }) => name === "informative")?.values ?? [];
    const heads = everyHead(map).filter(([layer, head]) => says[layer]?.[head]).sort((one, other) => Number(says[other[0]][other[1]]) - Number(says[one[0]][one[1]]));
    const target = map;
    const items = await Promise.all(heads.slice(0, LINKS).map(async (head) => {
      const words = { ...store.state, unit: "words" };
      const [whole, shown] = await Promise.all(["keep", "renormalise"].map((specials) => buildMatrix(target, [head], { ...words, specials })));
      if (!clearLinks(target, whole)) return null;
      const entries = linkElements({ matrix: shown, links: whatItSays(target, whole, shown).links.slice(0, 2) });
      const look = () => store.set({ heads: spellHeads([head]), unit: "words", specials: "renormalise", row: -1, column: -1, zoom: "", ...(store.state.view === "heads" ? { view: "heatmap" } : {}) });
      return entries.length ? make("li", {}, [make("button", { type: "button", onclick: look }, [make("small", {}, [`${target.layers[head[0]]}.${target.heads[head[1]]}`]), ...entries])]) : null;
    }));
    return items.filter((item) => item !== null);
  }

  /** Every head that the filter leaves, drawn so wide. @param {Scene} scene @param {number} width @returns {Promise<Drawing>} */
  async function figure({ palette: { steps, table }, map: target }, width) {
    const colors = { steps, table, limits: target.limits };
    const measure = target.measures.find((item) => item.name === store.state.measure);
    const isSorted = grid.classList.contains("sorted");
    const heads = [...grid.querySelectorAll(".head")].map((button) => /** @type {HTMLElement} */ (button)).filter((button) => !button.matches(".left-out"));
    const [label, under] = [isSorted ? 0 : 30, isSorted || measure ? 16 : 0];
    const across = isSorted ? Math.max(Math.floor(width / 76), 1) : target.heads.length;
    const side = Math.min((width - label) / across, 110);
    const pixels = codePixels(weightTable(target), colors);
    const items = await Promise.all(heads.map(async (button, number) => {
      const head = /** @type {Head} */ (button.dataset.head?.split(".").map(Number));
      const canvas = document.createElement("canvas");
      drawThumbnail(canvas, await headCodes(target, head), target.queries.tokens.length, target.keys.tokens.length, pixels);
      const [row, column] = isSorted ? [Math.floor(number / across), number % across] : head;
      const value = measure?.values[head[0]][head[1]] ?? null;
      return { canvas, x: label + column * side, y: (isSorted ? 0 : 16) + row * (side + under), words: `${isSorted ? `${target.layers[head[0]]}·${target.heads[head[1]]} ` : ""}${value === null ? "" : spell(value)}`, off: off?.headOff(target, head) };
    }));
    const scale = scaleOf({ palette: colors, map: target, matrix: { queries: [], keys: [], values: new Float32Array() } });
    return { height: Math.max(...items.map(({ y }) => y), 0) + side + under, scale, paint(surface) {
      [surface.font, surface.fillStyle, surface.textAlign, surface.textBaseline] = [font(Math.min(11, side / 3)), theme().ink, "center", "middle"];
      if (!isSorted) {
        const every = Math.ceil(16 / side);
        target.heads.forEach((name, place) => place % every || surface.fillText(fitText(surface, name, side * every), label + (place + 0.5) * side, 8));
        target.layers.forEach((name, place) => surface.fillText(fitText(surface, name, label), label / 2, 16 + place * (side + under) + side / 2));
      }
      surface.imageSmoothingEnabled = false;
      for (const { canvas, x, y, words, off: isOff } of items) {
        surface.globalAlpha = isOff ? 0.25 : 1;
        surface.drawImage(canvas, x + 1, y + 1, side - 3, side - 3);
        surface.globalAlpha = 1;
        [surface.strokeStyle, surface.lineWidth] = [theme().line, 1];
        surface.strokeRect(x + 0.5, y + 0.5, side - 2, side - 2);
        if (words) surface.fillText(fitText(surface, words, side), x + side / 2, y + side + 7);
      }
    } };
  }

  return { tools, build, arrange, pin, draw, figure };
}

/** Lines around a row or a column, which leave what it holds in sight; where it is thin, one line. @param {Surface} surface @param {number[]} box x, y, width and height */
const frame = (surface, ...[x, y, wide, high]) => surface.strokeRect(x + 0.6, y + 0.6, Math.max(wide - 1.2, 0.1), Math.max(high - 1.2, 0.1));

/** @param {HTMLElement} canvas @param {HTMLElement} grid @returns {[number, number, number]} */
function squareOf(canvas, grid) {
  const [own, whole] = [canvas, grid].map((one) => one.getBoundingClientRect());
  return [own.left - whole.left, own.top - whole.top, own.width];
}

/** @param {PageMap} map */
function headNames(map) {
  // Where there are many, not every name has room above its column.
  const step = map.heads.length > 14 ? 4 : 1;
  return map.heads.map((name, place) =>
    make("span", { class: "head-name" }, place % step ? [] : [name]));
}

/**
 * @param {HTMLButtonElement} button @param {PageMap} map @param {Head} head
 * @param {Measure | undefined} measure @param {number | undefined} value @param {boolean} isChosen
 */
function label(button, map, head, measure, value, isChosen) {
  const name = `layer ${map.layers[head[0]]}, ${spellName("head", map.heads[head[1]])}`;
  const number = measure && value !== undefined ? `${measure.label ?? measure.name} ${spell(value)}` : "";
  button.setAttribute("aria-label", number ? `${name}, ${number}` : name);
  button.setAttribute("aria-pressed", String(isChosen));
  button.title = number ? `${name} · ${number}` : name;
  const [, short, digits] = button.children;
  short.textContent = `${map.layers[head[0]]}·${map.heads[head[1]]}`;
  digits.textContent = value === undefined ? "" : spell(value);
}

/** Arrow keys go from head to head. @param {KeyboardEvent} event @param {HTMLElement} grid */
function walk(event, grid) {
  const heads = /** @type {HTMLElement[]} */ ([...grid.querySelectorAll(".head")]);
  const place = heads.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  if (place < 0) return;
  const top = heads[0].getBoundingClientRect().top;
  const across = Math.max(heads.filter((head) => head.getBoundingClientRect().top === top).length, 1);
  const [down, right] = ARROWS[event.key] ?? [0, 0];
  const next = (down || right) && heads[place + down * across + right];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  heads[place].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
