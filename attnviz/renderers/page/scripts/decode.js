/** Packed numbers: base64, inflated by the browser, then codes of one byte, two or three. */

const SHARE_MARK = 255;
const SIGNED_MARK = 127;
/** The code of a cell that has no value. */
export const NO_VALUE = -32768;
/** The largest code of two bytes. */
export const FINE_LEVELS = 32767;

/** @param {string} text base64 @returns {Uint8Array} */
export function bytesOf(text) {
  if ("fromBase64" in Uint8Array) return /** @type {any} */ (Uint8Array).fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/** @param {string} text base 85, five signs for four bytes @returns {Uint8Array} */
export function denseBytes(text) {
  const values = new Uint8Array(128);
  Array.from(DIGITS, (digit, value) => (values[digit.charCodeAt(0)] = value));
  const signs = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 5) * 5, "~"));
  const bytes = new DataView(new ArrayBuffer((signs.length / 5) * 4));
  for (let place = 0, at = 0; at < bytes.byteLength; at += 4, place += 5) {
    const high = (values[signs[place]] * 85 + values[signs[place + 1]]) * 85 + values[signs[place + 2]];
    bytes.setUint32(at, (high * 85 + values[signs[place + 3]]) * 85 + values[signs[place + 4]]);
  }
  return new Uint8Array(bytes.buffer, 0, Math.floor((text.length * 4) / 5));
}

/** @param {string | Uint8Array} packed what zlib packed, as bytes or in base64 @returns {Promise<Uint8Array>} */
export async function inflate(packed) {
  const stream = new Blob([/** @type {any} */ (typeof packed === "string" ? bytesOf(packed) : packed)]).stream();
  const whole = new Response(stream.pipeThrough(new DecompressionStream("deflate")));
  return new Uint8Array(await whole.arrayBuffer());
}

/** Codes of two bytes each. @param {Uint8Array} bytes */
export const fineCodes = (bytes) => new Int16Array(bytes.buffer);

/** Codes of a byte each, and after all of them the two bytes of those beyond the mark. @param {Uint8Array} bytes @param {number} count @param {boolean} signed whether they lie around 0, and not from it up */
export function byteCodes(bytes, count, signed) {
  const [codes, zero, mark] = [new Int16Array(count), signed ? 128 : 0, signed ? SIGNED_MARK : SHARE_MARK];
  for (let place = 0, next = count; place < count; place++) {
    const code = bytes[place] - zero;
    codes[place] = signed && !bytes[place] ? NO_VALUE : code;
    if (code !== mark && code !== -mark) continue;
    codes[place] = Math.sign(code) * (bytes[next] | (bytes[next + 1] << 8));
    next += 2;
  }
  return codes;
}
