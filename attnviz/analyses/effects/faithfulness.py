"""How faithful each lens is: its scores of tokens beside what hiding the tokens really changes.

A token is hidden as a key from all queries but its own, in every head and layer (attention
knockout, Geva 2023, EMNLP), which changes log p of the outputs by so many nats. A lens is judged
by the rank correlation (Spearman) of the size of its scores with the size of these changes: sizes
against sizes, since all lenses but one have no sign; and by comprehensiveness and sufficiency
(ERASER, DeYoung 2020, ACL, section 4; here differences of log p in nats, not of p): what is lost
where the tokens that it ranks highest are hidden, and where they alone are kept. For these a signed
lens ranks by value, the supporting tokens first, as the paper does.

Scores of the source's and the target's tokens have no common scale in most lenses, so each side is
ranked by itself: correlations are the mean over sides, and shares are of each side's tokens, one at
least. Special tokens count like others; those that no output sees are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.effects.links import effects_of, rank_correlation
from attnviz.analyses.lenses.effect import effects_of_maps
from attnviz.analyses.lenses.flow import flows
from attnviz.analyses.lenses.layered import layered
from attnviz.analyses.measures.intervals import means_over
from attnviz.core.attention_map import Attention, AttentionMap, Provenance
from attnviz.core.effects import (
    LENS_MEASURES,
    LENS_SHARES,
    RANDOM,
    Intervention,
    LensReport,
    LensRow,
    TokenAt,
)
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError, in_words
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.notices import merged
from attnviz.core.plugins import INTERRUPTIONS
from attnviz.core.registry import LENSES

DRAWS = 10
"""Random scores of a text, over which the baseline's measures are averaged."""
MOST_FLOWS = 10**7
"""Maximum-flow problems of one text, times the links of each, at most."""
MOST_HIDDEN = 200
"""Tokens of one text at most."""
TRUSTED = 0.5
"""The rank correlation above which a lens ranks tokens much as hiding them does."""
RULE = (
    f"trusted: the interval of the rank correlation lies above {TRUSTED} and above that of random "
    "scores; not: it lies below, or is not above that of random scores; else these texts do not "
    "decide"
)

Numbers = NDArray[np.float64]
Scores = dict[str, Numbers]
"""A number for each token, by side."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """What each lens says of each token of a text that can be hidden.

    Attributes:
        scores: of each lens that applies, shape (tokens,); those of a signed lens may be below 0.
        left_out: why each other lens does not apply.
    """

    explained: AttentionGradients
    tokens: tuple[TokenAt, ...]
    scores: dict[str, Numbers]
    left_out: dict[str, str]

    def correlation(self, scores: Numbers, knocked: Numbers) -> float:
        """The rank correlation of sizes, the mean over sides that have one."""
        sides = np.array([token.side for token in self.tokens])
        pairs = ((abs(scores)[own], abs(knocked)[own]) for own in (sides == s for s in set(sides)))
        found = [rank_correlation(*pair) for pair in pairs]
        known = [one for one in found if np.isfinite(one)]
        return float(np.mean(known)) if known else float("nan")

    def hidden(self, scores: Numbers) -> list[tuple[TokenAt, ...]]:
        """For each share the tokens that are ranked highest, then for each all the others."""
        tops = []
        for share in LENS_SHARES:
            top = set[int]()
            for side in dict.fromkeys(token.side for token in self.tokens):
                own = [place for place, token in enumerate(self.tokens) if token.side == side]
                own.sort(key=lambda place: -scores[place])
                top.update(own[: max(1, round(share / 100 * len(own)))])
            tops.append(top)
        return [
            tuple(token for place, token in enumerate(self.tokens) if (place in top) == first)
            for first in (True, False)
            for top in tops
        ]


def token_scores(explained: AttentionGradients, values: Callable[[], ValueVectors]) -> TokenScores:
    """What each lens says of each token, of the outputs that an experiment explains."""
    # The rows that outputs are read from: a class may hang on the first, the last or all.
    last = explained.gradients[0][-1]
    rows = np.flatnonzero(np.any(last != 0, axis=(0, 2))).tolist() or [*range(last.shape[1])]
    explained = replace(explained, positions=tuple(rows))
    tokens = tuple(_seen(explained.attention, max(rows)))
    scores, left_out = dict[str, Numbers](), dict[str, str]()
    for lens in ("raw", *LENSES):
        try:
            found = _scores(lens, explained, values)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            plugin = lens in LENSES and LENSES[lens].package
            if not (plugin or isinstance(error, UsageError | ModelError | AttentionError)):
                raise
            left_out[lens] = str(error)
            continue
        scores[lens] = np.array([found[token.side][token.position] for token in tokens])
    return TokenScores(explained, tokens, scores, left_out)


def _seen(attention: Attention, last: int) -> list[TokenAt]:
    """The tokens that some other token looks at before the last row that is explained."""
    found: dict[str, NDArray[np.bool_]] = {}
    side = attention.main.query_side
    ahead = any(
        np.triu(item.weights.max(axis=(0, 1)), 1).any()
        for item in attention.maps
        if item.query_side == item.key_side == side
    )
    for item in attention.maps:
        looks = _others(item, item.weights.max(axis=(0, 1))) > 0
        looks = looks if ahead or item.query_side != side else looks[: last + 1]
        seen = looks.any(axis=0)
        found[item.key_side] = found.get(item.key_side, np.zeros_like(seen)) | seen
    return [TokenAt(name, int(at)) for name, own in found.items() for at in np.flatnonzero(own)]


def _others(item: AttentionMap, matrix: NDArray[Any]) -> NDArray[Any]:
    """The cells (…, queries, keys) with 0 where a token looks at itself: that is never hidden."""
    if item.query_side != item.key_side:
        return matrix
    own: NDArray[Any] = np.where(np.eye(*matrix.shape[-2:], dtype=np.bool_), 0, matrix)
    return own


def _scores(lens: str, explained: AttentionGradients, values: Callable[[], ValueVectors]) -> Scores:
    """A lens' score of each token, as good a one as it has.

    Effects: the sum over all links to the token, in every stream, layer and head, which to first
    order is what hiding it changes. Of the others what the rows that are explained give to it, the
    mean over them, without what a token gives to itself: raw weights and norms as the mean over
    layers and heads, the rollout after the last layer, the flow to either side's inputs, and the
    gradient lens' row. The source's tokens are seen by cross-attention, the target's by its own.
    """
    attention, rows = explained.attention, list(explained.positions)
    needs = "weights" if lens == "raw" else LENSES[lens].needs
    if needs == "effects":
        found: Scores = {}
        for item, every in zip(attention.maps, effects_of_maps(explained), strict=True):
            links = _others(item, every)
            found[item.key_side] = found.get(item.key_side, 0.0) + np.nansum(links, axis=(0, 1, 2))
        return found
    if lens == "flow":
        return _flows(attention, rows)
    given: Any = {"weights": attention, "gradients": explained}.get(needs) or values()
    seen: Attention = given if lens == "raw" else LENSES[lens].load()(given)
    found = {}
    for side, length in {item.key_side: len(item.key_tokens) for item in attention.maps}.items():
        first = next(item for item in seen.maps if item.key_side == side)
        items = [item for item in seen.maps if item.stream == first.stream]
        layers = np.concatenate([item.weights.mean(axis=1, dtype=np.float64) for item in items])
        matrix = layers[-1] if lens == "rollout" else layers.mean(axis=0)
        if first.query_side != "output":
            matrix = _others(first, matrix)[rows]
        found[side] = np.pad(matrix.mean(axis=0), (0, length - matrix.shape[1]))
    return found


def _flows(attention: Attention, rows: list[int]) -> Scores:
    graph, own = layered(attention), attention.main.query_side
    sides = {item.key_side: len(item.key_tokens) for item in attention.maps}
    solves = len(rows) * sum(sides.values())
    links = sum(
        part.size for part in (graph.within, graph.across, graph.source) if part is not None
    )
    if solves * links > MOST_FLOWS:
        raise UsageError(
            f"flow would solve {solves:,} maximum-flow problems of {links:,} links each: shorten "
            "the text"
        )
    found = {side: flows(graph, rows, own=side == own) for side in sides}
    found[own][range(len(rows)), rows] = 0
    return {side: matrix.mean(axis=0) for side, matrix in found.items()}


def rank_correlations(found: TokenScores) -> dict[str, float]:
    """Each lens' rank correlation with the knockout, from a run a token."""
    knocked = _lost(found, [(one,) for one in found.tokens])
    return {lens: found.correlation(scores, knocked) for lens, scores in found.scores.items()}


def _lost(found: TokenScores, hidden: Sequence[tuple[TokenAt, ...]]) -> Numbers:
    """What hiding each set of tokens takes from log p of all outputs, in nats."""
    experiment = found.explained.experiment
    assert experiment is not None
    lost: Numbers = effects_of(experiment, [Intervention(tokens=one) for one in hidden]).sum(axis=1)
    return lost


@dataclass(frozen=True, slots=True, eq=False)
class TextFaithfulness:
    """How faithful the lenses are on one text.

    Attributes:
        output: what is explained.
        tokens: each token with what hiding it takes from log p, and what each lens says of it.
        measures: for each lens that applies, and for random scores, its `LENS_MEASURES`.
        left_out: why each other lens does not apply.
    """

    output: str
    tokens: tuple[Mapping[str, str | int | float], ...]
    measures: dict[str, Numbers]
    left_out: dict[str, str]
    provenance: Provenance


def faithfulness(found: TokenScores, seed: int = 0) -> TextFaithfulness:
    """How faithful each lens is on one text, from one batch of runs with tokens hidden.

    Raises:
        InputError: the text is too long for a run a token.
    """
    if len(found.tokens) > MOST_HIDDEN:
        raise InputError(
            f"the text has {len(found.tokens)} tokens to hide, each in a run of its own, more than "
            f"{MOST_HIDDEN}: shorten it"
        )
    draws = np.random.default_rng(seed).random((DRAWS, len(found.tokens)))
    ranked = {**{lens: [scores] for lens, scores in found.scores.items()}, RANDOM: [*draws]}
    hidden = {lens: [found.hidden(one) for one in several] for lens, several in ranked.items()}
    sets: list[tuple[TokenAt, ...]] = [(one,) for one in found.tokens]
    sets += [one for several in hidden.values() for shares in several for one in shares]
    sets = list(dict.fromkeys(sets))
    lost = dict(zip(sets, _lost(found, sets).tolist(), strict=True))
    knocked = np.array([lost[one,] for one in found.tokens])
    measures = {}
    for lens, several in ranked.items():
        rows = [
            [found.correlation(scores, knocked), *(lost[one] for one in shares)]
            for scores, shares in zip(several, hidden[lens], strict=True)
        ]
        measures[lens] = np.mean(rows, axis=0)
    attention = found.explained.attention
    words = {one.key_side: one.key_tokens for one in attention.maps}
    tokens: tuple[dict[str, str | int | float], ...] = tuple(
        {
            "side": token.side,
            "position": token.position,
            "token": words[token.side][token.position].text,
            "knock_out": float(knocked[place]),
            **{lens: float(scores[place]) for lens, scores in found.scores.items()},
        }
        for place, token in enumerate(found.tokens)
    )
    output = found.explained.output
    return TextFaithfulness(output, tokens, measures, found.left_out, attention.provenance)


def lens_report(texts: Sequence[TextFaithfulness]) -> LensReport:
    """The means over texts with their intervals, the lens of the highest correlation first."""
    *rows, random = [_row(lens, texts) for lens in ("raw", *LENSES, RANDOM)]
    rows.sort(key=lambda row: -np.nan_to_num(row.mean[0], nan=-2))
    first, several = texts[0], len(texts) > 1
    told = f"mean over {len(texts)} texts" if several else f"log p of {first.output}"
    return LensReport(
        f"{first.provenance.title} · {told}",
        (*rows, random),
        conclusion(rows, random, len(texts)),
        RULE,
        len(texts),
        () if several else first.tokens,
        replace(
            first.provenance, notes=merged(one for text in texts for one in text.provenance.notes)
        ),
    )


def _row(lens: str, texts: Sequence[TextFaithfulness]) -> LensRow:
    values = np.array([text.measures[lens] for text in texts if lens in text.measures])
    reasons = [text.left_out[lens] for text in texts if lens in text.left_out]
    why = reasons[0] if reasons else ""
    if reasons and len(values):
        why = f"in {len(reasons)} of {len(texts)} texts: {why}"
    count, mean, low, high = means_over(values.reshape(-1, len(LENS_MEASURES)))
    low[0], high[0] = np.clip((low[0], high[0]), -1, 1)
    ends = [tuple(one.tolist()) for one in (mean, low, high)]
    return LensRow(lens, ends[0], ends[1], ends[2], int(count[0]), why)


def conclusion(rows: Sequence[LensRow], random: LensRow, texts: int) -> str:
    """Which lenses can be trusted for a model and texts, by `RULE`; of one text a hint only."""
    known = [row for row in rows if np.isfinite(row.mean[0])]
    if not known:
        return "no lens can be judged: too few tokens can be hidden"
    if texts == 1:
        like = [row.lens for row in known if row.mean[0] > TRUSTED]
        unlike = [row.lens for row in known if row.mean[0] <= TRUSTED]
        said = f"the rank correlation of {in_words(like, 'and')} is above {TRUSTED}" if like else ""
        said += f", that of {in_words(unlike, 'and')} is not" if like and unlike else ""
        said = said or f"no rank correlation is above {TRUSTED}"
        return f"one text decides little; here {said}"
    trusted = [r.lens for r in known if r.low[0] > max(TRUSTED, random.high[0])]
    doubted = [r.lens for r in known if r.high[0] < TRUSTED or r.low[0] <= random.high[0]]
    others = [row.lens for row in known if row.lens not in (*trusted, *doubted)]
    cannot = "cannot" if trusted else "cannot be trusted"
    parts = [
        before + in_words(names, "and") + behind
        for before, names, behind in (
            ("", trusted, " can be trusted"),
            ("", doubted, f" {cannot}"),
            ("of ", others, " these texts do not decide"),
        )
        if names
    ]
    return f"for this model and these texts {', '.join(parts)}"
