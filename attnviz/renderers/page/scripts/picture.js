/** A picture to ask about. */

import { make } from "./surface.js";

/**
 * What chooses a picture, which is asked about in the place of a sentence, or with one that is read
 * with it; choosing none goes back to sentences. A model that reads pictures alone has one to begin with.
 * @param {Record<string, string>} samples in base64, by the model
 * @param {() => string} model
 * @param {() => void} begin called when the first one is chosen
 * @param {() => void} ask
 */
export function createPicture(samples, model, begin, ask) {
  /** @type {string | undefined} */
  let picture;
  const file = make("input", { type: "file", accept: "image/png,image/jpeg,image/webp", onchange: () => {
    const [choice] = file.files ?? [];
    const reader = new FileReader();
    const take = () => {
      picture = choice && String(reader.result).split(",")[1];
      if (picture) begin();
      ask();
    };
    reader.onload = take;
    if (choice) reader.readAsDataURL(choice);
    else take();
  } });
  const readPicture = () => {
    const sample = file.files?.length ? undefined : samples[model()];
    return picture ? { picture } : sample ? { picture: sample, source: "" } : {};
  };
  return { element: make("label", { "data-key": "picture" }, ["picture ", file]), readPicture };
}
