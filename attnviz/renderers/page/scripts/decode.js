/** Packed numbers: base64, inflated by the browser, then codes of one byte, two or three. */

const SHARE_MARK = 255;
const SIGNED_MARK = 127;
/** The code of a cell that has no value. */
export const NO_VALUE = -32768;

/**
 * @param {string} text base64
 * @returns {Uint8Array}
 */
export function bytesOf(text) {
  if ("fromBase64" in Uint8Array) return /** @type {any} */ (Uint8Array).fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

/**
 * @param {string} text base64 of what zlib packed
 * @returns {Promise<Uint8Array>}
 */
export async function inflated(text) {
  const stream = new Blob([/** @type {any} */ (bytesOf(text))]).stream();
  const whole = new Response(stream.pipeThrough(new DecompressionStream("deflate")));
  return new Uint8Array(await whole.arrayBuffer());
}

/**
 * Codes of two bytes each.
 * @param {Uint8Array} bytes
 */
export function fineCodes(bytes) {
  return new Int16Array(bytes.buffer);
}

/**
 * Codes from 0 up.
 * @param {Uint8Array} bytes
 * @param {number} count
 */
export function shareCodes(bytes, count) {
  const codes = new Int16Array(count);
  let next = count;
  for (let place = 0; place < count; place++) {
    const byte = bytes[place];
    codes[place] = byte;
    if (byte === SHARE_MARK) {
      codes[place] = bytes[next] | (bytes[next + 1] << 8);
      next += 2;
    }
  }
  return codes;
}

/**
 * Codes around 0.
 * @param {Uint8Array} bytes
 * @param {number} count
 */
export function signedCodes(bytes, count) {
  const codes = new Int16Array(count);
  let next = count;
  for (let place = 0; place < count; place++) {
    const low = bytes[place] - 128;
    codes[place] = bytes[place] ? low : NO_VALUE;
    if (low === SIGNED_MARK || low === -SIGNED_MARK) {
      const size = bytes[next] | (bytes[next + 1] << 8);
      codes[place] = low < 0 ? -size : size;
      next += 2;
    }
  }
  return codes;
}
