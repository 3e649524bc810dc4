/** What a page says that cannot go on, or was asked for what it has not; and the way past its head. */

import { make, part } from "./surface.js";

export const reload = () => make("button", { type: "button", onclick: () => location.reload() }, ["Reload"]);

/** Show an error that nothing else caught, so that the page does not wait for ever. @param {HTMLElement} before the element below the message */
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

/** What the address asked for that is not here. @param {string[]} missing */
export function tellMissing(missing) {
  const quotes = missing.map((one) => `“${one.length > 60 ? `${one.slice(0, 60)}…` : one}”`);
  part("amiss").textContent = quotes.length ? `The address asks for what is not here: ${quotes.join(", ")}. The usual is shown.` : "";
}

/** The link past everything before the view; the address keeps the state. @param {string} id */
export function skipTo(id) {
  part("skip").onclick = (event) => {
    event.preventDefault();
    part(id).focus();
  };
}
