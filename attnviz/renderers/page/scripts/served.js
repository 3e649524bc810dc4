/** Where a page that is served has its answers from, in the place of source.js: its server. */

/** Milliseconds between messages that say what is slow. */
const LONG = 400;

/** The newest question of each sentence; the server stops working on one that is given up. @returns {Source} */
export function createSource() {
  /** @type {(reply: Reply) => void} */
  let listener = () => {};
  /** What is being answered, by the pane or the kind of its question. @type {Map<number | string, AbortController>} */
  const controls = new Map();
  /** Give up the question before. @param {number | string} key */
  const renew = (key) => {
    controls.get(key)?.abort();
    const control = new AbortController();
    controls.set(key, control);
    return control;
  };

  /** @param {string} path @param {Question} question @param {AbortController} control */
  async function post(path, { pane, ...question }, control, kind = "") {
    const timer = setInterval(() => reportProgress(pane, control.signal, kind), LONG);
    try {
      const answer = await fetchJson(path, control.signal, JSON.stringify(question));
      if (!control.signal.aborted) return answer;
    } catch (error) {
      if (!control.signal.aborted) listener({ id: 0, pane, kind, error: wordsOf(error) });
    } finally {
      clearInterval(timer);
    }
    return null;
  }

  /** Say what is done while an answer takes long. @param {number} pane @param {AbortSignal} signal @param {string} kind */
  async function reportProgress(pane, signal, kind) {
    const { doing, seconds } = await fetchJson("progress", signal).catch(() => ({}));
    if (doing && !signal.aborted && (kind === "explain" || controls.get(pane)?.signal === signal)) {
      listener({ id: 0, pane, kind, doing: `${doing} · ${Math.round(seconds)} s` });
    }
  }

  return {
    async ask(question) {
      controls.get("heads")?.abort();
      const control = renew(question.pane);
      const answer = await post("attend", question, control);
      if (controls.get(question.pane) === control) controls.delete(question.pane);
      if (answer) listener({ ...answer, pane: question.pane, question });
    },
    async heads(question) {
      const answer = await post("ablate", question, renew("heads"));
      for (const { stream, values } of answer?.streams ?? []) {
        listener({ id: answer.id, pane: question.pane, kind: "heads", stream, values });
      }
    },
    async why(question) {
      const answer = await post("why", question, renew("why"), "why");
      if (answer) listener({ ...answer, kind: "why" });
    },
    async explain(question) {
      const control = renew("explain");
      if (!question) return;
      const answer = await post("explain", question, control, "explain");
      if (answer) listener({ ...answer, kind: "explain" });
    },
    cancel() {
      for (const [pane, control] of controls) {
        if (typeof pane !== "number") continue;
        control.abort();
        controls.delete(pane);
        listener({ id: 0, pane, error: "Cancelled" });
      }
    },
    listen(handler) {
      listener = handler;
    },
  };
}

/** @param {string} path @param {AbortSignal} [signal] @param {string} [body] */
async function fetchJson(path, signal, body) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(path, body === undefined ? { signal } : { method: "POST", body, headers, signal });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** A server that is gone is no TypeError to a reader. @param {unknown} error */
function wordsOf(error) {
  if (error instanceof TypeError) return "no answer from attnviz: is 'attnviz live' still running?";
  return error instanceof Error ? error.message : String(error);
}
