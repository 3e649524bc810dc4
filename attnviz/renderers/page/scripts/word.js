/** Why the model says a word: the sentences of `attnviz explain`, each a button that shows what it is about. */

import { beginning } from "./labels.js";
import { look } from "./look.js";
import { make } from "./surface.js";

/** Look at what a claim is about: its link, or its heads, tokens lit. @param {Store} store @param {PageMap[]} maps @param {Claim} claim */
export function showClaim(store, maps, { link, heads, tokens }) {
  const usual = { view: "heatmap", unit: "tokens", specials: "keep", zoom: "", lens: "raw" };
  const streams = heads.map(([stream]) => stream);
  const stream = link?.[0] ?? streams.sort((one, other) => streams.filter((name) => name === other).length - streams.filter((name) => name === one).length)[0];
  const number = stream === undefined ? store.state.map : maps.findIndex((map) => map.stream === stream);
  const map = maps[number];
  /** @param {(string | number)[]} head */
  const spellHead = ([, layer, head]) => `${map.layers.indexOf(String(layer))}.${map.heads.indexOf(String(head))}`;
  const names = link ? spellHead(link) : heads.filter(([own]) => own === stream).map(spellHead).join(",");
  const [row, column] = link ? link.slice(3).map(Number) : [-1, tokens.find(([side]) => side === map.keys.side)?.[1] ?? -1];
  store.set({ ...usual, map: number, row, column, ...(names ? { heads: names } : {}) }, !document.body.dataset.ready);
  look.keep(tokens);
}

/** The sentences as buttons, and what their numbers count. @param {Claim[]} claims @param {(claim: Claim) => void} show */
export const claimList = (claims, show) => [make("ul", { class: "claims", "aria-label": "What decided the answer" }, claims.map((claim) => {
  const words = [make("b", {}, [claim.about]), make("span", {}, [claim.text])];
  const shows = claim.link ? "Show this link" : claim.heads.length ? "Show these heads" : claim.tokens.length ? "Show these tokens" : "";
  return make("li", {}, shows ? [make("button", { type: "button", title: shows, onclick: () => show(claim) }, words)] : words);
})), make("p", { class: "hint" }, ["Nats: what log p of the word loses (natural logarithms) where a token is hidden from the others, or a head puts out its mean. Hiding all others: every token but those named, at once."])];

/**
 * @param {Store} store
 * @param {(question: any) => void} ask nothing: what was asked is no longer wanted
 * @param {(claim: Claim) => void} show
 */
export function createWord(store, ask, show) {
  const title = make("h2", { tabindex: -1 });
  const status = make("p", { class: "hint", role: "status" });
  const list = make("div");
  const close = make("button", { type: "button", onclick: () => store.set({ word: "" }) }, ["Close"]);
  const element = make("section", { id: "word", "aria-label": "Why this word", hidden: true }, [title, close, list, status]);
  let lastQuestion = "";
  /** @type {import("./look.js").Spot | null} */
  let spot = null;
  return {
    element,
    /** Explain the chosen word, if there is one. @param {any} question @param {Piece[]} pieces @param {PageMap[]} maps */
    show({ source, target, model, to, picture, off }, pieces, maps) {
      const place = Number(store.state.word) - 1;
      const piece = pieces[place];
      element.hidden = !piece || Boolean(picture);
      if (element.hidden) {
        if (element.getAttribute("aria-busy") === "true") ask(null);
        element.setAttribute("aria-busy", "false");
        lastQuestion = "";
        return;
      }
      const hasChanges = off.heads.length + off.links.length + off.tokens.length > 0;
      title.replaceChildren("why ", make("bdi", {}, [`“${beginning(piece.text, 40)}”`]), hasChanges ? ", with nothing switched off" : "");
      const side = maps.find(({ stream }) => stream !== "encoder")?.queries.side ?? "";
      spot = piece.position === null ? null : [side, piece.position];
      const request = { pane: 0, source, target, ...(model ? { model } : {}), ...(to ? { to } : {}), ...(piece.position === null ? {} : { explain: piece.position }) };
      const now = JSON.stringify(request);
      if (now === lastQuestion) return;
      lastQuestion = now;
      list.replaceChildren();
      status.textContent = "Searching for the fewest heads and tokens that give it …";
      element.setAttribute("aria-busy", "true");
      ask(request);
    },
    /** @param {Reply} reply */
    hear({ claims, notes = [], doing, error, dropped }) {
      if (doing) status.textContent = `${doing[0].toUpperCase()}${doing.slice(1)} …`;
      if (doing) return;
      element.setAttribute("aria-busy", "false");
      if (dropped) lastQuestion = ""; // something else was asked meanwhile
      status.textContent = error ?? notes.join("; ");
      if (claims) list.replaceChildren(...claimList(claims.map((claim, place) => (place || !spot ? claim : { ...claim, tokens: [spot] })), show));
    },
  };
}
