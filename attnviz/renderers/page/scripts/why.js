/** Why a head looks at a key, beside the map: who wrote what it reads, and what the link argues for. */

import { NO_VALUE } from "./decode.js";
import { headCodes, isReduced, weightTable } from "./model.js";
import { beginning } from "./labels.js";
import { largest, spell } from "./numbers.js";
import { make } from "./surface.js";
import { codePixels, drawThumbnail } from "./thumbnail.js";
import { signed, unfoldSteps } from "./unfold.js";

/** @typedef {{map: PageMap, head: Head, row: number}} Place a head, and the row at which it wrote */

/** Writers of a side that are named, and tokens of a list. */
const MOST_LISTED = 6;
/** Position decides where other rows have this share of a link's weight, and the weight is at least so much. */
const [ALONE, LEAST] = [0.5, 0.1];

/** The largest parts, then all others as one, so that they add up. @param {WriterPart[]} parts @param {number | null} position */
function largestParts(parts, position) {
  const all = [...parts, ...(position === null ? [] : [{ writer: "position", value: position, role: "" }])];
  all.sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
  const rest = all.splice(MOST_LISTED);
  if (rest.length) all.push({ writer: `the other ${rest.length}`, value: rest.reduce((sum, { value }) => sum + value, 0), role: "" });
  return all;
}

/** @param {string} text */
const word = (text) => make("bdi", {}, [beginning(text, 24)]);

/** @param {Store} store @param {() => PageMap[]} maps @param {(question: any) => void} ask */
export function createWhy(store, maps, ask) {
  const title = make("h2", { tabindex: -1 });
  const sentence = make("p", { class: "sum", role: "status" });
  const [details, pictures] = [make("div"), make("div")];
  const [canvas, name] = [make("canvas"), make("span")];
  const preview = make("div", { class: "preview", hidden: true, "aria-hidden": "true" }, [canvas, name]);
  const element = make("section", { id: "why", "aria-label": "Why this link", hidden: true }, [title, pictures, sentence, details, preview]);
  let lastQuestion = "";
  /** @type {Scene} */
  let scene;

  /** The head of a writer's name such as "1.1" or "encoder 0.2", if the page has it. @param {string} writer @param {number} row @returns {Place | null} */
  function placeOf(writer, row) {
    const [, stream, layer, head] = /^(?:(.+) )?(\S+)\.(\d+)$/.exec(writer) ?? [];
    const map = maps().find((one) => one.stream === (stream ?? scene.map.stream));
    const place = map?.layers.indexOf(layer) ?? -1;
    return map && place >= 0 && Number(head) < map.heads.length ? { map, head: [place, Number(head)], row } : null;
  }

  /** Show a head's thumbnail, and frame it among the others. @param {Place} place @param {HTMLElement} button */
  async function point({ map, head }, button) {
    if (map === scene.map) document.querySelector(`[data-head="${head.join(".")}"]`)?.classList.add("framed");
    const codes = await headCodes(map, head);
    if (!button.matches(":hover, :focus")) return;
    drawThumbnail(canvas, codes, map.queries.tokens.length, map.keys.tokens.length, codePixels(weightTable(map), scene.palette));
    name.textContent = `${map.stream} ${map.layers[head[0]]}·${map.heads[head[1]]}`;
    preview.style.top = `${button.offsetTop + button.offsetHeight + 4}px`;
    preview.style.left = `${Math.min(button.offsetLeft, element.clientWidth - 140)}px`;
    preview.hidden = false;
  }

  const leave = () => {
    preview.hidden = true;
    document.querySelector(".framed")?.classList.remove("framed");
  };

  /** Look at a head where it wrote, and at its strongest link there. @param {Place} place */
  async function go({ map, head, row }) {
    const keys = map.keys.tokens.length;
    const codes = (await headCodes(map, head)).slice(row * keys, (row + 1) * keys).map((code) => (code === NO_VALUE ? 0 : code));
    leave();
    const other = map === scene.map ? {} : { map: maps().indexOf(map), measure: "", filter: "" };
    store.set({ ...other, heads: head.join("."), unit: "tokens", specials: "keep", zoom: "", direction: "from", row, column: largest(codes, 1)[0] });
    title.focus();
  }

  /** @param {WriterPart} part @param {number} row @param {number} most */
  function partItem({ writer, value, role }, row, most) {
    const place = placeOf(writer, row);
    const words = [writer, ...(role ? [make("small", {}, [` ${role}`])] : [])];
    /** @param {Event} event */
    const look = ({ target }) => place && point(place, /** @type {HTMLElement} */ (target));
    const label = place ? make("button", {
      type: "button", title: "Where this head looks from here", onmouseenter: look, onfocus: look, onmouseleave: leave, onblur: leave, onclick: () => go(place),
    }, words) : make("span", {}, words);
    const bar = make("i", { class: value < 0 ? "bar below" : "bar", "aria-hidden": "true" });
    bar.style.setProperty("--part", String(Math.abs(value) / most));
    return make("li", {}, [label, signed(value), bar]);
  }

  /** What was written into the two sides of a score; each list adds up to it. @param {ShownToken} query @param {ShownToken} key @param {LinkReport} report */
  function partLists(query, key, { contrast, position, ...report }) {
    const lists = /** @type {const} */ ([["key", key], ["query", query]]).map(([side, token]) => ({ side, token, parts: largestParts(report[side], position) }));
    const most = Math.max(...lists.flatMap(({ parts }) => parts.map(({ value }) => Math.abs(value))), 1e-9);
    return make("div", { class: "sides" }, lists.map(({ side, token, parts }) => {
      const sum = make("li", { class: "total" }, [make("span", {}, ["sum"]), signed(contrast)]);
      return make("div", {}, [make("h3", {}, [`written into the ${side} `, word(token.text)]), make("ol", {}, [...parts.map((part) => partItem(part, token.at, most)), sum])]);
    }));
  }

  /** @param {string} from @param {string} to @param {LinkReport} report */
  function describeLink(from, to, { weight, contrast, against, query, key, at_distance: usual }) {
    const sign = contrast < 0 ? -1 : 1;
    /** @param {string} side @param {WriterPart[]} parts */
    const first = (side, parts) => parts.filter(({ value }) => value * sign > 0).slice(0, 1).flatMap(({ writer, value }) => {
      const name = writer.replace(/\S+\.\d+$/, "head $&").replace(/.*(embedding|position|bias)$/, "the $&");
      return [side === "key" ? ` It is ${sign < 0 ? "lowered" : "raised"} most by ` : " and by ", `${name} in the ${side} (`, signed(value), ")"];
    });
    const writers = [...first("key", key), ...first("query", query)];
    if (!writers.length) return [word(from), " has no other key to look at."];
    if (usual !== null && usual >= ALONE * weight && weight >= LEAST) {
      return [`Position decides, whatever the words are: at this distance three quarters of the head's other rows have more than ${spell(usual)}.`];
    }
    return [
      word(from), " gives ", word(to), ` ${spell(weight)} of its attention: the score is `, make("b", {}, [Math.abs(contrast).toFixed(2)]),
      ` ${sign < 0 ? "below" : "above"} ${against}.`, ...writers, ".",
    ];
  }

  /** @param {LinkReport} report */
  function tokenLists({ arguments: tokens, predicted, argument, rank, logit }) {
    if (!tokens.length) {
      const encoder = scene.map.stream === "encoder" && maps().some(({ stream }) => stream === "cross");
      return [make("p", { class: "hint" }, [encoder ? "The encoder predicts nothing: what this link brings is read by the decoder." : "The model predicts nothing from this position."])];
    }
    if (tokens.every(({ logit: one }) => Math.abs(one) < 0.005)) return [make("p", { class: "hint" }, ["What this link brings moves no logit by .005 or more."])];
    const half = tokens.length >> 1;
    const lists = /** @type {const} */ ([["argues for", tokens.slice(0, half)], ["argues against", tokens.slice(half).reverse()]]).map(([heading, own]) =>
      make("div", {}, [make("h3", {}, [heading]), make("ol", {}, own.slice(0, MOST_LISTED).map((one) => make("li", {}, [word(one.token), signed(one.logit)])))]));
    const sentence = predicted && argument !== null && logit !== null
      ? [make("p", { class: "hint" }, ["The model predicts ", word(predicted[0]), ` (${spell(predicted[1])}): the link adds `, signed(argument), " to its logit of ", signed(logit), `; among its arguments that is number ${rank}. Logits are above the mean of all tokens.`])]
      : [];
    return [make("div", { class: "tokens-for" }, lists), ...sentence];
  }

  return {
    element,
    focus: () => title.focus(),
    /** Explain the pinned link of one head, if there is one. @param {Scene} next @param {any} question */
    show(next, { source, target, model, to, picture, off }) {
      scene = next;
      const { map, heads: [[layer, head], ...others], matrix, state } = next;
      const [query, key] = [matrix.queries[state.row], matrix.keys[state.column]];
      const one = query?.count === 1 && key?.count === 1 && !others.length && ![...map.layers, ...map.heads].some(isReduced);
      element.hidden = !one;
      if (!one) return;
      const link = [map.stream, map.layers[layer], map.heads[head], query.at, key.at];
      const hasChanges = off.heads.length + off.links.length + off.tokens.length > 0;
      title.replaceChildren("why ", word(query.text), " → ", word(key.text), ` in ${map.stream} ${map.layers[layer]}·${map.heads[head]}${hasChanges ? ", with nothing switched off" : ""}`);
      const question = { pane: 0, source, target, model, to, picture, link };
      const now = JSON.stringify(question);
      if (now === lastQuestion) return;
      lastQuestion = now;
      element.setAttribute("aria-busy", "true");
      ask(question);
    },
    /** @param {Reply} reply */
    hear({ report, steps, error }) {
      element.setAttribute("aria-busy", "false");
      leave();
      const { matrix: { queries, keys }, state } = scene;
      const [query, key] = [queries[state.row], keys[state.column]];
      if (!query || !key) {
        lastQuestion = ""; // let go of meanwhile
        return;
      }
      const writes = report?.arguments.map(({ token, logit }) => /** @type {[string, number]} */ ([token, logit])) ?? steps?.writes ?? null;
      pictures.replaceChildren(...(steps ? [unfoldSteps(steps, query, key, writes)] : []));
      const words = report ? describeLink(query.text, key.text, report) : [error ?? ""];
      sentence.replaceChildren(...words);
      details.replaceChildren();
      if (report) details.append(partLists(query, key, report), ...tokenLists(report));
    },
  };
}
