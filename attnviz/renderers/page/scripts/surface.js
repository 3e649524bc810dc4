/** Canvases at the screen's own resolution, and small pieces of the document. */

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/** @param {number} size */
export const font = (size, weight = "") => `${weight} ${size}px ${FONT}`.trim();

/** Rows down and columns across that an arrow key goes. @type {Record<string, [number, number] | undefined>} */
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Write a text on a surface. @param {Surface} surface @param {string} text @param {number} x @param {number} y @param {Lettering} how */
export function write(surface, text, x, y, { size = 12, weight = "", color, align = "left", base = "middle" }) {
  [surface.font, surface.fillStyle, surface.textAlign, surface.textBaseline] = [font(size, weight), color, align, base];
  surface.fillText(text, x, y);
}

/**
 * Paint with a place as the origin, where asked for so that lines go upwards.
 * @param {Surface} surface @param {number} x @param {number} y @param {() => void} paint
 */
export function paintAt(surface, x, y, paint, isTurned = false) {
  surface.save();
  surface.translate(x, y);
  if (isTurned) surface.rotate(-Math.PI / 2);
  paint();
  surface.restore();
}

/**
 * Make a canvas so large, and answer its surface in CSS pixels, wiped.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {Surface}
 */
export function sizeCanvas(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
  const surface = /** @type {Surface} */ (canvas.getContext("2d"));
  if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
    [canvas.width, canvas.height] = [pixelWidth, pixelHeight];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  }
  surface.setTransform(ratio, 0, 0, ratio, 0, 0);
  surface.clearRect(0, 0, width, height);
  return surface;
}

/**
 * An element with attributes, handlers (`onclick` and the like) and contents; text is always text.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, string | number | boolean | ((event: any) => void)>} [attributes]
 * @param {(Node | string)[]} [contents]
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function make(name, attributes = {}, contents = []) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") /** @type {any} */ (element)[key] = value;
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false) element.setAttribute(key, String(value));
  }
  element.append(...contents);
  return element;
}

/** A drawing's element. @param {string} name @param {Record<string, string | number>} attributes @param {(Node | string)[]} [contents] */
export function draw(name, attributes, contents = []) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...contents);
  return element;
}

const HANDLERS = /** @type {const} */ (["onclick", "ondblclick", "onchange", "oninput", "onfocus", "onblur", "onpointerenter", "onpointerleave"]);

/** Whether one node can become the other; canvases keep what is painted. @param {Node} one @param {Node} other */
function alike(one, other) {
  if (one.nodeName !== other.nodeName || one.nodeName === "CANVAS") return one === other;
  const [key, nextKey] = [one, other].map((node) => node instanceof HTMLElement && ((node.dataset.key ?? node.dataset.switch ?? node.id)));
  return key === nextKey;
}

/**
 * Make an element's contents so, changing in place what is there: the focus, a slider that is held
 * and what a screen reader is at stay. Of one kind, the first becomes the first.
 * @param {Element} element
 * @param {(Node | string)[]} contents
 */
export function patch(element, contents) {
  const inside = element.contains(document.activeElement);
  const old = [...element.childNodes];
  const nodes = contents.map((part) => {
    const next = typeof part === "string" ? document.createTextNode(part) : part;
    const place = old.includes(/** @type {ChildNode} */ (next)) ? old.indexOf(/** @type {ChildNode} */ (next)) : old.findIndex((one) => !contents.includes(one) && alike(one, next));
    if (place < 0) return next;
    const [child] = old.splice(place, 1);
    if (child !== next) become(child, next);
    return child;
  });
  old.forEach((one) => one.remove());
  nodes.forEach((node, place) => {
    if (element.childNodes[place] !== node) element.insertBefore(node, element.childNodes[place] ?? null);
  });
  // What had the focus is gone: the last of what is left has it.
  if (inside && !element.contains(document.activeElement)) {
    /** @type {HTMLElement | undefined} */ ([...element.querySelectorAll("button:enabled, select, input")].pop())?.focus();
  }
}

/** @param {Node} old @param {Node} next */
function become(old, next) {
  if (!(old instanceof HTMLElement && next instanceof HTMLElement)) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    // The page's policy lets no attribute set a style.
    if (name === "style") old.style.cssText = next.style.cssText;
    else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  HANDLERS.forEach((name) => Object.assign(old, { [name]: next[name] }));
  patch(old, [...next.childNodes]);
  if ("value" in old && "value" in next && old.value !== next.value) old.value = next.value;
}

/** The element of that id, which the page has. @param {string} id */
export const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** What stands in it. @param {string} id */
export const textOf = (id) => part(id).textContent ?? "";

/** Run once the page next draws, however often it was asked for until then. @param {() => void} action */
export function onceAFrame(action) {
  let isQueued = false;
  return () => {
    if (isQueued) return;
    isQueued = true;
    requestAnimationFrame(() => {
      isQueued = false;
      action();
    });
  };
}
