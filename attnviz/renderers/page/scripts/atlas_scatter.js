/** All heads of a stream as points by two measures: pointed at, chosen, gathered in a rectangle. */

import { theme } from "./colors.js";
import { clamp, spell } from "./numbers.js";
import { ARROWS, draw, onceAFrame, paintAt, write } from "./surface.js";

/** @import { AtlasHead } from "./atlas.js" */
/**
 * @typedef {{heads: AtlasHead[], x: number, y: number, names: [string, string], visible: Set<number>,
 *   choice: number, color: (head: AtlasHead) => string, name: (head: AtlasHead) => string}} Scene
 */

const NEAR = 22;
const EDGE = { left: 52, right: 16, top: 14, bottom: 42 };

/**
 * @param {HTMLElement} element
 * @param {{choose: (head: number) => void, point: (head: number) => void, gather: (heads: Set<number> | null) => void}} on
 */
export function createScatter(element, on) {
  const svg = draw("svg", { role: "listbox", tabindex: 0, "aria-label": "Heads by two measures; arrow keys go from head to head" });
  const under = draw("g", { "aria-hidden": "true" });
  const points = draw("g", { role: "presentation" });
  const over = draw("g", { "aria-hidden": "true" });
  svg.append(under, points, over);
  element.append(svg);
  /** @type {Scene} */
  let scene;
  /** Where everything lies: of each head that has both numbers, too. @type {ReturnType<typeof layOut>} */
  let layout;
  let hover = -1;
  /** @type {{from: [number, number], to: [number, number]} | null} */
  let drag = null;

  /** @param {number} width */
  function layOut(width) {
    const height = clamp(width * 0.62, 260, 560);
    const measures = [scene.x, scene.y];
    const ends = measures.map((measure) => domain(scene.heads.map((head) => head.values[measure][0])));
    const room = [[EDGE.left, width - EDGE.right], [height - EDGE.bottom, EDGE.top]];
    /** @param {0 | 1} axis @param {number} value */
    const at = (axis, value) => {
      const [low, high] = ends[axis];
      return room[axis][0] + ((value - low) / (high - low)) * (room[axis][1] - room[axis][0]);
    };
    /** @type {Map<number, [number, number]>} */
    const places = new Map();
    scene.heads.forEach((head, number) => {
      const [x, y] = measures.map((measure) => head.values[measure][0]);
      if (x !== null && y !== null) places.set(number, [at(0, x), at(1, y)]);
    });
    const marks = [Math.max(2, Math.floor(width / 110)), Math.max(2, Math.floor(height / 70))].map((count, axis) => ticks(ends[axis], count));
    return { width, height, at, places, marks };
  }

  function arrange() {
    layout = layOut(element.clientWidth);
    const { width, height, places } = layout;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, String(value));
    under.replaceChildren(...axes());
    const radius = scene.heads.length > 400 ? 3.5 : 5.5;
    points.replaceChildren(...[...places].map(([number, [x, y]]) => {
      const head = scene.heads[number];
      return draw("circle", {
        id: `p${number}`, role: "option", cx: x.toFixed(1), cy: y.toFixed(1), r: radius, fill: scene.color(head),
        "aria-label": `${scene.name(head)}: ${spellValues(head)}`,
      });
    }));
  }

  /** @param {AtlasHead} head */
  const spellValues = (head) => [scene.x, scene.y].map((measure, axis) => `${scene.names[axis]} ${spell(head.values[measure][0] ?? NaN)}`).join(", ");

  function axes() {
    const { width, height, at, marks: [across, up] } = layout;
    const [bottom, right] = [height - EDGE.bottom, width - EDGE.right];
    return [
      ...across.flatMap((value) => [
        draw("path", { class: "rule", d: `M${at(0, value)} ${EDGE.top}V${bottom}` }),
        draw("text", { x: at(0, value), y: bottom + 16, "text-anchor": "middle" }, [label(value)])]),
      ...up.flatMap((value) => [
        draw("path", { class: "rule", d: `M${EDGE.left} ${at(1, value)}H${right}` }),
        draw("text", { x: EDGE.left - 7, y: at(1, value) + 4, "text-anchor": "end" }, [label(value)])]),
      draw("path", { class: "axis", d: `M${EDGE.left} ${EDGE.top}V${bottom}H${right}` }),
      draw("text", { class: "title", x: (EDGE.left + right) / 2, y: height - 6, "text-anchor": "middle" }, [scene.names[0]]),
      draw("text", { class: "title", transform: `translate(13 ${(EDGE.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, [scene.names[1]]),
    ];
  }

  /** The heads drawn so wide, for a file. @param {number} wide @param {{color: string, words: string}[]} legend @returns {Drawing} */
  function figure(wide, legend) {
    const { width, height, at, places, marks } = layOut(wide);
    return { height, legend, paint(surface) {
      const { ink, faint, line, paper } = theme();
      const [bottom, right] = [height - EDGE.bottom, width - EDGE.right];
      surface.fillStyle = line;
      marks[0].forEach((value) => surface.fillRect(at(0, value), EDGE.top, 1, bottom - EDGE.top));
      marks[1].forEach((value) => surface.fillRect(EDGE.left, at(1, value), right - EDGE.left, 1));
      marks[0].forEach((value) => write(surface, label(value), at(0, value), bottom + 12, { size: 11, color: faint, align: "center" }));
      marks[1].forEach((value) => write(surface, label(value), EDGE.left - 7, at(1, value), { size: 11, color: faint, align: "right" }));
      write(surface, scene.names[0], (EDGE.left + right) / 2, height - 8, { color: ink, align: "center" });
      const up = () => write(surface, scene.names[1], 0, 0, { color: ink, align: "center" });
      paintAt(surface, 9, (EDGE.top + bottom) / 2, up, true);
      for (const [number, [x, y]] of places) {
        surface.globalAlpha = scene.visible.has(number) ? 1 : 0.13;
        surface.fillStyle = scene.color(scene.heads[number]).replace(/^var.*/, faint);
        surface.beginPath();
        surface.arc(x, y, scene.heads.length > 400 ? 3 : 5, 0, 2 * Math.PI);
        surface.fill();
        [surface.strokeStyle, surface.lineWidth] = [paper, 1];
        surface.stroke();
      }
      surface.globalAlpha = 1;
      const choice = places.get(scene.choice);
      if (!choice) return;
      const [x, y] = choice;
      [surface.strokeStyle, surface.lineWidth] = [ink, 2];
      surface.beginPath();
      surface.arc(x, y, 9, 0, 2 * Math.PI);
      surface.stroke();
      const left = x > width * 0.7;
      write(surface, scene.name(scene.heads[scene.choice]), x + (left ? -13 : 13), y - 12, { color: ink, align: left ? "right" : "left" });
    } };
  }

  function mark() {
    points.childNodes.forEach((node) => {
      const point = /** @type {SVGElement} */ (node);
      const number = Number(point.id.slice(1));
      point.classList.toggle("left-out", !scene.visible.has(number));
      point.setAttribute("aria-selected", String(number === scene.choice));
    });
    svg.setAttribute("aria-activedescendant", layout.places.has(scene.choice) ? `p${scene.choice}` : "");
    note();
  }

  /** The chosen head and the one pointed at, with their intervals; and the rectangle that is drawn. */
  function note() {
    const { width, height, at, places } = layout;
    const marks = [scene.choice, hover].filter((number, place, list) => places.has(number) && list.indexOf(number) === place);
    over.replaceChildren(...marks.flatMap((number) => {
      const head = scene.heads[number];
      const [x, y] = /** @type {[number, number]} */ (places.get(number));
      const whiskers = [scene.x, scene.y].map((measure, axis) => {
        const [, low, high] = head.values[measure];
        if (low === null || high === null) return "";
        const ends = axis ? [EDGE.top, height - EDGE.bottom] : [EDGE.left, width - EDGE.right];
        const [from, to] = [low, high].map((value) => clamp(at(axis ? 1 : 0, value), ends[0], ends[1]).toFixed(1));
        return axis === 0 ? `M${from} ${y}H${to}` : `M${x} ${from}V${to}`;
      });
      const left = x > width * 0.7;
      return [
        draw("path", { class: "whisker", d: whiskers.join("") }),
        draw("circle", { class: number === scene.choice ? "ring chosen" : "ring", cx: x, cy: y, r: 9 }),
        draw("text", { class: "name", x: x + (left ? -13 : 13), y: y - 8, "text-anchor": left ? "end" : "start" }, [scene.name(head)]),
      ];
    }));
    if (drag) {
      const [[x1, y1], [x2, y2]] = [drag.from, drag.to];
      over.append(draw("rect", { class: "brush", x: Math.min(x1, x2), y: Math.min(y1, y2), width: Math.abs(x1 - x2), height: Math.abs(y1 - y2) }));
    }
  }
  const noteSoon = onceAFrame(note);

  /** @param {[number, number]} place */
  function nearest([x, y]) {
    let [best, least] = [-1, NEAR * NEAR];
    for (const [number, [px, py]] of layout.places) {
      const apart = (px - x) ** 2 + (py - y) ** 2;
      if (apart < least && scene.visible.has(number)) [best, least] = [number, apart];
    }
    return best;
  }

  /** @param {number} number */
  function point(number) {
    if (number === hover) return;
    hover = number;
    on.point(number);
    noteSoon();
  }

  /** @param {PointerEvent} event @returns {[number, number]} */
  const placeOf = (event) => {
    const box = svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button === 0) drag = { from: placeOf(event), to: placeOf(event) };
  });
  svg.addEventListener("pointermove", (event) => {
    if (!drag) return point(nearest(placeOf(event)));
    drag.to = placeOf(event);
    if (hasMoved() && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
    noteSoon();
  });
  const hasMoved = () => drag !== null && Math.hypot(drag.to[0] - drag.from[0], drag.to[1] - drag.from[1]) > 5;
  svg.addEventListener("pointerup", () => {
    if (!drag) return;
    const { from, to } = drag;
    const wide = hasMoved();
    drag = null;
    if (!wide) {
      const number = nearest(to);
      if (number < 0) on.gather(null);
      else on.choose(number);
    } else {
      const inside = [...layout.places].filter(([, place]) => place.every((one, axis) => (one - from[axis]) * (one - to[axis]) <= 0));
      on.gather(new Set(inside.map(([number]) => number)));
    }
    noteSoon();
  });
  svg.addEventListener("pointercancel", () => {
    drag = null;
    noteSoon();
  });
  svg.addEventListener("pointerleave", () => point(-1));
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") on.gather(null);
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = beside(step);
    if (next >= 0) on.choose(next);
  });

  /** The head that lies next in a direction, rather straight on than far off. @param {[number, number]} step */
  function beside([down, right]) {
    const [x, y] = layout.places.get(scene.choice) ?? [0, 0];
    let [best, least] = [-1, Infinity];
    for (const [number, [px, py]] of layout.places) {
      const ahead = (px - x) * right + (py - y) * down;
      const detour = Math.abs((px - x) * down) + Math.abs((py - y) * right);
      const cost = ahead + 2 * detour;
      if (ahead > 0.01 && cost < least && scene.visible.has(number)) [best, least] = [number, cost];
    }
    return best;
  }

  new ResizeObserver(onceAFrame(() => {
    if (scene && element.clientWidth !== layout.width) {
      arrange();
      mark();
    }
  })).observe(element);

  return {
    figure,
    /** @param {Scene} next */
    show(next) {
      const same = scene && scene.heads === next.heads && scene.x === next.x && scene.y === next.y;
      scene = next;
      if (!same) {
        hover = -1;
        arrange();
      }
      mark();
    },
  };
}

/** The least and the largest number with some room, and never one alone. @param {(number | null)[]} values */
function domain(values) {
  const numbers = /** @type {number[]} */ (values.filter((value) => value !== null));
  const [low, high] = numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 0.1;
  return [low - room, high + room];
}

/** Round numbers between two ends, about so many. @param {number[]} ends @param {number} count */
function ticks([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough) ?? rough;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(Math.floor(high / step) - first + 1, 0) }, (_, place) => (first + place) * step);
}

/** @param {number} value */
const label = (value) => String(Number(value.toPrecision(6))).replace("-", "−");
