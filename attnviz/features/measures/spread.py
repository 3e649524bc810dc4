"""How widely heads attend, and the scores before the softmax that make them do so.

With v visible keys a row's entropy lies between 0 and ln v (Shannon 1948). It is that of a
distribution: a row that sums to less than 1, because special tokens were dropped or attention went
to a sink outside of the map, is made to sum to 1, and its sum is shown beside it as its mass.

Weights do not show how large scores are: above some 10 nats to the next key they are 0 and 1, and
nothing is learned any more. Runs that diverge show it in the largest score first (Dehghani 2023),
which clipping of queries and keys bounds (Kimi Team 2025). A few coordinates of the residual
stream can be thousands of times larger than the others, where a head has its sink (Sun 2024).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import kv_groups, word_fold
from attnviz.analyses.entropy import ENTROPY, middle, pair_divergences
from attnviz.analyses.masks import MeasuredMap, Numbers, may_be_sink
from attnviz.analyses.word_links import LEAST_MASS
from attnviz.core.attention_map import AttentionMap, known_mean
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import run_of, text_places, without_first
from attnviz.features.measures import MEASURES

ROUNDING = 0.01
"""How far the sum of a row of half-precision weights lies from 1 at most."""
ENDS = ("every query attends to one key", "uniform attention over all keys")


def entropy(subject: MeasuredMap) -> HeadMeasure:
    """Mean entropy of a row, in nats.

    The first row of a causal map has 0 whatever the head does.
    """
    heads, uniform = (subject.mean(entropies, subject.rows) for entropies in subject.entropies)
    values = heads, uniform
    return subject.compare("entropy", "nats", ENDS, values, top=_most(np.log(_keys(subject))))


def relative_entropy(subject: MeasuredMap) -> HeadMeasure | None:
    """Entropy as a share of the most that the visible keys allow.

    Entropy over ln(visible keys), averaged over the rows that see two keys or more.
    """
    counts = subject.counts
    rows: NDArray[np.bool_] = counts > 1
    if not rows.any():
        return None
    most = np.log(np.where(rows, counts, np.e))[:, None]
    heads, uniform = (subject.mean(entropies / most, rows) for entropies in subject.entropies)
    return subject.compare("relative-entropy", "share", ENDS, (heads, uniform))


def span(subject: MeasuredMap) -> HeadMeasure:
    """How many keys uniform attention of the same entropy would cover.

    exp(entropy) of a row, averaged.
    """
    heads, uniform = (
        subject.mean(np.exp(entropies), subject.rows) for entropies in subject.entropies
    )
    ends = ("every query attends to one key", "uniform attention over as many keys")
    return subject.compare("span", "keys", ends, (heads, uniform), top=_most(_keys(subject)))


def mass(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean sum of a row, told where rows do not sum to 1.

    Entropy, span, distance and the like are then of rows made to sum to 1, shares of rows as they
    stand. Rows that attend to nothing count with 0; padding does not count.
    """
    sums = subject.sums
    if not (subject.present & (np.abs(sums - 1) > ROUNDING)).any():
        return None
    values = known_mean(np.where(subject.present, sums, np.nan))
    ends = ("all attention is elsewhere", "none is elsewhere")
    top = max(float(sums.max()), 1.0)
    return subject.compare("mass", "share", ends, (values, np.ones_like(values)), top)


def empty(subject: MeasuredMap) -> HeadMeasure | None:
    """Rows that attend to nothing, told where there are any.

    They have no entropy, span or distance, and are left out of these means.
    """
    nothing = subject.present & (subject.sums == 0)
    if not nothing.any():
        return None
    counts = nothing.sum(axis=-1).astype(np.float64)
    ends = ("every row attends to something", "no row does")
    uniform = np.zeros_like(counts)
    return subject.compare("empty", "rows", ends, (counts, uniform), float(nothing.shape[-1]))


def _keys(subject: MeasuredMap) -> NDArray[np.int64]:
    return np.asarray(np.maximum(subject.counts, 1))


def _most(values: Numbers | NDArray[np.int64]) -> float:
    return max(float(values.max()), 1.0)


def confidence(subject: MeasuredMap) -> HeadMeasure:
    """Mean of each row's largest weight, without the end token.

    As in Voita et al. 2019 (section 4). The end token is the last key where it is special.
    """
    keys = subject.item.key_tokens
    count = len(keys) - (len(keys) > 1 and keys[-1].special)
    sides = subject.by_row("largest", lambda block: block.largest(count))
    heads, uniform = (subject.mean(rows, subject.rows) for rows in sides)
    ends = ("no key stands out", "one key a row")
    return subject.compare("confidence", "share", ends, (heads, uniform))


def kv_likeness(subject: MeasuredMap) -> HeadMeasure | None:
    """How alike a head looks to those that share its keys and values: 1 − divergence in bits.

    The mean over the other heads of its group and over rows of 1 − the Jensen–Shannon divergence,
    without sinks: special tokens and a first token that is one are left out, and what is left of a
    row, if it is a twentieth or more, is made to sum to 1. None where no heads share any.
    """
    ends = ("its group never looks where it does", "its group looks the same")
    if isinstance(subject.item, AttentionMap):
        values = _likeness(subject)
    else:
        sides = subject.item.query_tokens, subject.item.key_tokens
        text = [np.array([not token.special for token in side]) for side in sides]
        drops = may_be_sink(subject.item)
        values, _ = subject.fold("groups", lambda: word_fold.GroupFold(*text, LEAST_MASS, drops))
    if np.isnan(values).all():
        return None
    return subject.compare("kv-likeness", "share", ends, (values, np.ones_like(values)))


def _likeness(subject: MeasuredMap) -> Numbers:
    item = without_first(subject.item) if subject.first_is_sink else subject.item
    rows, keys = (run_of(text_places(side)) for side in (item.query_tokens, item.key_tokens))
    values = np.full(item.weights.shape[:2], np.nan)
    for layer, own in enumerate(kv_groups.groups_of(item, subject.group_sizes)):
        for members in own.values():
            weights = item.weights[layer, members][:, rows][..., keys].astype(np.float64)
            sums = weights.sum(axis=-1, keepdims=True)
            weights /= np.where(sums >= LEAST_MASS, sums, np.inf)  # in place: a layer is large
            apart = pair_divergences(weights)
            np.fill_diagonal(apart, np.nan)
            values[layer, members] = 1 - known_mean(apart) / np.log(2)
    return values


def typical_entropy(subject: MeasuredMap) -> Numbers:
    """`ENTROPY` of each head, exact where scores are known, else that of the map's own cells."""
    if ENTROPY in subject.scores:
        return subject.scores[ENTROPY]
    counts = subject.counts[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return middle(np.where(counts > 1, subject.entropies[0] / np.log(counts), np.nan))


def _from_scores(name: str, unit: str, low: str, high: str) -> Callable[[MeasuredMap], Any]:
    """The function of a row: what was measured of the scores, where they are known."""

    def measure(subject: MeasuredMap) -> HeadMeasure | None:
        values = subject.scores.get(name)
        if values is None or np.isnan(values).all():
            return None
        top = float(np.nanmax(np.abs(values))) or 1.0
        return HeadMeasure(name, unit, low, high, values, np.full(values.shape, np.nan), top)

    measure.__doc__ = MEASURES[name].summary
    return measure


score_max = _from_scores("score-max", "nats", "all scores are below 0", "one key far above")
score_mean = _from_scores("score-mean", "nats", "scores far below 0", "scores far above 0")
score_std = _from_scores("score-std", "nats", "all scores alike", "scores far apart")
saturated = _from_scores("saturated", "share", "every row learns", "no row learns")
log_sum_exp = _from_scores("log-sum-exp", "nats", "scores far below 0", "scores far above 0")
query_norm = _from_scores("query-norm", "length", "all queries are 0", "a long query")
key_norm = _from_scores("key-norm", "length", "all keys are 0", "a long key")
value_norm = _from_scores("value-norm", "length", "values are 0", "long values")
sink_value = _from_scores(
    "sink-value", "ratio", "the sink brings nothing", "it brings more than others"
)
massive = _from_scores("massive", "ratio", "coordinates alike", "massive activations")
