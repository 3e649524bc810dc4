"""Which sentences of a reasoning carry it: the formulas of thought anchors, on numpy.

Bogdan, Macar, Nanda and Conmy 2025, "Thought Anchors: Which LLM Reasoning Steps Matter?"
(arXiv 2506.19143). Matrices are (later sentence, earlier sentence); a cell without a value is NaN.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Provenance
from attnviz.core.records import dataclass

Numbers = NDArray[np.float64]

NEAR = 4  # a row looks back at sentences at least this far before it
RECEIVERS = 20  # heads whose scores are averaged
TINY = 1e-9  # nats added to a divergence before its logarithm, as the authors do


@dataclass(frozen=True, slots=True)
class Resampling:
    """Where continuations without a sentence end, beside those behind it."""

    different: float  # the share of continuations whose first sentence means something else
    accuracy_without: float | None  # the share of these with the right answer; None: not known
    accuracy_with: float | None  # that of continuations from behind the sentence
    kl: float | None  # KL(without ‖ with) of the distributions of answers, nats
    instead: str  # the first sentence that is least like it


@dataclass(frozen=True, slots=True)
class TracedSentence:
    """One sentence of a reasoning, and how much depends on it."""

    number: int
    text: str
    tokens: int
    receiver: float  # how much later sentences look at it by receiver heads; NaN: too near the end
    # the mean over later sentences of log KL without it, less what hiding others does there
    effect: float
    kl: float  # the mean KL of later tokens without it, nats
    answer_kl: float | None  # that of the tokens of the answer; None: there is no answer
    marks: tuple[str, ...]  # "receiver" and "effect" where the score stands out
    needs: tuple[int, ...]  # the earlier sentences that change it most, by number
    changes: tuple[int, ...]  # the later sentences that it changes most
    resampling: Resampling | None


@dataclass(frozen=True, slots=True)
class ReceiverHead:
    """A head that looks back at few sentences from all over a text."""

    layer: str
    head: int
    kurtosis: float  # of its vertical scores, the mean over texts


@dataclass(frozen=True, slots=True)
class TraceReport:
    """Which sentences of a reasoning carry it."""

    caption: str
    name: str
    tokens: int
    prompt_tokens: int
    answer: str  # what stands behind the reasoning
    right: str  # the answer that counts as right; empty: none is known
    sentences: tuple[TracedSentence, ...]
    heads: tuple[ReceiverHead, ...]
    log_kl: tuple[tuple[float, ...], ...]  # of each sentence, without each earlier one
    temperature: float
    control_depth: bool
    passes: float  # how often the text was read, in whole texts
    resamples: int
    notes: tuple[str, ...]
    provenance: Provenance

    def matrix(self) -> Numbers:
        """Later sentence × earlier sentence: log KL less the row's mean; NaN from the diagonal."""
        rows = self.log_kl
        matrix = np.full((len(rows), len(rows)), np.nan)
        for number, row in enumerate(rows):
            matrix[number, : len(row)] = row
        return against_others(matrix)


def vertical_scores(means: Numbers, *, control_depth: bool = False) -> Numbers:
    """How much sentences at least four later look at each one, (…, sentences).

    `means` are the mean weights between the tokens of sentences, (…, later, earlier). With
    `control_depth` weights are ranks in their row, as shares: every row counts alike.
    """
    count = means.shape[-1]
    far = np.tril(np.ones((count, count), dtype=bool), -NEAR)
    values = np.where(far, means, np.nan)
    if control_depth:
        values = _rank_rows(values)
    return mean_of(values, axis=-2)


def _rank_rows(values: Numbers) -> Numbers:
    """The rank of each value in its row from 1, ties sharing theirs, over the row's number."""
    ranks = np.full_like(values, np.nan)
    for place in np.ndindex(values.shape[:-1]):
        row = values[place]
        there = np.isfinite(row)
        own = np.sort(row[there])
        first, last = (np.searchsorted(own, row[there], side) for side in ("left", "right"))
        ranks[place][there] = (first + last + 1) / 2 / max(len(own), 1)
    return ranks


def kurtosis(scores: Numbers) -> Numbers:
    """Fisher's kurtosis over sentences, biased: 0 if they are normal, large for a few peaks."""
    off = scores - mean_of(scores, axis=-1)[..., None]
    spread = mean_of(off**2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, mean_of(off**4, axis=-1) / spread**2 - 3, np.nan)


def receivers(kurtoses: Sequence[Numbers]) -> list[tuple[int, int]]:
    """The twenty (layer, head) with the largest mean kurtosis over texts, the largest first."""
    means = np.mean(np.array(kurtoses), axis=0)
    order = np.argsort(-means.ravel(), kind="stable")
    there = [place for place in order if np.isfinite(means.flat[place])][:RECEIVERS]
    return [(int(place) // means.shape[1], int(place) % means.shape[1]) for place in there]


def against_others(log_kl: Numbers) -> Numbers:
    """Each later sentence's row, minus its mean over the earlier sentences."""
    return log_kl - mean_of(log_kl, axis=-1)[:, None]


def mean_of(values: Numbers, axis: int) -> Numbers:
    """The mean of what is there; NaN where nothing is."""
    there = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0).sum(axis) / there.sum(axis))


def divergence(some: Sequence[str], others: Sequence[str]) -> float:
    """KL(some ‖ others) of distributions of answers, nats, each answer counted once more."""
    names = sorted({*some, *others})
    if not some or not others:
        return math.nan
    counts = [Counter(some), Counter(others)]
    first, second = (
        np.array([own[name] + 1 for name in names]) / (own.total() + len(names)) for own in counts
    )
    return float((first * np.log(first / second)).sum())
