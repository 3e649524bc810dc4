/** Where a page that answers has its answers from: the model in a worker beside it. */

import { denseBytes, inflate } from "./decode.js";
import { textOf } from "./surface.js";

/**
 * The model that the page brings along, in a thread of its own. Of what is asked while it works,
 * the newest question of each sentence waits; older ones are forgotten.
 * @returns {Source}
 */
export function createSource() {
  const engine = new Blob([JSON.parse(textOf("worker") || '""')], { type: "text/javascript" });
  const code = URL.createObjectURL(engine);
  /** @type {Worker} */
  let worker;
  /** @type {(reply: Reply) => void} */
  let listener = () => {};
  /** @type {Map<number, Question>} */
  const queue = new Map();
  let [background, current] = [/** @type {Question | null} */ (null), /** @type {Question | null} */ (null)];
  let [number, busy, effects, link, word] = [0, -1, -1, -1, -1];

  /** The number that a question is sent under. @param {string} kind @param {any} question */
  const post = (kind, question) => {
    worker.postMessage({ id: ++number, kind, ...question });
    return number;
  };
  const next = () => {
    if (busy >= 0) return;
    const [pane] = queue.keys();
    const question = queue.get(pane);
    if (question) {
      queue.delete(pane);
      current = question;
      busy = post("attend", question);
    } else if (background) {
      effects = post("heads", background);
      background = null;
    }
  };
  /** @param {Reply} reply */
  const receive = (reply) => {
    if (reply.kind === "why") return reply.id === link && listener(reply);
    if (reply.kind === "explain") return reply.id === word && listener(reply);
    if (reply.doing) return reply.id === busy && listener(reply);
    if (reply.kind === "heads" ? reply.id === effects : !reply.dropped) listener({ ...reply, question: current ?? undefined, more: queue.has(reply.pane ?? 0) });
    if (reply.kind !== "heads" && (reply.id === busy || reply.id === 0)) busy = -1;
    next();
  };
  /** The model in a new thread. */
  function start() {
    worker = new Worker(code);
    worker.onmessage = ({ data }) => receive(data);
    /** @param {unknown} why */
    const fail = (why) => listener({ id: 0, fatal: true, error: `The model in this page does not run: ${why || "its thread ended"}.` });
    worker.onerror = (event) => {
      event.preventDefault();
      fail(event.message);
    };
    busy = 0;
    inflate(denseBytes(textOf("packed"))).then((packed) => {
      worker.postMessage({ kind: "open", packed }, [packed.buffer]);
      busy = -1;
      next();
    }, () => fail("its weights are damaged"));
  }
  start();
  return {
    ask(question) {
      queue.set(question.pane, question);
      background = null;
      effects = -1;
      next();
    },
    heads(question) {
      background = question;
      next();
    },
    why: (question) => void (link = post("why", question)),
    explain: (question) => void (word = post("explain", question)),
    cancel() {
      worker.terminate();
      listener({ id: 0, kind: "explain", dropped: true });
      queue.clear();
      start();
      listener({ id: 0, pane: current?.pane, error: "Cancelled" });
    },
    listen(handler) {
      listener = handler;
    },
  };
}
