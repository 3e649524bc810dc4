/** What a page says that cannot go on: one line, and a button that starts it anew. */

import { make } from "./surface.js";

export const reload = () => make("button", { type: "button", onclick: () => location.reload() }, ["Reload"]);

/** Say what nothing else caught, where the page would wait for ever. @param {HTMLElement} before the element that it is said before */
export function tellWhatBreaks(before) {
  const line = make("p", { id: "broken", role: "alert" });
  /** @param {Event} event @param {unknown} why */
  const tell = (event, why) => {
    event.preventDefault();
    const words = why instanceof Error ? why.message : String(why);
    line.replaceChildren(`Something in this page is damaged or failed (${words}). `, reload());
    before.before(line);
    document.querySelectorAll('[aria-busy="true"]').forEach((part) => part.setAttribute("aria-busy", "false"));
  };
  addEventListener("unhandledrejection", (event) => tell(event, event.reason));
  addEventListener("error", (event) => tell(event, event.error ?? event.message));
}
