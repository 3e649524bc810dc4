/** What a head does in other texts: its card, of the small atlas that a page with a model carries. */

import { colorOf, dotIn, headParts } from "./atlas_head.js";
import { denseBytes, inflate } from "./decode.js";
import { make, textOf } from "./surface.js";

/** @import { AtlasDocument, AtlasHead } from "./atlas.js" */

/** @param {(stream: string, layer: string, head: string) => void} choose looks at a head of the page */
export function createCard(choose) {
  const body = make("div");
  const dialog = make("dialog", { class: "card", "aria-label": "This head in other texts" }, [make("button", { type: "button", onclick: () => dialog.close() }, ["Back to the sentence"]), body]);
  document.body.append(dialog);
  /** @type {Promise<AtlasDocument> | null} */
  let atlas = null;

  /** @param {string} name @param {string} layer @param {string} head */
  async function open(name, layer, head) {
    atlas ??= inflate(denseBytes(textOf("atlas")))
      .then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
    const page = await atlas;
    const stream = page.streams.find((one) => one.stream === name);
    const number = stream?.heads.findIndex((one) => one.layer === layer && one.head === head) ?? -1;
    if (!stream || number < 0) return;
    /** @param {AtlasHead} one */
    const dot = (one) => dotIn(colorOf(page.colors, one, "var(--faint)"));
    /** @param {number} other */
    const go = (other) => {
      const one = stream.heads[other];
      choose(name, one.layer, one.head);
      open(name, one.layer, one.head);
    };
    const parts = headParts(page, stream, number, { name: (one) => `${name} layer ${one.layer} head ${one.head}`, dot, go });
    body.replaceChildren(...parts, make("p", { class: "hint" }, [`Over ${page.texts} sentences that came with the page. attnviz heads -i FILE --cross --atlas PAGE makes an atlas of your own.`]));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }
  return { open };
}
