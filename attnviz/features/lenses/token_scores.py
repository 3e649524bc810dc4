"""Scores of tokens by every lens of one text, beside what hiding each token costs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.effects import Intervention, TokenAt, effects_of
from attnviz.core.errors import AttentionError, ModelError, UsageError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors, rows_read
from attnviz.core.plugins import INTERRUPTIONS
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import LENSES
from attnviz.core.writers import AskedLogits
from attnviz.features.lenses import effect, layered, rollout
from attnviz.features.measures.intervals import rank_correlation

LENS_SHARES = (10, 20, 50)  # per cent of a side's tokens to hide, or to keep
DIGITS = 5  # scores equal to this many decimals share a rank: the rest is float32 rounding
MOST_FLOWS = 10**7  # most maximum-flow problems of one text, times the links of each
MOST_HIDDEN = 200  # most tokens of one text
Numbers = NDArray[np.float64]
Scores = dict[str, Numbers]  # a number for each token, by side


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """Each lens' scores of the tokens that can be hidden."""

    inputs: AttentionGradients
    tokens: tuple[TokenAt, ...]
    scores: dict[str, Numbers]  # scores by lens, shape (tokens,); a signed lens has scores below 0
    left_out: dict[str, str]  # the reason by lens that does not apply

    def correlation(self, scores: Numbers, losses: Numbers) -> float:
        """The mean over sides of the rank correlation of sizes."""
        sides = np.array([token.side for token in self.tokens])
        sizes = abs(scores).round(DIGITS)
        pairs = ((sizes[own], abs(losses)[own]) for own in (sides == s for s in set(sides)))
        by_side = [rank_correlation(*pair) for pair in pairs]
        numbers = [one for one in by_side if np.isfinite(one)]
        return float(np.mean(numbers)) if numbers else float("nan")

    def sets_to_hide(self, scores: Numbers) -> list[tuple[TokenAt, ...]]:
        """For each share the tokens that rank highest, then for each share all other tokens."""
        scores, tops = scores.round(DIGITS), []
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


def token_scores(
    inputs: AttentionGradients,
    values: Callable[[], ValueVectors],
    logits: Callable[[], AskedLogits],
) -> TokenScores:
    """Each lens' scores of the tokens, for the outputs that the experiment explains."""
    rows = rows_read(inputs.gradients[0][-1])
    inputs = replace(inputs, positions=rows)
    tokens = tuple(_visible_tokens(inputs.attention, max(rows)))
    scores, left_out = dict[str, Numbers](), dict[str, str]()
    for lens in ("raw", *LENSES):
        try:
            by_side = _scores(lens, inputs, values, logits)
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a plug-in may raise SystemExit too
            plugin = lens in LENSES and LENSES[lens].package
            if not (plugin or isinstance(error, UsageError | ModelError | AttentionError)):
                raise
            left_out[lens] = str(error)
            continue
        scores[lens] = np.array([by_side[token.side][token.position] for token in tokens])
    return TokenScores(inputs, tokens, scores, left_out)


def _visible_tokens(attention: Attention, last: int) -> list[TokenAt]:
    """The tokens that another token attends to, in the rows up to the last explained one."""
    by_side: dict[str, NDArray[np.bool_]] = {}
    side = attention.main.query_side
    ahead = any(
        np.triu(item.weights.max(axis=(0, 1)), 1).any()
        for item in attention.maps
        if item.query_side == item.key_side == side
    )
    for item in attention.maps:
        looks = _others(item, item.weights.max(axis=(0, 1))) > 0
        looks = looks if ahead or item.query_side != side else looks[: last + 1]
        columns = looks.any(axis=0)
        by_side[item.key_side] = by_side.get(item.key_side, np.zeros_like(columns)) | columns
    return [TokenAt(name, int(at)) for name, own in by_side.items() for at in np.flatnonzero(own)]


def _others(item: AttentionMap, matrix: NDArray[Any]) -> NDArray[Any]:
    """The cells (…, queries, keys), 0 where a token attends to itself: that is never hidden."""
    if item.query_side != item.key_side:
        return matrix
    return np.asarray(np.where(np.eye(*matrix.shape[-2:], dtype=np.bool_), 0, matrix))


def _scores(
    lens: str,
    inputs: AttentionGradients,
    values: Callable[[], ValueVectors],
    logits: Callable[[], AskedLogits],
) -> Scores:
    """The score of each token by one lens.

    Effects are summed over all links to the token, which to first order is the effect of hiding it;
    so are parts of logits.
    Other lenses give the mean over the explained rows, without a token's link to itself: raw
    weights and norms as means over layers and heads, the rollout after the last layer, the flow to
    the inputs, and the row of the gradient lens.
    """
    attention, rows = inputs.attention, list(inputs.positions)
    needs = "weights" if lens == "raw" else LENSES[lens].needs
    if needs in ("effects", "writers"):
        totals: Scores = {}
        cells = effect.effects_of_maps(inputs)
        if needs == "writers":
            cells = iter(_logit_cells(lens, inputs, logits()))
        for item, every in zip(attention.maps, cells, strict=True):
            links = _others(item, every)
            sums = np.nansum(links, axis=(0, 1, 2))
            totals[item.key_side] = totals.get(item.key_side, 0.0) + sums
        return totals
    if lens == "flow":
        return _flows(attention, rows)
    lens_input: Any = {"weights": attention, "gradients": inputs}.get(needs) or values()
    through: Attention = lens_input if lens == "raw" else LENSES[lens].load()(lens_input)
    totals = {}
    for side, length in {item.key_side: len(item.key_tokens) for item in attention.maps}.items():
        first = next(item for item in through.maps if item.key_side == side)
        items = [item for item in through.maps if item.stream == first.stream]
        layers = np.concatenate([item.weights.mean(axis=1, dtype=np.float64) for item in items])
        matrix = layers[-1] if lens == "rollout" else layers.mean(axis=0)
        if first.query_side != "output":
            matrix = _others(first, matrix)[rows]
        totals[side] = np.pad(matrix.mean(axis=0), (0, length - matrix.shape[1]))
    return totals


def _logit_cells(
    lens: str, inputs: AttentionGradients, logits: AskedLogits
) -> list[NDArray[np.float64]]:
    """What each link adds to the logits of the explained outputs, an array for each map."""
    if logits.attention.main.query_tokens != inputs.attention.main.query_tokens:
        raise UsageError(f"lens {lens} reads the whole text, and here a word is masked")
    outputs = inputs.experiment.outputs if inputs.experiment else ()
    choices = {one.row: one.number for one in outputs} or logits.choices
    lens_maps: Attention = LENSES[lens].load()(replace(logits, choices=choices))
    return [lens_maps.map_of(item.stream).weights.astype(float) for item in inputs.attention.maps]


def _flows(attention: Attention, rows: list[int]) -> Scores:
    graph, own = layered.layer_graph(attention), attention.main.query_side
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
    by_side = {side: rollout.flows(graph, rows, own=side == own) for side in sides}
    by_side[own][range(len(rows)), rows] = 0
    return {side: matrix.mean(axis=0) for side, matrix in by_side.items()}


def rank_correlations(text: TokenScores) -> dict[str, float]:
    """Each lens' rank correlation with the knockout, which takes one run for each token."""
    losses = losses_without(text, [(one,) for one in text.tokens])
    return {lens: text.correlation(scores, losses) for lens, scores in text.scores.items()}


def losses_without(text: TokenScores, sets: Sequence[tuple[TokenAt, ...]]) -> Numbers:
    """The loss of log p over all outputs when each set of tokens is hidden, in nats."""
    experiment = text.inputs.experiment
    assert experiment is not None
    return np.asarray(
        effects_of(experiment, [Intervention(tokens=one) for one in sets]).sum(axis=1)
    )
