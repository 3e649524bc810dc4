"""What decided an answer: the smallest set of heads and tokens that gives it, found by search.

Heads outside a set put out their mean over other texts (Wang 2022), tokens outside it are hidden. A
set is sufficient if the answer stays, and necessary if it goes without the set (DeYoung 2020).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from attnviz.analyses.effects.ablation import each_part, replacements, token_label
from attnviz.analyses.why import explain_link
from attnviz.core.answers import ENOUGH, AnswerReport, AnswersReport, HeadClaim
from attnviz.core.effects import (
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    LinkAt,
    TokenAt,
    label_of,
)
from attnviz.core.errors import AttentionError, AttnvizError
from attnviz.core.notices import merge_notices, pause

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.core.writers import LinkReport, WrittenText

    Numbers = NDArray[np.float64]

Item = TypeVar("Item")
ONE_BY_ONE = 24
"""Of so many items at most the least needed is taken away, one after another."""
DRAWN = 20
"""Random sets."""
SEEDS = (0, 1)
RESAMPLED = 8
"""Heads whose effect is measured again with other replacements."""
CARRIERS = 3
"""Heads whose link is looked for."""
LITTLE = 0.05
"""An effect below this, in nats, is none."""
STRONG = 0.5
"""The weight of a link from which on it is worth saying that it does nothing."""
FLAT = 0.1
"""Nats that attention has to add to an answer for its parts to be looked for."""
HALF = float(np.log(2))
"""Nats that an answer may lose: half of its p."""
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


class Trials:
    """A model with a text, run with everything off but some heads and tokens.

    Attributes:
        heads, tokens: all there are; labels: the tokens' names.
        runs: how many changed runs there were.
    """

    def __init__(
        self, experiment: Experiment, instead: HeadOutputs | None, against: int | None
    ) -> None:
        self.experiment, self.instead, self.against = experiment, instead, against
        attention = experiment.attention
        self.heads = [change.heads[0] for _, change in each_part(attention, "heads")]
        parts = each_part(attention, "tokens")
        self.tokens = [change.tokens[0] for _, change in parts]
        self.labels = {change.tokens[0]: part for part, change in parts}
        self.runs = 0

    def score(self, changes: Sequence[Intervention], instead: HeadOutputs | None = None) -> Numbers:
        """Log p of the answer after each change, above that of `against`; −∞: not known."""
        self.runs += len(changes)
        outputs, found = self.experiment.outputs, []
        for rows in self.experiment.run(changes, instead or self.instead):
            pause()
            total = sum(float(row[one.number]) for row, one in zip(rows, outputs, strict=True))
            if self.against is not None:
                total -= sum(float(row[self.against]) for row in rows)
            found.append(total)
        return np.nan_to_num(np.array(found, dtype=np.float64), nan=-np.inf)

    @cached_property
    def full(self) -> float:
        """The score of the whole model."""
        return float(self.score([Intervention()])[0])

    def lost_heads(self, heads: Sequence[HeadAt]) -> Numbers:
        """What the score falls by without each head; ∞: not known."""
        return self.full - self.score([Intervention(heads=(at,)) for at in heads])

    def lost_tokens(self, tokens: Sequence[TokenAt]) -> Numbers:
        """What the score falls by where each token is hidden; ∞: a row has no key left."""
        return self.full - self.score([Intervention(tokens=(at,)) for at in tokens])

    def chance(self, rows: Any) -> float:
        """P of the answer by its log p (outputs, choices)."""
        outputs = self.experiment.outputs
        return float(np.exp(sum(row[one.number] for row, one in zip(rows, outputs, strict=True))))

    def keep(self, heads: Sequence[HeadAt], tokens: Sequence[TokenAt]) -> Intervention:
        """All other heads and tokens off."""
        heads_on, tokens_on = {*heads}, {*tokens}
        return Intervention(
            heads=tuple(one for one in self.heads if one not in heads_on),
            tokens=tuple(one for one in self.tokens if one not in tokens_on),
        )


def smallest_set(
    items: Sequence[Item],
    costs: Numbers | None,
    score: Callable[[Sequence[Sequence[Item]]], Numbers],
    enough: float,
) -> list[Item]:
    """A small set of items whose score is enough, which no item can leave.

    Of many items first the shortest list of the most needed, by what each costs alone; its items
    and those of few are then taken away, the least needed first.
    """
    kept = list(items)
    if len(items) > ONE_BY_ONE and costs is not None:
        order = [items[n] for n in np.argsort(-costs, kind="stable")]
        low, high = 0, len(order)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if score([order[:middle]])[0] >= enough else (middle, high)
        kept = order[:high]
        if len(kept) > ONE_BY_ONE:
            return kept
    while kept:
        fewer = [[*kept[:n], *kept[n + 1 :]] for n in range(len(kept))]
        scores = score(fewer)
        best = int(scores.argmax())
        if scores[best] < enough:
            break
        kept = fewer[best]
    return kept


def explain_answer(
    experiment: Experiment,
    banks: Sequence[HeadOutputs],
    text: WrittenText | None,
    *,
    reference: str = "",
    against: int | None = None,
    notes: Sequence[str] = (),
) -> AnswerReport:
    """What decided an answer; heads that are off put out the mean over the `banks`.

    Sets keep `ENOUGH` of what attention adds to log p, and at least half of p.
    """
    attention, outputs = experiment.attention, experiment.outputs
    trials = Trials(experiment, replacements("mean", banks, attention), against)
    full, none = trials.full, float(trials.score([Intervention(heads=tuple(trials.heads))])[0])
    span = full - none
    enough = full - min((1 - ENOUGH) * span, HALF * len(outputs))
    heads, tokens = list[HeadAt](), list[TokenAt]()
    if span >= FLAT:
        costs = estimate_costs(trials)
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
    of_token = dict(zip(tokens, trials.lost_tokens(tokens).tolist(), strict=True))
    others = Intervention(tokens=tuple(one for one in trials.tokens if one not in tokens))
    alone = trials.keep(heads, tokens)
    without = Intervention(heads=tuple(heads), tokens=tuple(tokens))
    scores = trials.score([alone, without, others])
    kept, removed, _ = ((scores - none) / (span or np.nan)).tolist()
    before, *after = experiment.run([Intervention(), alone, without], trials.instead)
    several, first = len(outputs) > 1, outputs[0]
    second = next(int(n) for n in np.argsort(-before[0], kind="stable") if n != first.number)
    every = f"all {len(outputs)} tokens of the {attention.main.query_side}"
    shown = sorted(tokens, key=lambda one: -of_token[one])
    return AnswerReport(
        caption=f"{attention.provenance.title} · "
        + (every if several else label_of(first, attention.main.query_tokens)),
        id=attention.id,
        answer=every if several else first.name,
        chance=trials.chance(before),
        next_best=None if several else (experiment.spell(second), float(np.exp(before[0][second]))),
        against=None if against is None else experiment.spell(against),
        span=span,
        tokens=tuple(replace(trials.labels[one], effect=known(of_token[one])) for one in shown),
        all_tokens=len(trials.tokens),
        others=known(full - float(scores[2])),
        heads=claim_heads(trials, heads, tokens, banks, text),
        all_heads=len(trials.heads),
        kept=kept,
        removed=removed,
        chance_kept=trials.chance(after[0]),
        chance_removed=trials.chance(after[1]),
        as_good=count_as_good(trials, heads, tokens, float(scores[0])) if heads else 0,
        drawn=DRAWN if heads else 0,
        idle=find_idle(trials, heads, text),
        reference=reference,
        runs=trials.runs,
        notes=(*attention.provenance.notes, *notes),
        provenance=attention.provenance,
    )


def known(effect: float) -> float:
    """An effect, or NaN where a row had no key left."""
    return effect if math.isfinite(effect) else math.nan


def estimate_costs(trials: Trials) -> tuple[Numbers, Numbers] | None:
    """First-order costs of heads and of tokens, by which many are ordered; None: measure them.

    The slope of log p by each weight times the weight, summed over a head, or over a key's columns.
    """
    # Where numpy runs the model, measuring is done before torch is imported.
    few = max(len(trials.heads), len(trials.tokens)) <= ONE_BY_ONE
    if few or "torch" not in sys.modules:
        return None
    try:
        slopes = trials.experiment.gradients()
    except AttnvizError:
        return None
    heads, tokens = dict.fromkeys(trials.heads, 0.0), dict.fromkeys(trials.tokens, 0.0)
    for item, slope in zip(trials.experiment.attention.maps, slopes, strict=True):
        parts = item.weights * slope
        for place, layer in enumerate(item.layers):
            for head in range(len(item.heads)):
                at = HeadAt(item.stream, layer, head)
                if at in heads:
                    heads[at] = float(parts[place, head].sum())
        for column, total in enumerate(parts.sum(axis=(0, 1, 2)).tolist()):
            token = TokenAt(item.key_side, column)
            if token in tokens:
                tokens[token] += total
    return np.array([*heads.values()]), np.array([*tokens.values()])


def count_as_good(
    trials: Trials, heads: Sequence[HeadAt], tokens: Sequence[TokenAt], score: float
) -> int:
    """How many random sets of these sizes have such a score."""
    drawn = np.random.default_rng(0)

    def draw(items: Sequence[Item], count: int) -> list[Item]:
        return [items[n] for n in drawn.permutation(len(items))[:count]]

    sizes = len(heads), len(tokens)
    sets = [(draw(trials.heads, sizes[0]), draw(trials.tokens, sizes[1])) for _ in range(DRAWN)]
    return int((trials.score([trials.keep(*one) for one in sets]) >= score).sum())


def claim_heads(
    trials: Trials,
    heads: Sequence[HeadAt],
    tokens: Sequence[TokenAt],
    banks: Sequence[HeadOutputs],
    text: WrittenText | None,
) -> tuple[HeadClaim, ...]:
    """What each head of a set does, the largest effect first; of the first ones by which link."""
    effects = dict(zip(heads, trials.lost_heads(heads).tolist(), strict=True))
    order, again = sorted(heads, key=lambda at: -effects[at]), []
    for seed in SEEDS:
        drawn = replacements("resample", banks, trials.experiment.attention, seed)
        again.append(
            trials.full
            - trials.score([Intervention(heads=(at,)) for at in order[:RESAMPLED]], drawn)
        )
    claims = []
    for number, at in enumerate(order):
        resampled = tuple(float(one[number]) for one in again if number < RESAMPLED)
        claim = HeadClaim(at, effects[at], resampled)
        if number < CARRIERS and claim.is_sure:
            claim = _with_link(trials, claim, tokens, text)
        claims.append(claim)
    return tuple(claims)


def _with_link(
    trials: Trials,
    claim: HeadClaim,
    tokens: Sequence[TokenAt],
    text: WrittenText | None,
) -> HeadClaim:
    """The claim with the head's link that has the largest effect.

    Tried is the strongest link of each row that is read off, or that stands for a token of the set.
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
    lost = trials.full - trials.score(cuts)
    lost = np.where(np.isfinite(lost), lost, -np.inf)
    best = int(lost.argmax())
    if lost[best] < LITTLE:
        return claim
    query, key = links[best]
    return replace(
        claim,
        link=(query, key),
        ends=(token_label(item.query_tokens, query), token_label(item.key_tokens, key)),
        weight=float(weights[query, key]),
        link_effect=float(lost[best]),
        why=_why(text, at, links[best]),
    )


def _why(text: WrittenText | None, at: HeadAt, link: tuple[int, int] | None) -> LinkReport | None:
    """Why a head looks there; None where the model's scores cannot be taken apart."""
    if text is None or link is None:
        return None
    try:
        return explain_link(text, at, link)
    except AttentionError:
        return None


def find_idle(
    trials: Trials, heads: Sequence[HeadAt], text: WrittenText | None
) -> HeadClaim | None:
    """The head with the strongest link from the answer's row that has no effect."""
    attention, output = trials.experiment.attention, trials.experiment.outputs[0]
    found = []
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
            found.append(HeadClaim(at, math.nan, (), link, ends, float(row[key])))
    found = sorted(found, key=lambda one: -one.weight)[:CARRIERS]
    for one, effect in zip(found, trials.lost_heads([claim.at for claim in found]), strict=True):
        if abs(effect) < LITTLE:
            return replace(one, effect=float(effect), why=_why(text, one.at, one.link))
    return None


def sum_up(answers: Sequence[AnswerReport]) -> AnswersReport:
    """Which heads are in the sets of several answers."""
    found: dict[HeadAt, list[float]] = {}
    for answer in answers:
        for claim in answer.heads if answer.is_small else ():
            found.setdefault(claim.at, []).append(claim.effect)
    heads = [(at, len(own), float(np.mean(own))) for at, own in found.items()]
    return AnswersReport(
        answers=tuple(answers),
        heads=tuple(sorted(heads, key=lambda one: (-one[1], -one[2]))),
        small=sum(answer.is_small for answer in answers),
        notes=merge_notices(note for answer in answers for note in answer.notes),
        provenance=answers[0].provenance,
    )
