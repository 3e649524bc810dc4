/** The page that answers: what is asked, and where the answers go. */

import { createCard } from "./card.js";
import { button, select } from "./controls.js";
import { differencePage } from "./difference.js";
import { createEffects } from "./effects.js";
import { beginning } from "./labels.js";
import { receive } from "./model.js";
import { createPane, secondStage } from "./pane.js";
import { createPicture } from "./picture.js";
import { createSentence } from "./sentence.js";
import { createSource } from "./source.js";
import { QUESTION_KEYS, LANGUAGES, chosenMap, isText } from "./state.js";
import { make, part, patch } from "./surface.js";
import { createSwitching } from "./switching.js";
import { createTour } from "./tour.js";
import { createWhy } from "./why.js";
import { createWord, showClaim } from "./word.js";

/** @import { Switches } from "./off.js" */
/** @import { Pane } from "./pane.js" */

const EXAMPLES = [
  "The red car is fast.",
  "Tom gave Mary the book that he had bought.",
  "The children were playing in the garden when it began to rain.",
  "Mon frère habite dans une petite maison.",
];
/** Milliseconds without a question after which the effects of all heads are asked for. */
const QUIET = 250;
/** A note that names a command or an option is for the shell. @param {string} note */
const inPage = (note) => note.replace(/[,:] (so it says nothing that could be explained: )?(use )?('attnviz|--\w).*$/, "");

/** @param {PageDocument} fixed what of the page no answer changes @param {Store} store @param {Switches} off @param {Pane} pane */
export function createLive(fixed, store, off, pane) {
  const isServed = document.body.dataset.source === "serve";
  const source = createSource();
  const modelName = () => store.state.model || (fixed.models?.[0] ?? "pocket");
  const picture = createPicture(fixed.pictures ?? {}, modelName, () => store.set({ text: "", into: "", off: "" }), () => ask(new Set(QUESTION_KEYS)));
  const sentences = [createSentence(0, store, off), createSentence(1, store, off)];
  /** @type {PageDocument[]} */
  const pages = [];
  /** @type {Reply["answer"][]} */
  const answers = [];
  /** What each answer is to; the fields may hold something newer. @type {Question[]} */
  const questions = [];
  const second = secondStage();
  /** @type {Pane | undefined} */
  let secondPane;
  /** The last difference, and what it was made of. @type {{key: unknown[], page: PageDocument | null}} */
  let difference = { key: [], page: null };
  const effects = createEffects();
  let timer = 0;
  let [hearAnswer, hearEffects] = [(/** @type {PageDocument} */ _) => {}, () => {}];
  /** @type {(page: PageDocument) => void} */
  let begin;
  const first = /** @type {Promise<PageDocument>} */ (new Promise((resolve) => (begin = resolve)));
  const chosenTools = make("div", { class: "asking tools" });
  const status = make("span", { class: "hint status" });
  const cancel = make("button", { type: "button", hidden: true, onclick: () => source.cancel() }, ["Cancel"]);
  const guide = button("Guided tour", "g", () => store.set({ tour: 1 }));
  const tour = createTour(store, off, () => (answers[0]?.to ? pages[0] : undefined));
  const switching = createSwitching(store, off, pane, () => pages[0], isServed || modelName() !== "pocket" ? null : createCard(lookAt));
  const word = createWord(store, (request) => source.explain(request), (claim) => showClaim(store, pages[0].maps, claim));
  part("ask").append(chosenTools, ...sentences.map(({ element }) => element), word.element, switching.element, tour.element);
  const why = createWhy(store, () => pages[0].maps, (request) => source.why(request));
  part("stage").after(why.element, second.stage);

  /** @param {string} stream @param {string} layer @param {string} head by their names */
  function lookAt(stream, layer, head) {
    const number = pages[0].maps.findIndex((map) => map.stream === stream);
    const map = pages[0].maps[number];
    store.set({ map: number, heads: `${map.layers.indexOf(layer)}.${map.heads.indexOf(head)}`, row: -1, column: -1 });
  }

  const panesInUse = () => (store.state.beside ? [0, 1] : [0]);
  /** @param {number} which */
  const question = (which) => {
    const { text, into, text2, into2, lens, model, to, explain } = store.state;
    const target = (which ? into2 : into).trim();
    return { pane: which, source: which ? text2 : text, target: target || null, lens, off: off.now(), ...(model ? { model } : {}), ...(to ? { to } : {}), ...(explain && !which ? { explain: Number(explain) || explain } : {}), ...picture.readPicture() };
  };

  /** Ask anew what the state now asks. @param {Set<string>} changedNames */
  function ask(changedNames) {
    clearTimeout(timer);
    effects.age();
    showTools();
    switching.showOff();
    sentences.forEach((sentence) => sentence.refill(modelName(), modelName() in (fixed.pictures ?? {})));
    const both = [...changedNames].some((name) => !isText(name));
    for (const which of panesInUse()) {
      const concerns = both || [...changedNames].some((name) => name.endsWith("2") === (which === 1));
      const request = question(which);
      if (!concerns) continue;
      if (request.source.trim() || request.picture) {
        sentences[which].wait();
        source.ask(request);
      } else sentences[which].fail("Write a sentence: the model answers as you write.");
    }
    if (changedNames.has("beside")) pages.length = Math.min(pages.length, panesInUse().length);
  }

  /** @param {string} words @param {boolean} [working] */
  function say(words, working = false) {
    status.textContent = words;
    cancel.hidden = !working;
  }

  /** What is done with each kind of message. @type {Record<string, (reply: Reply, which: number) => void>} */
  const handlers = {
    why: (reply) => why.hear(reply),
    explain: (reply) => word.hear(reply),
    doing: ({ doing = "" }) => say(doing, true),
    error(reply, which) {
      say("");
      sentences[which].fail(inPage(reply.error ?? ""), reply.fatal);
    },
    heads({ stream = "", values = [] }) {
      const table = effects.take(stream, values);
      effects.add(pages[0].maps);
      hearEffects();
      tour.learn(table);
    },
    answer(reply, which) {
      if (!reply.document || !reply.question || !panesInUse().includes(which)) return;
      const page = receive({ ...fixed, ...reply.document }, reply.codes ?? reply.blobs ?? {});
      [pages[which], answers[which], questions[which]] = [page, reply.answer, reply.question];
      page.off = switching.listNames(reply.question.off);
      showTools();
      off.allow(Boolean(reply.answer?.pieces.length));
      if (reply.answer?.seconds) say(`${fixed.models?.length ? "" : "the model runs in this page · "}answered in ${Math.max(Math.round(reply.answer.seconds * 1000), 1)} ms`);
      page.notes = [...new Set([...(reply.document.notes ?? []), ...(reply.answer?.notes ?? [])].map(inPage))];
      sentences[which].show(reply.answer, page);
      if (reply.more) sentences[which].wait(); // something newer was asked meanwhile
      if (which === 0) {
        guide.hidden = !reply.answer?.to; // it tells of a translation
        effects.add(page.maps);
        begin(page);
        clearTimeout(timer);
        if (off.able) timer = setTimeout(() => source.heads(question(0)), QUIET);
      }
      if (pages[0]) hearAnswer(pages[0]);
      switching.showOff();
      tour.show();
    },
  };

  function showTools() {
    const { lens, beside, model, to, explain } = store.state;
    const pieces = ["effect", "gradient"].includes(lens) && answers[0]?.to ? answers[0].pieces : null;
    const [lenses, models] = [fixed.lenses ?? ["raw", "rollout", "effect"], fixed.models ?? []];
    const examples = select("example", [["", "choose …"], ...EXAMPLES.map((text) => [text, text])], "", (text) => {
      if (text) store.set({ text, into: "", off: off.withoutPlaces(), word: "" });
      showTools(); // what was chosen is in the field now
    });
    const two = button("Two sentences", "b", besides);
    two.setAttribute("aria-pressed", String(beside !== ""));
    const minus = button("Difference", "d", () => store.set({ beside: beside === "difference" ? "on" : "difference" }));
    minus.title = "The second sentence minus the first, head by head (d)";
    minus.setAttribute("aria-pressed", String(beside === "difference"));
    const reads = !(modelName() in (fixed.pictures ?? {}));
    patch(chosenTools, [
      ...(models.length > 1 ? [select("model", models.map((name) => [name, name.split("/").slice(-2).join("/")]), model || models[0], (name) => store.set({ model: name, off: "", to: "", explain: "", word: "" }))] : []),
      ...(reads ? [examples] : []),
      select("lens", lenses.map((name) => [name, name]), lens, (name) => store.set({ lens: name, explain: "" })),
      ...(pieces ? [select("explain", [...(isServed ? [["", "usual"]] : []), [isServed ? "all" : "", "all tokens"], ...pieces.map((piece, place) => [String(place + 1), beginning(piece.text, 14)])], explain, (name) => store.set({ explain: name }))] : []),
      ...(modelName() === "pocket" ? [select("to", [["", "guessed"], ...Object.entries(LANGUAGES)], to, (name) => store.set({ to: name }))] : []),
      ...(isServed ? [picture.element] : []), ...(reads ? [two, ...(beside ? [minus] : [])] : []), guide, status, cancel,
    ]);
  }

  const besides = () => store.set({ beside: store.state.beside ? "" : "on" });

  store.onChange((changedNames) => {
    if (changedNames.has("tour")) tour.show();
    document.body.dataset.beside = store.state.beside && "on";
    if (QUESTION_KEYS.some((name) => changedNames.has(name))) ask(changedNames);
  });
  document.body.dataset.beside = store.state.beside && "on";
  source.listen((reply) => {
    if (pages[0] || reply.kind !== "heads") handlers[reply.kind || (reply.doing ? "doing" : reply.error ? "error" : "answer")](reply, reply.pane ?? 0);
  });
  ask(new Set(QUESTION_KEYS));
  tour.show();

  return {
    first,
    /** @returns {Record<string, () => void>} */
    keys: () => ({ ...switching.keys(), y: () => why.focus(), b: besides, d: () => store.set({ beside: store.state.beside === "difference" ? "on" : "difference" }), g: () => store.set({ tour: 1 }), "/": () => sentences[0].focus() }),
    showChoice() {
      why.show(pane.scene, questions[0]);
      word.show(questions[0], answers[0]?.pieces ?? [], pages[0].maps);
      switching.showChoice();
    },
    /** The number of outputs, each of which can be explained. */
    get pieces() {
      return answers[0]?.pieces.length ?? 0;
    },
    get texts() {
      const { source, target } = questions[0];
      return { source, target: target ?? answers[0]?.written };
    },
    /** Each sentence that is shown, with what the model makes of it. */
    sentences() {
      return questions.map(({ source, target }, which) => [source || "picture", target ?? answers[which]?.written].filter(Boolean).join(" → "));
    },
    panes: () => (store.state.beside && secondPane && pages[1] ? [pane, secondPane] : [pane]),
    /** @param {typeof hearAnswer} listener told of every answer about the first sentence */
    onAnswer(listener) {
      hearAnswer = listener;
    },
    /** @param {() => void} listener */
    onEffects(listener) {
      hearEffects = listener;
    },
    /** The second sentence, looked at as the first is. */
    async showSecond() {
      second.stage.hidden = !store.state.beside;
      if (!store.state.beside || !pages[1]) return;
      secondPane ??= createPane(second, store, off);
      if (store.state.beside === "on") {
        second.caption.textContent = "";
        await secondPane.show(pages[1], () => {});
        return;
      }
      try {
        const number = pages[0].maps.indexOf(chosenMap(pages[0].maps, store.state));
        const key = [pages[0], pages[1], number];
        if (key.some((one, place) => one !== difference.key[place])) {
          difference = { key, page: await differencePage(pages[0], pages[1], number) };
          hearEffects(); // heads can be ordered by it
        }
        const { maps: [map], notes } = /** @type {PageDocument} */ (difference.page);
        second.caption.textContent = ["B − A: blue where the second sentence looks more, orange where it looks less", ...notes].join("; ");
        await secondPane.show({ ...pages[1], maps: [map] }, () => {}, { row: -1, column: -1, map: 0 });
      } catch (error) {
        second.caption.textContent = error instanceof Error ? error.message : String(error);
      }
    },
  };
}
