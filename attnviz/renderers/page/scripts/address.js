/** What the reader has chosen, kept in the address behind the #: a link reopens it, the back button undoes it. */

/** Milliseconds within which gradual changes are one step to undo: typing, a slider, arrow keys. */
const PAUSE = 1000;
/** Browsers take only so many addresses a minute, and people type faster. */
const TYPING = 300;
/** How long a step through the browser's history may take before the page goes on without it. */
const LATE = 1000;

/**
 * A page's state by its schema: of each name the usual value, and what makes of a foreign one a
 * value that exists; undefined means the usual one, and the page names what is missing.
 * @template {Record<string, string | number>} State
 * @template {object} Choices "bare" among them: the address of the usual state, where an empty one opens otherwise
 * @param {{[Name in keyof State]: [State[Name], ((value: any, choices: Choices) => State[Name] | undefined)?]}} schema
 * @param {Choices} choices of the page, which validators need; more may become known
 * @param {string[]} [gradual] names of values that change little by little
 */
export function createStore(schema, choices, gradual = []) {
  const names = Object.keys(schema);
  /** @type {string[]} */
  let missing = [];
  let state = read(location.hash);
  /** The states that undo and redo go through. @type {State[]} */
  const trail = [];
  let [at, hasAddress, rememberTimer] = [Number(history.state?.at ?? 0), true, 0];
  trail[at] = state;
  /** The timer of a step through the history: a new address would cancel it, so what comes meanwhile waits. */
  let travelTimer = 0;
  /** @type {(() => void)[]} */
  const queue = [];
  let last = { names: "", time: -PAUSE };
  /** @type {((changedNames: Set<string>) => void)[]} */
  const listeners = [];

  /** @param {State} values @returns {State} */
  function checkState(values) {
    missing = [];
    return /** @type {State} */ (Object.fromEntries(names.map((name) => {
      const [usual, mend] = schema[name];
      const kind = typeof usual === "number" ? Number(values[name]) : values[name];
      const value = kind !== kind ? undefined : mend && kind !== usual ? mend(kind, choices) : kind;
      if (value !== kind) missing.push(`${name} ${String(values[name]).split(",").filter((one) => !String(value).split(",").includes(one))}`);
      return [name, value ?? usual];
    })));
  }

  /** @param {string} fragment */
  function read(fragment) {
    const fields = new URLSearchParams(fragment.replace(/^#/, ""));
    const checked = checkState(/** @type {State} */ (Object.fromEntries(names.map((name) => [name, fields.get(name) ?? schema[name][0]]))));
    fields.forEach((value, name) => value && !names.includes(name) && missing.push(`${name} ${value}`));
    return checked;
  }

  /** @param {State} values */
  function spellState(values) {
    const parts = names.filter((name) => values[name] !== schema[name][0])
      .map((name) => `${name}=${encodeURIComponent(values[name]).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
    if (!parts.length && "bare" in choices) return `#${choices.bare}`;
    return parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
  }

  /** @param {boolean} [step] whether the back button comes back to what was before */
  function remember(step = false) {
    clearTimeout(rememberTimer);
    rememberTimer = 0;
    if (travelTimer) return void queue.push(remember);
    try {
      history[step ? "pushState" : "replaceState"]({ at }, "", spellState(trail[at]));
    } catch {
      hasAddress = false; // a frame without an address of its own, as in a notebook
    }
  }

  /** @param {State} next */
  function become(next) {
    const changedNames = new Set(names.filter((name) => next[name] !== state[name]));
    state = next;
    if (changedNames.size || missing.length) listeners.forEach((listener) => listener(changedNames));
  }

  function arrive() {
    clearTimeout(travelTimer);
    travelTimer = 0;
    while (queue.length && !travelTimer) queue.shift()?.();
  }

  /** @param {number} step */
  function go(step) {
    if (travelTimer) return void queue.push(() => go(step));
    if (at + step < 0 || at + step >= trail.length) return;
    if (!hasAddress) return jump(step);
    if (rememberTimer) remember();
    travelTimer = setTimeout(() => {
      travelTimer = 0;
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
    if (hasAddress) remember();
  }

  addEventListener("popstate", ({ state: entry }) => {
    // A jump within the page is no state: the address keeps the one that there is.
    if (location.hash && !location.hash.includes("=")) return remember();
    at = Number(entry?.at ?? at + 1);
    if (!entry) trail.length = at;
    clearTimeout(travelTimer);
    travelTimer = 0;
    trail[at] ??= read(location.hash);
    become(trail[at]);
    if (!entry) remember();
    arrive();
  });

  /** @param {Partial<State>} changes @param {boolean} [same] whether they belong to the step before */
  function set(changes, same = false) {
    if (travelTimer) return void queue.push(() => set(changes, same));
    const next = { ...state, ...changes };
    const changedNames = names.filter((name) => next[name] !== state[name]);
    if (!changedNames.length) return;
    const again = changedNames.join() === last.names && performance.now() - last.time < PAUSE;
    const goesOn = same || (again && changedNames.some((name) => gradual.includes(name)));
    if (!same) missing = [];
    if (!same) last = { names: changedNames.join(), time: performance.now() };
    if (rememberTimer && !goesOn) remember(); // the end of what was typed before
    if (!goesOn) at += 1;
    trail.length = at;
    trail[at] = next;
    clearTimeout(rememberTimer);
    if (goesOn && !same && changedNames.some((name) => typeof next[name] === "string")) rememberTimer = setTimeout(remember, TYPING);
    else remember(!goesOn);
    become(next);
  }

  /** Check the state by what has become known. */
  function check() {
    if (travelTimer) return void queue.push(check);
    const before = missing;
    trail[at] = checkState(state);
    missing = [...new Set([...before, ...missing])];
    become(trail[at]);
    remember();
  }

  return {
    get state() {
      return state;
    },
    /** What the address asked for that is not here. */
    get missing() {
      return missing;
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
    /** @param {(changedNames: Set<string>) => void} listener */
    onChange(listener) {
      listeners.push(listener);
    },
  };
}
