// The engine of the live page in node: the worker's script with its messages on stdin and stdout.
//
// node engine.mjs WORKER.js PACKED: a message a line in, an answer a line out. Beside the worker's
// kinds there is {kind: "tokens", texts}, which shows what the tokenizer makes of each text.
import fs from "node:fs";
import readline from "node:readline";

const [script, packed] = process.argv.slice(2);
const plain = (key, value) => {
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Int16Array) return Array.from(value);
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
};
const say = (message) => process.stdout.write(`${JSON.stringify(message, plain)}\n`);
globalThis.self = { postMessage: say };
const modules = await (0, eval)(fs.readFileSync(script, "utf8"));
const bytes = Uint8Array.from(fs.readFileSync(packed));
const { openModel } = modules.network;
const tokenizer = modules.tokenize.createTokenizer(openModel(bytes).facts);

function tokens(text) {
  try {
    const read = tokenizer.encode(text, "text");
    const shown = (piece) => [modules.maps.printable(tokenizer.unicode, piece.text), piece.start, piece.end];
    return { ids: read.ids, tokens: read.tokens.map(shown), notes: tokenizer.notes(read, "the text") };
  } catch (error) {
    return { error: error.message };
  }
}

self.onmessage({ data: { kind: "open", packed: bytes } });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.kind === "tokens") say(message.texts.map(tokens));
  else self.onmessage({ data: message });
}
