/** Numbers as text. */

/** A weight in three digits: .583, 1.00, −.204; what is there but rounds to nothing is <.001. @param {number} value */
export function spell(value) {
  if (Number.isNaN(value)) return "no value";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size > 0 && size < 0.0005) return `<${sign}.001`;
  if (size < 0.9995) return sign + size.toFixed(3).slice(1);
  return sign + (size >= 1000 ? Math.round(size).toString() : size.toPrecision(3));
}

/** A weight in two digits, for a cell: .58, 1.0. @param {number} value */
export function spellShort(value) {
  if (Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const sign = value < 0 && size >= 0.005 ? "−" : "";
  if (size < 0.995) return sign + size.toFixed(2).slice(1);
  return sign + (size < 9.95 ? size.toFixed(1) : Math.round(size).toString());
}

/** So many decimals; what rounds to nothing has no sign. @param {number} value @param {number} [digits] @param {string} [plus] before what is above 0 */
export function decimals(value, digits = 2, plus = "") {
  const size = Math.abs(value).toFixed(digits);
  return (Number(size) === 0 ? "" : value < 0 ? "−" : plus) + size;
}

/** A share as a whole percentage, without claiming 0 or 100 for what only comes close. @param {number} share */
export function percent(share) {
  if (share > 0 && share < 0.005) return "under 1 %";
  return `${Math.round(share * 100)} %`;
}

/** @param {number} value @param {number} low @param {number} high */
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** A whole number with its noun. @param {number} count @param {string} noun */
export const countNoun = (count, noun) => `${inThousands(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A whole number with a comma between thousands; the browser's own way to do it takes long to load. @param {number} count */
export const inThousands = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");

/** Places of the largest values by size, largest first. @param {ArrayLike<number>} values @param {number} count */
export function largest(values, count) {
  /** @type {number[]} */
  const places = [];
  for (let place = 0; place < values.length; place++) {
    const size = Math.abs(values[place]);
    if (Number.isNaN(size)) continue;
    if (places.length === count && size <= Math.abs(values[places[count - 1]])) continue;
    let at = places.length;
    while (at > 0 && Math.abs(values[places[at - 1]]) < size) at--;
    places.splice(at, 0, place);
    if (places.length > count) places.pop();
  }
  return places;
}

/** What numbers of heads count, by measure or by unit. @type {Record<string, string>} */
const UNITS = {
  "relative-entropy": "shares of the entropy of an even look",
  share: "shares of attention",
  nats: "nats (natural logarithms; ln 2 = .69 nats is one bit)",
};

/** What a measure of heads counts, and what its ends mean. @param {{name: string, label?: string, unit: string, low: string, high: string}} measure */
export const explainMeasure = ({ name, label = name, unit, low, high }) => `${label} in ${UNITS[name] ?? UNITS[unit] ?? unit}. Low: ${low}; high: ${high}.`;
