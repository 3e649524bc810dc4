/**
 * What the tokenizer and the page know of characters; a text is an array of code points here.
 *
 * The tables come with the model, so that every browser answers as Python does.
 */

/** @typedef {{at: (point: number) => any}} Runs a value for each code point */
/** @typedef {Record<"category" | "wide" | "combining" | "decomposes" | "punctuation", Runs>} Unicode */
/** @typedef {{point: number, start: number, end: number}} Character a character and where it was read */

/** What Python calls white space. */
const SPACES = /^[\t-\r\x1c-\x20\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]$/u;

/** @param {string} text */
export const pointsOf = (text) =>
  Array.from(text, (character) => {
    const point = /** @type {number} */ (character.codePointAt(0));
    return point >> 11 === 27 ? 0xfffd : point; // half of a pair is no character
  });

/** @param {number[]} points @returns {string} */
export const textOf = (points) => points.map((point) => String.fromCodePoint(point)).join("");

/** @param {number} point */
export const isSpace = (point) => SPACES.test(String.fromCodePoint(point));

/** @param {Record<string, any[]>} tables runs [first, value, first, value, …] @returns {Unicode} */
export function readUnicode(tables) {
  const runs = (/** @type {any[]} */ table) => {
    const starts = Uint32Array.from({ length: table.length / 2 }, (_, place) => table[2 * place]);
    return {
      at(/** @type {number} */ point) {
        let low = 0;
        for (let high = starts.length; high - low > 1; ) {
          const middle = (low + high) >> 1;
          if (starts[middle] <= point) low = middle;
          else high = middle;
        }
        return table[2 * low + 1];
      },
    };
  };
  const entries = Object.entries(tables).map(([name, table]) => [name, runs(table)]);
  return Object.fromEntries(entries);
}

/** Letters and numbers. @param {Unicode} unicode @param {number | undefined} point */
export const isAlphanumeric = (unicode, point) =>
  point !== undefined && "LN".includes(unicode.category.at(point)[0]);

/**
 * @typedef {[number, number]} Change a character and by how many it changes the text: 1 for one
 *   that is put in, 0 for one that stands for one, −n for one that stands for n more
 */

/**
 * A text in normal form NFKC, each character with the place it was read at (Unicode annex 15).
 * @param {Unicode} unicode
 * @param {Character[]} text
 * @returns {Character[]}
 */
export function compose(unicode, text) {
  /** @type {Change[]} */
  const whole = [];
  // Where the last starter stands, and the order of the last mark behind it.
  let [starter, last] = [-1, -1];
  for (const part of decompose(unicode, text)) {
    const order = unicode.combining.at(part[0]);
    const pair = starter >= 0 && last < order ? pairOf(unicode, whole[starter][0], part[0]) : 0;
    if (pair) whole[starter] = [pair, whole[starter][1] + part[1] - 1];
    else {
      whole.push(part);
      if (order) last = order;
      else [starter, last] = [whole.length - 1, -1];
    }
  }
  let from = 0;
  return whole.map(([point, change]) => {
    const { start, end } = text[change > 0 ? from - 1 : from] ?? { start: 0, end: 0 };
    from += 1 - change;
    return { point, start, end };
  });
}

/** @param {Unicode} unicode @param {Character[]} text @returns {Change[]} */
function decompose(unicode, text) {
  /** @type {Change[]} */
  const parts = [];
  let ready = 0;
  const order = (/** @type {Change} */ part) => unicode.combining.at(part[0]);
  const sort = () => {
    if (parts.length - ready > 1) {
      parts.push(...parts.splice(ready).sort((one, other) => order(one) - order(other)));
    }
    ready = parts.length;
  };
  for (const { point } of text) {
    const plain = unicode.decomposes.at(point)
      ? pointsOf(String.fromCodePoint(point).normalize("NFKD"))
      : [point];
    plain.forEach((part, place) => {
      if (!unicode.combining.at(part)) sort();
      parts.push([part, place ? 1 : 0]);
    });
  }
  sort();
  return parts;
}

/** The character of two, or 0. @param {Unicode} unicode @param {number} one @param {number} other */
function pairOf(unicode, one, other) {
  if (one < 128 && other < 128) return 0;
  const [first, ...more] = pointsOf(String.fromCodePoint(one, other).normalize("NFC"));
  return more.length || first === one || !unicode.decomposes.at(first) ? 0 : first;
}
