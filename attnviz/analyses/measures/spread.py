"""How widely heads attend: entropy in nats, as a share of what is possible, and as keys.

With v visible keys a row's entropy lies between 0 and ln v (Shannon 1948). It is that of a
distribution: a row that sums to less than 1, because special tokens were dropped or attention went
to a sink outside of the map, is made to sum to 1, and its sum is told beside, as its mass.
"""

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, Numbers
from attnviz.core.attention_map import known_mean
from attnviz.core.measures import HeadMeasure

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
    counts = subject.visible.sum(axis=-1)
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
    keys: NDArray[np.int64] = np.maximum(subject.visible.sum(axis=-1), 1)
    return keys


def _most(values: Numbers | NDArray[np.int64]) -> float:
    return max(float(values.max()), 1.0)


def confidence(subject: MeasuredMap) -> HeadMeasure:
    """Mean of each row's largest weight, without the end token.

    As in Voita et al. 2019 (section 4). The end token is the last key where it is special.
    """
    keys = subject.item.key_tokens
    count = len(keys) - (len(keys) > 1 and keys[-1].special)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        largest = weights[..., :count].max(axis=-1).astype(np.float64)
        return subject.mean(largest, subject.rows)

    return subject.measure("confidence", "share", ("no key stands out", "one key a row"), formula)
