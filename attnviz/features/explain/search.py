"""What decided an answer: the smallest sets of parts that give it, each claim about them measured.

A set is sufficient if the answer stays, and necessary if it goes without the set (DeYoung 2020).
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from attnviz.core import errors, notices, writers
from attnviz.core.effects import (
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    LinkAt,
    TokenAt,
    label_of,
)
from attnviz.core.tokens import token_label
from attnviz.features.ablate.parts import replacements
from attnviz.features.explain.report import ENOUGH, LITTLE, AnswerReport, AnswersReport, HeadClaim
from attnviz.features.explain.smallest import Trials, estimate_costs, smallest_links, smallest_set
from attnviz.features.writers.links import explain_link
from attnviz.features.writers.report import LinkReport

SEEDS = (0, 1)
RESAMPLED = 8  # heads whose effect is measured again with other replacements
CARRIERS = 3  # heads whose link is looked for
STRONG = 0.5  # the weight of a link from which on it is worth saying that it does nothing
FLAT = 0.1  # nats that attention has to add to an answer for its parts to be looked for
HALF = float(np.log(2))  # nats that an answer may lose: half of its p
REFERENCE = (
    "The cat sat on the mat.",
    "He closed the door and left without a word.",
    "We went to the market to buy some bread.",
    "The children are playing in the garden.",
    "I don't know what you want from me.",
    "Tomorrow it will rain all day.",
    "My brother works in a hospital.",
    "They have lived here for ten years.",
    "Can you tell me where the station is?",
    "The old man told us a long story.",
    "Nobody knew the answer to the question.",
    "The book that you gave me is very good.",
    "She has two dogs and a cat.",
    "The train leaves at seven in the morning.",
    "I would like a cup of coffee, please.",
    "It was the best day of my life.",
)
"""Sentences whose mean heads put out, if the user names none."""


def explain_answer(
    experiment: Experiment,
    references: Sequence[HeadOutputs],
    text: writers.WrittenText | None,
    *,
    reference: str = "",
    against: int | None = None,
    notes: Sequence[str] = (),
) -> AnswerReport:
    """What decided an answer; heads that are off put out their mean over `references`.

    Sets keep `ENOUGH` of what attention adds to log p, and at least half of p.
    """
    attention, outputs = experiment.attention, experiment.outputs
    trials = Trials(experiment, replacements("mean", references, attention), against)
    costs = estimate_costs(trials)  # first: the graph of the unchanged pass is still there
    full, none = trials.full, float(trials.score([Intervention(heads=tuple(trials.heads))])[0])
    span = full - none
    enough = full - min((1 - ENOUGH) * span, HALF * len(outputs))
    heads, tokens = list[HeadAt](), list[TokenAt]()
    if span >= FLAT:
        heads = smallest_set(
            *(trials.heads, costs[0] if costs else trials.lost_heads(trials.heads)),
            lambda sets: trials.score([trials.keep(one, trials.tokens) for one in sets]),
            enough,
        )
        tokens = smallest_set(
            *(trials.tokens, costs[1] if costs else trials.lost_tokens(trials.tokens)),
            lambda sets: trials.score([trials.keep(heads, one) for one in sets]),
            enough,
        )
    rest = Intervention(tokens=tuple(one for one in trials.tokens if one not in tokens))
    off = Intervention(heads=tuple(heads), tokens=tuple(tokens))
    idle = strong_links(trials, heads)
    singles = [Intervention(heads=(at,)) for at in (*heads, *(one.at for one in idle[:1]))]
    singles += [Intervention(tokens=(at,)) for at in tokens]
    # What is asked for below runs together here.
    alone, without, others, *_ = trials.run([trials.keep(heads, tokens), off, rest, *singles])
    of_token = dict(zip(tokens, trials.lost_tokens(tokens).tolist(), strict=True))
    keeps, lacks = ((trials.total(rows) - none) / (span or np.nan) for rows in (alone, without))

    def draw(generator: np.random.Generator) -> Intervention:
        sizes = ((trials.heads, len(heads)), (trials.tokens, len(tokens)))
        some = ([own[n] for n in generator.permutation(len(own))[:size]] for own, size in sizes)
        return trials.keep(*some)

    several, first, before = len(outputs) > 1, outputs[0], trials.unchanged_choices
    order = (int(n) for n in np.argsort(-before[0], kind="stable") if n != first.number)
    second = None if several else next(order, None)
    every = f"all {len(outputs)} tokens of the {attention.main.query_side}"
    in_order = sorted(tokens, key=lambda one: -of_token[one])
    return AnswerReport(
        caption=f"{attention.provenance.title} · "
        + (every if several else label_of(first, attention.main.query_tokens)),
        id=attention.id,
        answer=every if several else first.name,
        chance=trials.chance(before),
        next_best=None
        if second is None
        else (experiment.spell(second), float(np.exp(before[0][second]))),
        against=None if against is None else experiment.spell(against),
        span=span,
        tokens=tuple(
            replace(trials.labels[n], effect=loss_as_effect(of_token[n])) for n in in_order
        ),
        all_tokens=len(trials.tokens),
        others=loss_as_effect(full - trials.total(others)),
        heads=claim_heads(trials, heads, tokens, references, text),
        all_heads=len(trials.heads),
        kept=keeps,
        removed=lacks,
        chance_kept=trials.chance(alone),
        chance_removed=trials.chance(without),
        as_good=trials.count_as_good(draw, trials.total(alone)) if heads else 0,
        drawn=trials.draws if heads else 0,
        links=smallest_links(trials, heads, tokens, none, enough) if heads else None,
        idle=find_idle(trials, idle),
        reference=reference,
        runs=trials.runs,
        notes=(*attention.provenance.notes, *notes),
        provenance=attention.provenance,
    )


def loss_as_effect(effect: float) -> float:
    """A loss as an effect; NaN if a row had no key left."""
    return effect if math.isfinite(effect) else math.nan


def claim_heads(
    trials: Trials,
    heads: Sequence[HeadAt],
    tokens: Sequence[TokenAt],
    references: Sequence[HeadOutputs],
    text: writers.WrittenText | None,
) -> tuple[HeadClaim, ...]:
    """What each head of a set does, largest effect first; for the first ones also which link."""
    effects = dict(zip(heads, trials.lost_heads(heads).tolist(), strict=True))
    order, again = sorted(heads, key=lambda at: -effects[at]), []
    for seed in SEEDS:
        others = replacements("resample", references, trials.experiment.attention, seed)
        off = [Intervention(heads=(at,)) for at in order[:RESAMPLED]]
        again.append(trials.full - np.array([*map(trials.total, trials.run(off, others))]))
    claims = []
    for number, at in enumerate(order):
        repeats = tuple(float(one[number]) for one in again if number < RESAMPLED)
        claim = HeadClaim(at, effects[at], repeats)
        if number < CARRIERS and claim.is_sure:
            claim = _with_link(trials, claim, tokens, text)
        claims.append(claim)
    return tuple(claims)


def _with_link(
    trials: Trials, claim: HeadClaim, tokens: Sequence[TokenAt], text: writers.WrittenText | None
) -> HeadClaim:
    """The claim with the head's link that has the largest effect.

    Only the strongest link of each predicting row, or of each token of the set, is measured.
    """
    at, attention = claim.at, trials.experiment.attention
    item = attention.map_of(at.stream)
    weights = item.weights[item.layers.index(at.layer), at.head]
    rows = {one.position for one in tokens if one.side == item.query_side}
    if item.query_side == attention.main.query_side:
        rows |= {one.row for one in trials.experiment.outputs}
    links = [(row, int(weights[row].argmax())) for row in sorted(rows) if row < len(weights)]
    if not links:
        return claim
    cuts = [Intervention(links=(LinkAt(at.stream, *link, at.layer, at.head),)) for link in links]
    losses = trials.full - trials.score(cuts)
    losses = np.where(np.isfinite(losses), losses, -np.inf)
    best = int(losses.argmax())
    if losses[best] < LITTLE:
        return claim
    query, key = links[best]
    return replace(
        claim,
        link=(query, key),
        ends=(token_label(item.query_tokens, query), token_label(item.key_tokens, key)),
        weight=float(weights[query, key]),
        link_effect=float(losses[best]),
        why=reasons_of(text, at, links[best]),
    )


def reasons_of(
    text: writers.WrittenText | None, at: HeadAt, link: tuple[int, int] | None
) -> LinkReport | None:
    """Why a head looks there; None if the parts of the model's scores are not known."""
    with suppress(errors.AttentionError):
        return None if text is None or link is None else explain_link(text, at, link)
    return None


def strong_links(trials: Trials, heads: Sequence[HeadAt]) -> list[HeadClaim]:
    """The strongest links from the answer's row, each of another head than these."""
    attention, output = trials.experiment.attention, trials.experiment.outputs[0]
    claims = list[HeadClaim]()
    for at in trials.heads:
        item = attention.map_of(at.stream)
        same = item.query_side == attention.main.query_side and len(trials.experiment.outputs) == 1
        if not same or at in heads:
            continue
        row = item.weights[item.layers.index(at.layer), at.head, output.row]
        key = int(row.argmax())
        if row[key] >= STRONG:
            ends = token_label(item.query_tokens, output.row), token_label(item.key_tokens, key)
            link = (output.row, key)
            claims.append(HeadClaim(at, math.nan, (), link, ends, float(row[key])))
    return sorted(claims, key=lambda one: -one.weight)[:CARRIERS]


def find_idle(trials: Trials, strong: Sequence[HeadClaim]) -> HeadClaim | None:
    """The first of some heads with strong links that has no effect."""
    for one in strong:
        (effect,) = trials.lost_heads([one.at])
        if abs(effect) < LITTLE:
            return replace(one, effect=float(effect))
    return None


def sum_up(answers: Sequence[AnswerReport]) -> AnswersReport:
    """Which heads are in the sets of several answers, and in how many."""
    by_head: dict[HeadAt, list[float]] = {}
    for answer in answers:
        for claim in answer.heads if answer.is_small else ():
            by_head.setdefault(claim.at, []).append(claim.effect)
    heads = [(at, len(own), float(np.mean(own))) for at, own in by_head.items()]
    return AnswersReport(
        answers=tuple(answers),
        heads=tuple(sorted(heads, key=lambda one: (-one[1], -one[2]))),
        small=sum(answer.is_small for answer in answers),
        notes=notices.merge_notices(note for answer in answers for note in answer.notes),
        provenance=answers[0].provenance,
    )
