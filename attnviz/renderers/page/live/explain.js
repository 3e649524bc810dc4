/**
 * What decided a piece of the translation, as `attnviz/features/explain/search.py`: the smallest set of heads
 * and tokens that keeps it, each claim measured, and the sentences of `features/explain/table.py`.
 */

import { printable, sidesOf } from "./maps.js";
import { NOTHING, SIDES, createDecoder, encode } from "./network.js";
import { rowOf } from "../scripts/rows.js";
import { LANGUAGE, END } from "./tokenize.js";
import { explainLink } from "./why.js";

/** @import { Pocket, Pair } from "./pocket.js" */
/** @import { Off, Outputs, Matrix } from "./network.js" */
/** @typedef {[string, string, number]} HeadAt stream, layer, head */
/** @typedef {[string, number]} TokenAt side, position */
/** @typedef {{at: HeadAt, effect: number, sure: boolean, link?: [number, number], weight: number, linkEffect: number, why?: any}} Claim */
/** @typedef {{about: string, text: string, link: (string | number)[] | null, heads: (string | number)[][], tokens: TokenAt[]}} Sentence */

const [ONE_BY_ONE, RANDOM_SETS, RESAMPLES, CARRIERS, MOST_LISTED, LINES] = [24, 10, 8, 3, 6, 2];
/** Sizes that a set of the most needed items is tried with first. */
const SIZES = [1, 2, 4, 8, 16];
const [LITTLE, STRONG, FLAT, ENOUGH, SMALL, LIKE_CHANCE] = [0.05, 0.5, 0.1, 0.9, 0.5, 0.25];
/** Position decides where other rows have this share of a link's weight, and the weight is at least so much. */
const [ALONE, LEAST] = [0.5, 0.1];
/** Sentences whose mean heads put out. */
const REFERENCE = [
  "The cat sat on the mat.", "He closed the door and left without a word.", "We went to the market to buy some bread.",
  "The children are playing in the garden.", "I don't know what you want from me.", "Tomorrow it will rain all day.",
  "My brother works in a hospital.", "They have lived here for ten years.", "Can you tell me where the station is?",
  "The old man told us a long story.", "Nobody knew the answer to the question.", "The book that you gave me is very good.",
  "She has two dogs and a cat.", "The train leaves at seven in the morning.", "I would like a cup of coffee, please.",
  "It was the best day of my life.",
];

/** numpy's PCG64 as its default generator starts from a seed. @type {[bigint, bigint][]} */
const STARTS = [
  [0x1aa1b5345996452d09585eb7a69561e3n, 0x418ddadb3af71a82588133bc447873a9n],
  [0x9c5b484bfedb756c2a6e7d6f320fbc7en, 0x922af2da2645f895a19857b95740937bn],
];

/** Whole numbers below a limit, as numpy draws them. @param {0 | 1} seed */
export function generator(seed) {
  let [state, step] = STARTS[seed];
  const halves = (function* () {
    for (;;) {
      state = BigInt.asUintN(128, state * 0x2360ed051fc65da44385df649fccf645n + step);
      const [mix, turn] = [BigInt.asUintN(64, (state >> 64n) ^ state), state >> 122n];
      const whole = BigInt.asUintN(64, (mix >> turn) | (mix << (64n - turn)));
      yield whole & 0xffffffffn;
      yield whole >> 32n;
    }
  })();
  /** @param {number} limit */
  const below = (limit) => {
    if (limit === 1) return 0;
    const most = BigInt(limit);
    for (;;) {
      const product = halves.next().value * most;
      if ((product & 0xffffffffn) >= 0x100000000n % most) return Number(product >> 32n);
    }
  };
  /** @param {number} count */
  const permutation = (count) => {
    const order = Array.from({ length: count }, (_, place) => place);
    for (let place = count - 1; place > 0; place--) {
      const other = below(place + 1);
      [order[place], order[other]] = [order[other], order[place]];
    }
    return order;
  };
  return { below, permutation };
}

/** What heads put out in other texts, (positions, size) for each layer. @param {Pocket} engine @returns {Outputs} */
function readBank(engine) {
  /** @type {Map<string, Matrix[]>} */
  const bank = new Map();
  for (const text of REFERENCE) {
    /** @type {import("./network.js").Tape} */
    const tape = [];
    engine.rerun(engine.read(text, null, null), NOTHING, tape);
    for (const { kind, name, mix } of tape.filter(({ mix }) => mix)) {
      const place = `${kind} ${name.split(".")[1]}`;
      bank.set(place, [...(bank.get(place) ?? []), mix]);
    }
  }
  return new Map(Array.from(bank, ([place, parts]) => [place, Float64Array.from(parts.flatMap((part) => Array.from(part)))]));
}

/** @type {WeakMap<Pocket, Outputs>} */
const banks = new WeakMap();

/** Rows as one, their mean. @param {Matrix} rows @param {number} size */
function meanRow(rows, size) {
  const mean = new Float64Array(size);
  rows.forEach((value, at) => (mean[at % size] += (value * size) / rows.length));
  return mean;
}

/** Off, without what its numbers are for. @param {HeadAt[]} heads @param {TokenAt[]} tokens @returns {Off} */
const without = (heads, tokens = []) => ({ heads, links: [], tokens });

/**
 * The model with one output, run with parts of it switched off.
 * @param {Pocket} engine
 * @param {Pair} pair
 * @param {number} place of the piece in the target
 */
function createTrials(engine, pair, place) {
  const { model } = engine;
  const { size, heads: count, encoder_layers, decoder_layers } = model.sizes;
  const bank = banks.get(engine) ?? readBank(engine);
  banks.set(engine, bank);
  const mean = new Map(Array.from(bank, ([name, rows]) => [name, meanRow(rows, size)]));
  /** @type {[string, number][]} */
  const streams = [["cross", decoder_layers], ["encoder", encoder_layers], ["decoder", decoder_layers]];
  const heads = streams.flatMap(([stream, layers]) => Array.from({ length: layers * count }, (_, at) => /** @type {HeadAt} */ ([stream, String(Math.floor(at / count)), at % count])));
  const counts = { source: pair.source.ids.length + 1, target: pair.target.ids.length + 1 };
  const tokens = Object.entries(counts).flatMap(([side, length]) => Array.from({ length }, (_, at) => /** @type {TokenAt} */ ([side, at])));
  const target = [LANGUAGE[pair.language], ...pair.target.ids.slice(0, place)];
  /** @type {Map<string, ReturnType<typeof encode>>} */
  const cache = new Map();

  /** The decoder at the output, with parts off. @param {Off} off @param {Outputs} instead */
  function run(off, instead = mean) {
    const own = { ...off, instead, heads: off.heads.filter(([stream]) => stream === "encoder"), links: off.links.filter(([stream]) => stream === "encoder"), tokens: off.tokens.filter(([side]) => side === "source"), rows: off.rows?.filter(([stream]) => stream === "encoder") };
    const name = `${instead === mean}${JSON.stringify([own.heads, own.links, own.tokens, own.rows])}`;
    const memory = cache.get(name) ?? encode(model, [...pair.source.ids, END], own);
    if (instead === mean) cache.set(name, memory);
    if (cache.size > 200) cache.clear();
    const decoder = createDecoder(model, memory.memory, { ...off, instead });
    decoder.turnTo(target);
    return decoder.logsAfter(place);
  }

  const id = pair.target.ids[place];
  /** log p of the answer after a change; −∞: not known. @param {Off} off @param {Outputs} [instead] */
  const score = (off, instead) => {
    const value = run(off, instead)[id];
    return Number.isNaN(value) ? -Infinity : value;
  };
  const full = score(NOTHING);
  const rows = { cross: counts.target, encoder: counts.source, decoder: counts.target };
  return {
    heads, tokens, run, score, full,
    /** @param {HeadAt} at @param {Outputs} [instead] */
    lostHead: (at, instead) => full - score(without([at]), instead),
    /** @param {TokenAt} at */
    lostToken: (at) => full - score(without([], [at])),
    /** All other heads and tokens off. @param {HeadAt[]} some @param {TokenAt[]} few */
    keep: (some, few) => without(heads.filter((one) => !some.includes(one)), tokens.filter((one) => !few.includes(one))),
    /** Outputs at positions drawn by chance. @param {0 | 1} seed @returns {Outputs} */
    draw(seed) {
      const { below } = generator(seed);
      return new Map(streams.flatMap(([stream, layers]) => Array.from({ length: layers }, (_, layer) => {
        const whole = /** @type {Matrix} */ (bank.get(`${stream} ${layer}`));
        const output = new Float64Array(rows[/** @type {keyof typeof rows} */ (stream)] * size);
        for (let at = 0; at < output.length; at += size) {
          const from = below(whole.length / size) * size;
          output.set(whole.subarray(from, from + size), at);
        }
        return /** @type {[string, Matrix]} */ ([`${stream} ${layer}`, output]);
      })));
    },
  };
}

/**
 * A small set of items whose score is enough, which no item can leave.
 * @template Item
 * @param {Item[]} items
 * @param {number[]} costs what each costs alone
 * @param {(rest: Item[]) => Promise<number>} score
 * @param {number} enough
 */
async function smallestSet(items, costs, score, enough) {
  let rest = items;
  if (items.length > ONE_BY_ONE) {
    const order = costs.map((_, place) => place).sort((one, other) => costs[other] - costs[one] || one - other).map((place) => items[place]);
    let [low, high] = [0, order.length];
    for (const size of SIZES.filter((size) => size < order.length)) {
      if ((await score(order.slice(0, size))) >= enough) {
        high = size;
        break;
      }
      low = size;
    }
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((await score(order.slice(0, middle))) >= enough) high = middle;
      else low = middle;
    }
    rest = order.slice(0, high);
  }
  while (rest.length && rest.length <= ONE_BY_ONE) {
    const scores = new Map();
    for (const item of rest) scores.set(item, await score(rest.filter((one) => one !== item)));
    const spare = rest.filter((one) => scores.get(one) >= enough).sort((one, other) => scores.get(other) - scores.get(one));
    if (!spare.length) break;
    let most = 1;
    for (const count of SIZES.filter((size) => size > 1 && size <= spare.length)) {
      if ((await score(rest.filter((one) => !spare.slice(0, count).includes(one)))) >= enough) most = count;
    }
    const off = spare.slice(0, most);
    rest = rest.filter((one) => !off.includes(one));
  }
  return rest;
}

/**
 * @param {Pocket} engine
 * @param {Pair} pair
 * @param {number} place of the piece in the target, from 0
 * @param {(doing: string) => Promise<void>} pause lets messages in; it throws where the answer is no longer wanted
 * @returns {Promise<Sentence[]>}
 */
export async function explainPiece(engine, pair, place, pause) {
  await pause("reading the texts whose mean heads put out");
  const trials = createTrials(engine, pair, place);
  const { heads: every, tokens: all, full, keep, score } = trials;
  const sides = sidesOf(engine, pair);
  let runs = 0;
  /** @template Item @template Made @param {Item[]} items @param {(item: Item) => Made} make */
  const each = async (items, make) => {
    const results = [];
    for (const item of items) {
      await pause(`searching for what decided it: ${++runs} runs`);
      results.push(make(item));
    }
    return results;
  };
  const none = score(without(every));
  const span = full - none;
  const enough = full - Math.min((1 - ENOUGH) * span, Math.log(2));
  /** @type {HeadAt[]} */
  let heads = [];
  /** @type {TokenAt[]} */
  let tokens = [];
  const trial = async (/** @type {Off} */ off) => (await each([off], (one) => score(one)))[0];
  if (span >= FLAT) {
    heads = await smallestSet(every, await each(every, (at) => trials.lostHead(at)), (some) => trial(keep(some, all)), enough);
    tokens = await smallestSet(all, await each(all, trials.lostToken), (few) => trial(keep(heads, few)), enough);
  }
  const ofToken = new Map(tokens.map((at) => [at, trials.lostToken(at)]));
  const alone = keep(heads, tokens);
  const logs = trials.run(NOTHING);
  const answer = pair.target.ids[place];
  const second = logs.reduce((best, log, id) => (id !== answer && (best < 0 || log > logs[best]) ? id : best), -1);
  const [alonePart, otherPart, others] = [alone, without(heads, tokens), without([], all.filter((one) => !tokens.includes(one)))].map((off) => score(off));

  /** @param {HeadAt} at @param {number} row */
  const weightsOf = ([stream, layer, head], row) => {
    const rows = stream === "encoder" ? pair.encoding.shares : pair.decoder.shares[/** @type {"cross" | "decoder"} */ (stream)];
    const share = rows[Number(layer)][row];
    const keys = share.length / engine.model.sizes.heads;
    return rowOf(share, head, keys);
  };
  /** @param {Matrix} values */
  const top = (values) => values.reduce((best, value, at) => (value > values[best] ? at : best), 0);

  /** The link of a head with the largest effect, if any has one. @param {Claim} claim @returns {Claim} */
  function withLink(claim) {
    const [stream, layer, head] = claim.at;
    const rows = new Set(tokens.filter(([side]) => side === SIDES[stream][0]).map(([, position]) => position));
    if (stream !== "encoder") rows.add(place);
    const links = [...rows].sort((one, other) => one - other).map((row) => /** @type {[number, number]} */ ([row, top(weightsOf(claim.at, row))]));
    const losses = links.map(([row, key]) => full - score({ ...NOTHING, links: [[stream, layer, head, row, key]] })).map((one) => (Number.isFinite(one) ? one : -Infinity));
    const best = losses.indexOf(Math.max(...losses));
    if (!links.length || losses[best] < LITTLE) return claim;
    return { ...claim, ...describeLink(claim.at, links[best]), linkEffect: losses[best] };
  }

  /** @param {HeadAt} at @param {[number, number]} link */
  const describeLink = (at, link) => ({ link, weight: weightsOf(at, link[0])[link[1]], why: explainLink(engine, pair, [...at, ...link]) });

  /** What each head of the set does, the largest effect first. */
  async function claimHeads() {
    const order = await each(heads, (at) => ({ at, effect: trials.lostHead(at) }));
    order.sort((one, other) => other.effect - one.effect);
    /** @type {number[][]} */
    const again = [];
    for (const seed of /** @type {const} */ ([0, 1])) {
      const instead = trials.draw(seed);
      again.push(await each(order.slice(0, RESAMPLES), ({ at }) => trials.lostHead(at, instead)));
    }
    return order.map(({ at, effect }, number) => {
      const others = again.map((own) => own[number]).filter((value) => value !== undefined);
      const signs = new Set([effect, ...others].map((value) => value > 0));
      const claim = { at, effect, sure: signs.size === 1, weight: 0, linkEffect: 0 };
      return number < CARRIERS && claim.sure ? withLink(claim) : claim;
    });
  }

  /** The head with the strongest link from the answer's row that has no effect. @returns {Claim | undefined} */
  function findIdle() {
    const candidates = every.filter((at) => at[0] !== "encoder" && !heads.includes(at)).map((at) => ({ at, key: top(weightsOf(at, place)) }))
      .map(({ at, key }) => ({ at, key, weight: weightsOf(at, place)[key] })).filter(({ weight }) => weight >= STRONG)
      .sort((one, other) => other.weight - one.weight).slice(0, CARRIERS);
    for (const { at, key } of candidates) {
      const effect = trials.lostHead(at);
      if (Math.abs(effect) < LITTLE) return { at, effect, sure: true, linkEffect: NaN, ...describeLink(at, [place, key]) };
    }
    return undefined;
  }

  /** How many random changes leave as much. @param {(draw: <Item>(items: Item[], count: number) => Item[]) => Off} make @param {number} least */
  async function countAsGood(make, least) {
    const { permutation } = generator(0);
    const sets = Array.from({ length: RANDOM_SETS }, () => make((items, count) => permutation(items.length).slice(0, count).map((at) => items[at])));
    return (await each(sets, (off) => score(off))).filter((one) => one >= least).length;
  }

  /**
   * The smallest set of links of the set's heads between its tokens that keeps the answer, as
   * `features/explain/smallest.py`; null: no small one does.
   */
  async function findLinks() {
    const names = new Set(tokens.map(String));
    const rows = heads.flatMap((at) => {
      const [queries, keys] = SIDES[at[0]];
      return sides[queries].tokens.map((_, query) => {
        const visible = [...weightsOf(at, query).entries()].filter(([key, weight]) => weight && (names.has(`${keys},${key}`) || (queries === keys && key === query)));
        // Rows that the answer is read from are likelier to matter, then rows of the set's tokens.
        const rank = [!(queries === "target" && query === place), !names.has(`${queries},${query}`), -query].map(Number);
        return { row: /** @type {[...HeadAt, number]} */ ([...at, query]), rank, own: visible.map(([key]) => /** @type {[...HeadAt, number, number]} */ ([...at, query, key])) };
      });
    }).filter(({ own }) => own.length).sort(({ rank: [a, b, c] }, { rank: [x, y, z] }) => a - x || b - y || c - z);
    /** A row without a link puts out its head's mean. @param {[...HeadAt, number, number][]} some @returns {Off} */
    const only = (some) => {
      const full = rows.filter(({ own }) => own.some((link) => some.includes(link)));
      return { ...alone, rows: rows.filter((one) => !full.includes(one)).map(({ row }) => row), links: full.flatMap(({ own }) => own.filter((link) => !some.includes(link))) };
    };
    const isSmall = (/** @type {unknown[]} */ set) => set.length > 0 && set.length <= ONE_BY_ONE;
    const some = await smallestSet(rows, rows.map((_, number) => -number), (few) => trial(only(few.flatMap(({ own }) => own))), enough);
    const choices = isSmall(some) ? some.flatMap(({ own }) => own) : [];
    const links = await smallestSet(choices, choices.map(([stream, layer, head, query, key]) => weightsOf([stream, layer, head], query)[key]), (few) => trial(only(few)), enough);
    if (!isSmall(links)) return null;
    const every = rows.flatMap(({ own }) => own);
    const [withLinks, withoutLinks] = [only(links), { ...NOTHING, links }].map((off) => score(off));
    const asGood = await countAsGood((draw) => only(draw(every, links.length)), withLinks);
    return { links, total: every.length, keptShare: (withLinks - none) / span, removedShare: (withoutLinks - none) / span, asGood };
  }

  const claims = await claimHeads();
  const asGood = heads.length ? await countAsGood((draw) => keep(draw(every, heads.length), draw(all, tokens.length)), alonePart) : 0;
  const [links, idle] = [heads.length ? await findLinks() : null, findIdle()];
  const order = [...tokens].sort((one, other) => (ofToken.get(other) ?? 0) - (ofToken.get(one) ?? 0));
  return sentencesOf({
    answer: sides.target.tokens[place + 1].text, chance: Math.exp(logs[answer]), next: engine.spell(second), nextChance: Math.exp(logs[second]), span, claims, idle, links,
    tokens: order, ofToken, all: all.length, every: every.length, others: full - others, keptShare: (alonePart - none) / span, removedShare: (otherPart - none) / span,
    chanceKept: Math.exp(alonePart), chanceRemoved: Math.exp(otherPart), asGood, randomSets: heads.length ? RANDOM_SETS : 0,
    ends: ([stream], link) => SIDES[stream].map((side, end) => labelOf(sides[side].tokens, link[end])),
    nameOf: ([side, position]) => {
      const label = `${labelOf(sides[side].tokens, position)} (${side})`;
      return label.includes(",") ? label : `${label.slice(0, -1)} ${position})`;
    },
    print: (text) => printable(engine.tokenizer.unicode, text),
  });
}

/** A token's name, with its place if the text has several. @param {{text: string}[]} tokens @param {number} position */
function labelOf(tokens, position) {
  const { text } = tokens[position];
  return tokens.filter((one) => one.text === text).length === 1 ? text : `${text}[${position}]`;
}

/** @param {number} value */
const nats = (value) => (Number.isFinite(value) ? value.toFixed(Math.abs(value) >= 0.095 ? 1 : 2).replace("-", "−").replace("−0.00", "0.00") : "not known");
/** @param {number} value */
function twoDigits(value) {
  const text = value.toFixed(2);
  const [whole, digits] = text.split(".");
  if (Number.isNaN(value)) return "–";
  if (!/^-?0$/.test(whole)) return text.slice(0, -1);
  return whole === "-0" && digits !== "00" ? `-.${digits}` : `.${digits}`;
}
/** @param {number} value */
const share = (value) => twoDigits(value).replace("-", "−");
/** @param {number} value */
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`.replace("−0.00", "+0.00");
/** @param {number} count @param {string} noun @param {number} total */
const countOf = (count, noun, total) => `${count} ${noun}${count === 1 ? "" : "s"} of ${total}`;

/**
 * Each claim in words, with the parts that it is about.
 * @param {{answer: string, chance: number, next: string, nextChance: number, span: number, claims: Claim[], idle: Claim | undefined,
 *   tokens: TokenAt[], ofToken: Map<TokenAt, number>, all: number, every: number, others: number, keptShare: number, removedShare: number,
 *   links: {links: [...HeadAt, number, number][], total: number, keptShare: number, removedShare: number, asGood: number} | null,
 *   chanceKept: number, chanceRemoved: number, asGood: number, randomSets: number, ends: (at: HeadAt, link: [number, number]) => string[],
 *   nameOf: (at: TokenAt) => string, print: (text: string) => string}} report
 * @returns {Sentence[]}
 */
function sentencesOf(report) {
  const { answer, claims, tokens, ofToken, idle } = report;
  /** @type {Sentence[]} */
  const sentences = [];
  /** @param {string} about @param {string} text @param {HeadAt[]} [heads] @param {TokenAt[]} [parts] @param {Claim} [claim] */
  const say = (about, text, heads = [], parts = [], claim) => sentences.push({
    about, text: report.print(text), link: claim?.link ? [claim.at[0], claim.at[1], String(claim.at[2]), ...claim.link] : null,
    heads: heads.map(([stream, layer, head]) => [stream, layer, String(head)]), tokens: parts,
  });
  /** @param {NonNullable<typeof report.links>} found */
  const linksLine = ({ links, total, keptShare, removedShare, asGood }) => {
    const lines = links.slice(0, MOST_LISTED).map(([stream, layer, number, ...link]) => `${report.ends([stream, layer, number], link).join(" → ")} (${head([stream, layer, number])})`);
    const [rest, one] = [links.length - lines.length, links.length === 1];
    return `${lines.join(" · ")}${rest ? ` · ${rest} more` : ""}: ${one ? "this one" : `these ${links.length}`} of ${total} keep${one ? "s" : ""} ${share(keptShare)} if all weight goes there; without ${one ? "it" : "them"} ${share(removedShare)} is left; of ${report.randomSets} random sets ${keep(asGood)} as much`;
  };
  /** @param {number} count */
  const keep = (count) => `${count || "none"} keep${count < 2 ? "s" : ""}`;
  const streams = new Set(claims.map(({ at }) => at[0]));
  const main = streams.size === 1 ? claims[0].at[0] : "";
  /** @param {HeadAt} at */
  const head = ([stream, layer, number]) => (stream === main ? `${layer}.${number}` : `${stream} ${layer}.${number}`);
  say("The model says", `"${answer}" (${twoDigits(report.chance)}); next best "${report.next}" (${twoDigits(report.nextChance)})`);
  if (!claims.length) {
    say("Decided", `by no head or token: if all heads put out their mean, log p ${report.span < 0 ? "rises" : "falls"} by ${nats(Math.abs(report.span))} nats`);
    return sentences;
  }
  const set = claims.map(({ at }) => at);
  const parts = `${countOf(set.length, "head", report.every)} and ${countOf(tokens.length, "token", report.all)}`;
  const words = `${parts} keep ${share(report.keptShare)} of what attention adds to log p (p ${twoDigits(report.chanceKept)}); without them ${share(report.removedShare)} is left (p ${twoDigits(report.chanceRemoved)}); of ${report.randomSets} random sets of these sizes ${keep(report.asGood)} as much`;
  const small = report.keptShare >= ENOUGH && set.length <= SMALL * report.every && report.asGood < LIKE_CHANCE * report.randomSets;
  if (!small) {
    say("No small set", `of heads and tokens gives this answer: ${words}`, set, tokens);
    return sentences;
  }
  const needed = tokens.filter((at) => !(/** @type {number} */ (ofToken.get(at)) < LITTLE)).slice(0, MOST_LISTED);
  const needs = [...needed.map((at) => `${report.nameOf(at)} ${nats(ofToken.get(at) ?? NaN)}`), ...(tokens.length > needed.length ? [`${tokens.length - needed.length} more`] : [])].join(" · ");
  say("It needs", `${needs ? `${needs} nats; hiding all others` : "no single token; hiding all of them"} costs ${nats(report.others)} nats`, [], tokens);
  const sure = claims.filter((claim) => claim.sure && claim.link).slice(0, LINES);
  sure.forEach((claim, number) => {
    const [from, to] = report.ends(claim.at, /** @type {[number, number]} */ (claim.link));
    const { weight, key, contrast, at_distance: usual, predicted, argument } = claim.why;
    let line = `head ${head(claim.at)} (effect ${nats(claim.effect)} nats) looks from ${from} to ${to} (weight ${twoDigits(claim.weight)}, effect ${nats(claim.linkEffect)})`;
    if (usual !== null && usual >= ALONE * weight && weight >= LEAST) line += " by position alone";
    else if (key.length) line += `, because its score is ${signed(contrast)} above the mean, of which ${key[0].writer.includes(".") ? "head " : ""}${key[0].writer} wrote ${signed(key[0].value)} into ${to}`;
    if (predicted?.[0] === answer && argument > 0) line += `; it argues for ${answer} (${signed(argument)})`;
    say(number ? "and by" : "Carried by", line, [claim.at], [], claim);
  });
  const rest = claims.filter((claim) => !sure.includes(claim));
  if (rest.length) say("The set holds", `${rest.length > 1 ? "heads" : "head"} ${rest.slice(0, MOST_LISTED).map(({ at }) => head(at)).join(" · ")} too, whose own effect is small or not clear`, rest.map(({ at }) => at));
  say("Kept alone", words, set, tokens);
  say("Its links", report.links ? linksLine(report.links) : "no small set keeps the answer", set, tokens);
  if (idle?.link) {
    const [from, to] = report.ends(idle.at, idle.link);
    say("Not involved", `head ${head(idle.at)} looks from ${from} to ${to} with weight ${twoDigits(idle.weight)} and does nothing (${nats(idle.effect)} nats)`, [idle.at], [], idle);
  }
  return sentences;
}
