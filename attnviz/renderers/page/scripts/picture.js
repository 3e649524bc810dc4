/** A picture to ask about. */

import { make } from "./surface.js";

/**
 * What chooses a picture, which is asked about in the place of a sentence, or with one that is read
 * with it; choosing none goes back to sentences.
 * @param {() => void} begin called when the first one is chosen
 * @param {() => void} ask
 */
export function createPicture(begin, ask) {
  /** @type {string | undefined} */
  let picture;
  const file = make("input", { type: "file", accept: "image/png,image/jpeg,image/webp" });
  file.addEventListener("change", () => {
    const [chosen] = file.files ?? [];
    const reader = new FileReader();
    const take = () => {
      picture = chosen && String(reader.result).split(",")[1];
      if (picture) begin();
      ask();
    };
    reader.addEventListener("load", take);
    if (chosen) reader.readAsDataURL(chosen);
    else take();
  });
  const element = make("label", {}, ["picture ", file]);
  return { element, given: () => (picture ? { picture } : {}) };
}
