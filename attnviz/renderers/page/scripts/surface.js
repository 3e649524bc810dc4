/** Canvases at the screen's own resolution, and small pieces of the document. */

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/** @param {number} size */
export const font = (size, weight = "") => `${weight} ${size}px ${FONT}`.trim();

/**
 * Make a canvas so large, and answer its surface in CSS pixels, wiped.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {import("./types.js").Surface}
 */
export function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
  const surface = /** @type {import("./types.js").Surface} */ (canvas.getContext("2d"));
  if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
    canvas.width = pixelWidth;
    canvas.height = pixelHeight;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  surface.setTransform(ratio, 0, 0, ratio, 0, 0);
  surface.clearRect(0, 0, width, height);
  return surface;
}

/**
 * An element with attributes and contents; text is always text.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, string | number | boolean>} [attributes]
 * @param {(Node | string)[]} [contents]
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function make(name, attributes = {}, contents = []) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false) element.setAttribute(key, String(value));
  }
  element.append(...contents);
  return element;
}

/**
 * The element of that id, which the page has.
 * @param {string} id
 */
export function part(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Run once the page next draws, however often it was asked for until then.
 * @param {() => void} action
 */
export function onceAFrame(action) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      action();
    });
  };
}
