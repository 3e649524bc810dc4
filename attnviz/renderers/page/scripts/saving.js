/** The dialog that makes a picture file of what is seen: how wide, on which ground, with or without title. */

import { asSvg, layout, onCanvas } from "./figure.js";
import { make } from "./surface.js";

/** @import { Contents } from "./figure.js" */

/** Widths of a journal's column and page. */
const WIDTHS = { "85": "85 mm, one column", "178": "178 mm, two columns", px: "in pixels" };
/** CSS pixels to a millimetre, and pixels of a PNG to one of CSS: 300 to an inch, and twice. */
const [MILLIMETRE, PRINT_RATIO, SHARP] = [96 / 25.4, 300 / 96, 2];

/** @param {string} name @param {Blob} blob */
export function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/**
 * @param {(width: number, light: boolean) => Contents | Promise<Contents>} contents what is seen, drawn so wide
 * @param {() => string} name of the file
 */
export function createSaving(contents, name) {
  const width = make("select", { "data-switch": "width", onchange: show }, Object.entries(WIDTHS).map(([value, words]) => make("option", { value, selected: value === "178" }, [words])));
  const pixels = make("input", { type: "number", min: 400, max: 8000, step: 100, value: 1600, "aria-label": "width in pixels", oninput: show });
  const [withTitle, light] = [true, true].map((checked) => make("input", { type: "checkbox", checked, onchange: show }));
  const preview = make("canvas", { role: "img", "aria-label": "Preview of the picture" });
  const size = make("p", { class: "hint", role: "status" });
  /** @type {import("./figure.js").Figure} */
  let figure;
  const scale = () => (width.value === "px" ? SHARP : PRINT_RATIO);
  const png = () => new Promise((/** @type {(blob: Blob) => void} */ done) => onCanvas(figure, scale()).toBlob((blob) => done(/** @type {Blob} */ (blob)), "image/png"));
  const copy = make("button", { type: "button", id: "save-copy", async onclick() {
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": png() })]);
      size.textContent = "Copied.";
    } catch {
      size.textContent = "This browser does not let the page copy: save the PNG.";
    }
  } }, ["Copy"]);
  const dialog = make("dialog", { id: "saving", "aria-label": "Save this view as a picture" }, [
    make("h2", {}, ["Save this view as a picture"]),
    make("div", { class: "tools" }, [
      make("label", {}, [make("span", {}, ["width"]), width]), pixels,
      make("label", {}, [withTitle, "title"]), make("label", {}, [light, "light"]),
    ]),
    make("div", { class: "sheet", tabindex: 0, role: "group", "aria-label": "Preview" }, [preview]), size,
    make("p", { class: "saves" }, [
      make("button", { type: "button", id: "save-png", onclick: async () => download(`${name()}.png`, await png()) }, ["PNG"]),
      make("button", { type: "button", id: "save-svg", onclick: () => download(`${name()}.svg`, asSvg(figure, Number(width.value) || 0)) }, ["SVG"]),
      ...("ClipboardItem" in globalThis ? [copy] : []),
      make("button", { type: "button", onclick: () => dialog.close() }, ["Close"]),
    ]),
  ]);
  document.body.append(dialog);

  /** @param {number} wide @param {boolean} [bare] without a title */
  async function drawPicture(wide, bare = false, bright = light.checked) {
    const figure = await contents(wide, bright);
    return layout(figure, { width: wide, withTitle: !bare && withTitle.checked, light: bright });
  }

  async function show() {
    pixels.hidden = width.value !== "px";
    const wide = width.value === "px" ? Math.min(Math.max(Number(pixels.value) || 1600, 400), 8000) / SHARP : Number(width.value) * MILLIMETRE;
    dialog.setAttribute("aria-busy", "true");
    figure = await drawPicture(Math.round(wide));
    onCanvas(figure, Math.max(devicePixelRatio || 1, 1), preview);
    preview.style.width = `${figure.width}px`;
    size.textContent = `${Math.round(figure.width * scale())} × ${Math.round(figure.height * scale())} pixels`;
    dialog.setAttribute("aria-busy", "false");
  }

  // What is printed is the same figure; what follows here waits for nothing, so it is there in time.
  const sheet = make("canvas", { id: "printed", "aria-hidden": "true" });
  document.getElementById("main")?.before(sheet);
  addEventListener("beforeprint", async () => {
    onCanvas(await drawPicture(700, true, true), PRINT_RATIO, sheet);
  });

  return {
    async open() {
      await show();
      dialog.showModal();
    },
  };
}
