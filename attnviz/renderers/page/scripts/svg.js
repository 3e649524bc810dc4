/** A surface that writes SVG: as much of a canvas as the views draw with. */

/** @param {string} text */
const escaped = (text) =>
  text.replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`).replace(/[\0-\x08\x0b-\x1f]/g, "");

/** @param {number} number */
const short = (number) => String(Math.round(number * 100) / 100);

export class SvgSurface {
  /** @param {number} width @param {number} height @param {number} [millimetres] its width on paper */
  constructor(width, height, millimetres = 0) {
    this.millimetres = millimetres;
    this.width = width;
    this.height = height;
    this.fillStyle = "#000";
    this.strokeStyle = "#000";
    this.lineWidth = 1;
    this.globalAlpha = 1;
    this.font = "12px sans-serif";
    this.textAlign = "start";
    this.textBaseline = "alphabetic";
    this.lineCap = "butt";
    this.imageSmoothingEnabled = false;
    this.direction = "ltr";
    /** @type {string[]} */
    this.parts = [];
    this.path = "";
    this.box = "";
    this.clips = 0;
    /** @type {{state: Record<string, any>, groups: number}[]} */
    this.saved = [];
    this.groups = 0;
    this.ruler = /** @type {CanvasRenderingContext2D} */ (
      document.createElement("canvas").getContext("2d")
    );
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline } = this;
    const state = { fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline };
    this.saved.push({ state, groups: this.groups });
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

  fill() {
    this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}"${this.opacity()}/>`);
  }

  clip() {
    const name = `clip${this.clips++}`;
    this.parts.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath>`);
    this.open(`clip-path="url(#${name})"`);
  }

  stroke() {
    this.parts.push(
      `<path d="${this.path}" fill="none" stroke="${this.strokeStyle}"${this.opacity()} ` +
        `stroke-width="${short(this.lineWidth)}"/>`,
    );
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.parts.push(
      `<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" ` +
        `fill="${this.fillStyle}"${this.opacity()}/>`,
    );
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.beginPath();
    this.rect(x, y, width, height);
    this.stroke();
  }

  clearRect() {}

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] ?? "start";
    const line = this.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
    const [, weight, size, family] = /^(.*?)\s*([\d.]+)px\s+(.*)$/.exec(this.font) ?? [];
    this.parts.push(
      `<text x="${short(x)}" y="${short(y)}" font-family="${escaped(family ?? "sans-serif")}" ` +
        `font-size="${size ?? 12}"${weight ? ` font-weight="${weight}"` : ""} ` +
        `text-anchor="${anchor}"${line} fill="${this.fillStyle}"${this.opacity()} ` +
        `xml:space="preserve">${escaped(text)}</text>`,
    );
  }

  /** @param {string} text */
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  /** @param {HTMLCanvasElement | HTMLImageElement} image @param {number[]} place x, y, width and height */
  drawImage(image, ...place) {
    const [x, y, width, height] = place.map(short);
    this.parts.push(
      `<image x="${x}" y="${y}" width="${width}" height="${height}" ` +
        `preserveAspectRatio="none" image-rendering="pixelated" ` +
        `href="${image instanceof HTMLImageElement ? image.src : image.toDataURL("image/png")}"/>`,
    );
  }

  opacity() {
    return this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
  }

  toString() {
    const { width, height, millimetres } = this;
    const size = millimetres ? `width="${millimetres}mm" height="${short((millimetres * height) / width)}mm"` : `width="${width}" height="${height}"`;
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} ` +
      `viewBox="0 0 ${width} ${height}">${this.parts.join("\n")}</svg>\n`
    );
  }
}
