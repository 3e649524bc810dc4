/** A surface that writes SVG: as much of a canvas as the views draw with. */

/** @param {string} text */
const escapeText = (text) => text.replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`).replace(/[\0-\x08\x0b-\x1f]/g, "");

/** @param {number} number */
const short = (number) => String(Math.round(number * 100) / 100);

/** What is saved and restored. */
const SETTINGS = /** @type {const} */ (["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "textBaseline"]);

export class SvgSurface {
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  globalAlpha = 1;
  font = "12px sans-serif";
  textAlign = "start";
  textBaseline = "alphabetic";
  imageSmoothingEnabled = false;
  path = "";
  clips = 0;
  groups = 0;
  /** @type {string[]} */
  parts = [];
  /** @type {{state: Record<string, any>, groups: number}[]} */
  saved = [];
  ruler = /** @type {Surface} */ (document.createElement("canvas").getContext("2d"));

  save() {
    this.saved.push({ state: Object.fromEntries(SETTINGS.map((name) => [name, this[name]])), groups: this.groups });
    this.groups = 0;
  }

  restore() {
    this.parts.push("</g>".repeat(this.groups));
    const last = this.saved.pop();
    if (!last) return;
    Object.assign(this, last.state);
    this.groups = last.groups;
  }

  /** @param {string} attributes */
  open(attributes) {
    this.parts.push(`<g ${attributes}>`);
    this.groups += 1;
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    this.open(`transform="translate(${short(x)} ${short(y)})"`);
  }

  /** @param {number} angle */
  rotate(angle) {
    this.open(`transform="rotate(${short((angle * 180) / Math.PI)})"`);
  }

  beginPath() {
    this.path = "";
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  /** @param {number[]} points */
  bezierCurveTo(...points) {
    this.path += `C${points.map(short).join(" ")}`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`;
  }

  /** A whole circle. @param {number} x @param {number} y @param {number} radius */
  arc(x, y, radius) {
    const around = `${short(radius)} ${short(radius)} 0 1 0`;
    this.path += `M${short(x - radius)} ${short(y)}a${around} ${short(2 * radius)} 0a${around} ${short(-2 * radius)} 0z`;
  }

  /** Add an element with the current opacity. @param {string} name @param {Record<string, string | number>} attributes @param {string} [contents] */
  put(name, attributes, contents) {
    const all = Object.entries(this.globalAlpha < 1 ? { ...attributes, opacity: this.globalAlpha } : attributes);
    const text = all.map(([key, value]) => `${key}="${typeof value === "number" ? short(value) : value}"`).join(" ");
    this.parts.push(contents === undefined ? `<${name} ${text}/>` : `<${name} ${text}>${contents}</${name}>`);
  }

  fill() {
    this.put("path", { d: this.path, fill: this.fillStyle });
  }

  clip() {
    const name = `clip${this.clips++}`;
    this.parts.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath>`);
    this.open(`clip-path="url(#${name})"`);
  }

  stroke() {
    this.put("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.put("rect", { x, y, width, height, fill: this.fillStyle });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.beginPath();
    this.rect(x, y, width, height);
    this.stroke();
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] ?? "start";
    const [, weight, size = 12, family = "sans-serif"] = /^(.*?)\s*([\d.]+)px\s+(.*)$/.exec(this.font) ?? [];
    this.put("text", {
      x, y, "font-family": escapeText(family), "font-size": size, ...(weight && { "font-weight": weight }), "text-anchor": anchor,
      ...(this.textBaseline === "middle" && { "dominant-baseline": "central" }), fill: this.fillStyle, "xml:space": "preserve",
    }, escapeText(text));
  }

  /** @param {string} text */
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  /** @param {HTMLCanvasElement | HTMLImageElement} image @param {number[]} place x, y, width and height */
  drawImage(image, ...place) {
    const [x, y, width, height] = place;
    const href = image instanceof HTMLImageElement ? image.src : image.toDataURL("image/png");
    this.put("image", { x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated", href });
  }

  /** The whole file. @param {number} width @param {number} height @param {number} millimetres its width on paper; 0: as in pixels */
  asFile(width, height, millimetres) {
    const size = millimetres ? `width="${millimetres}mm" height="${short((millimetres * height) / width)}mm"` : `width="${width}" height="${height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${width} ${height}">${this.parts.join("\n")}</svg>\n`;
  }
}
