/** What the reader has chosen, kept in the address behind the #: a link reopens it, the back button undoes it. */

/** Milliseconds within which gradual changes are one step to undo: typing, a slider, arrow keys. */
const PAUSE = 1000;
/** Browsers take only so many addresses a minute, and people type faster. */
const TYPING = 300;
/** How long a step through the browser's history may take before the page goes on without it. */
const LATE = 1000;

/**
 * A page's state by its schema: of each name the usual value, and what makes of a foreign one a
 * value that exists; undefined is the usual one, and the reader is told.
 * @template {Record<string, string | number>} State
 * @template Known
 * @param {{[Name in keyof State]: [State[Name], ((value: any, known: Known) => State[Name] | undefined)?]}} schema
 * @param {Known} known of the page, which validators need; more may become known
 * @param {string[]} [gradual] names of values that change little by little
 */
export function createStore(schema, known, gradual = []) {
  const names = Object.keys(schema);
  /** @type {string[]} */
  let amiss = [];
  let state = read(location.hash);
  /** The states that undo and redo go through. @type {State[]} */
  const trail = [];
  let [at, addressed, remembering] = [Number(history.state?.at ?? 0), true, 0];
  trail[at] = state;
  /** The timer of a step through the history: a new address would cancel it, so what comes meanwhile waits. */
  let travelling = 0;
  /** @type {(() => void)[]} */
  const waiting = [];
  let last = { changed: "", time: -PAUSE };
  /** @type {((changed: Set<string>) => void)[]} */
  const listeners = [];

  /** @param {State} given @returns {State} */
  function checked(given) {
    amiss = [];
    return /** @type {State} */ (Object.fromEntries(names.map((name) => {
      const [usual, mend] = schema[name];
      const kind = typeof usual === "number" ? Number(given[name]) : given[name];
      const found = kind !== kind ? undefined : mend ? mend(kind, known) : kind;
      if (found !== kind) amiss.push(`${name} ${String(given[name]).split(",").filter((one) => !String(found).split(",").includes(one))}`);
      return [name, found ?? usual];
    })));
  }

  /** @param {string} fragment */
  function read(fragment) {
    const given = new URLSearchParams(fragment.replace(/^#/, ""));
    return checked(/** @type {State} */ (Object.fromEntries(names.map((name) => [name, given.get(name) ?? schema[name][0]]))));
  }

  /** @param {State} of */
  function spelt(of) {
    const parts = names.filter((name) => of[name] !== schema[name][0])
      .map((name) => `${name}=${encodeURIComponent(of[name]).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
    return parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
  }

  /** @param {boolean} [step] whether the back button comes back to what was before */
  function remember(step = false) {
    clearTimeout(remembering);
    remembering = 0;
    if (travelling) return void waiting.push(remember);
    try {
      history[step ? "pushState" : "replaceState"]({ at }, "", spelt(trail[at]));
    } catch {
      addressed = false; // a frame without an address of its own, as in a notebook
    }
  }

  /** @param {State} next */
  function become(next) {
    const changed = new Set(names.filter((name) => next[name] !== state[name]));
    state = next;
    if (changed.size || amiss.length) listeners.forEach((listener) => listener(changed));
  }

  function arrive() {
    clearTimeout(travelling);
    travelling = 0;
    while (waiting.length && !travelling) waiting.shift()?.();
  }

  /** @param {number} step */
  function go(step) {
    if (travelling) return void waiting.push(() => go(step));
    if (at + step < 0 || at + step >= trail.length) return;
    if (!addressed) return jump(step);
    if (remembering) remember();
    travelling = setTimeout(() => {
      travelling = 0;
      jump(step);
      arrive();
    }, LATE);
    history.go(step);
  }

  /** Go without the browser's history. @param {number} step */
  function jump(step) {
    if (!trail[at + step]) return;
    at += step;
    become(trail[at]);
    if (addressed) remember();
  }

  addEventListener("popstate", ({ state: kept }) => {
    // A jump within the page is no state: the address keeps the one that there is.
    if (location.hash && !location.hash.includes("=")) return remember();
    at = Number(kept?.at ?? at + 1);
    if (!kept) trail.length = at;
    clearTimeout(travelling);
    travelling = 0;
    trail[at] ??= read(location.hash);
    become(trail[at]);
    if (!kept) remember();
    arrive();
  });

  /** @param {Partial<State>} changes @param {boolean} [same] whether they belong to the step before */
  function set(changes, same = false) {
    if (travelling) return void waiting.push(() => set(changes, same));
    const next = { ...state, ...changes };
    const changed = names.filter((name) => next[name] !== state[name]);
    if (!changed.length) return;
    const again = changed.join() === last.changed && performance.now() - last.time < PAUSE;
    const goesOn = same || (again && changed.some((name) => gradual.includes(name)));
    if (!same) amiss = [];
    if (!same) last = { changed: changed.join(), time: performance.now() };
    if (remembering && !goesOn) remember(); // the end of what was typed before
    if (!goesOn) at += 1;
    trail.length = at;
    trail[at] = next;
    clearTimeout(remembering);
    if (goesOn && !same && changed.some((name) => typeof next[name] === "string")) remembering = setTimeout(remember, TYPING);
    else remember(!goesOn);
    become(next);
  }

  /** Check the state by what has become known. */
  function check() {
    if (travelling) return void waiting.push(check);
    const told = amiss;
    trail[at] = checked(state);
    amiss = [...new Set([...told, ...amiss])];
    become(trail[at]);
    remember();
  }

  return {
    get state() {
      return state;
    },
    /** What the address asked for that is not here. */
    get amiss() {
      return amiss;
    },
    get canUndo() {
      return at > 0;
    },
    get canRedo() {
      return at + 1 < trail.length;
    },
    undo: () => go(-1),
    redo: () => go(1),
    set,
    check,
    /** @param {(changed: Set<string>) => void} listener */
    onChange(listener) {
      listeners.push(listener);
    },
  };
}
