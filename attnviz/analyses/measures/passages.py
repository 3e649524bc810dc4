"""Where attention goes among sentences, and between a prompt and what the model wrote after it."""

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.core.attention_map import known_mean
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import split_sentences

APART = 4
"""Sentences from which on attention to one counts: nearer ones are read anyway."""
LEAST = 4
"""Sentences whose scores have a kurtosis."""


def receiver(subject: MeasuredMap) -> HeadMeasure | None:
    """Kurtosis of what sentences receive from those four or more away (Bogdan 2025).

    A sentence's score is the mean weight from the tokens of each other sentence to its tokens,
    averaged over those sentences. The kurtosis of n scores is m₄ / m₂², at most n − 2 + 1/(n − 1).
    None where fewer than four sentences have a score.
    """
    item, text = subject.item, subject.texts[0]
    starts = [sentence.start for sentence in split_sentences(text)]
    if not within_one_text(item) or len(starts) < APART + LEAST:
        return None
    places = np.searchsorted(starts, [token.start for token in item.key_tokens], side="right") - 1
    of_text = [not token.special and token.end > token.start for token in item.key_tokens]
    # A row for each sentence, 1 where a token is part of it.
    parts = ((places == np.arange(len(starts))[:, None]) & of_text).astype(np.float64)
    numbers = np.arange(len(starts))
    visible = (parts @ subject.visible @ parts.T)[0] > 0
    far = visible & (np.abs(numbers - numbers[:, None]) >= APART)
    columns = far.any(axis=0)
    if columns.sum() < LEAST:
        return None
    sizes = np.maximum(parts.sum(axis=1), 1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        means = parts @ weights.astype(np.float64) @ parts.T / (sizes[:, None] * sizes)
        scores = (means * far).sum(axis=-2)[..., columns] / far.sum(axis=0)[columns]
        off = scores - scores.mean(axis=-1, keepdims=True)
        spread = (off**2).mean(axis=-1)
        alike = spread <= 1e-12 * scores.mean(axis=-1) ** 2  # nothing but rounding
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(alike, np.nan, (off**4).mean(axis=-1) / spread**2)

    n = int(columns.sum())
    ends = ("sentences receive alike", "one sentence receives all")
    return subject.measure("receiver", "kurtosis", ends, formula, top=n - 2 + 1 / (n - 1))


def lookback(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean weight on the prompt against that on the model's own output (Chuang 2024).

    Mean over the written tokens of p / (p + o), where p is the mean weight on the prompt's tokens
    and o on those written so far. None where the model wrote nothing.
    """
    first = subject.output_start
    if first is None or not within_one_text(subject.item):
        return None
    length = len(subject.item.key_tokens)
    counts = np.arange(1, length - first + 1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        rows = weights[:, :, first:].astype(np.float64)
        prompt, output = rows[..., :first].mean(axis=-1), rows[..., first:].sum(axis=-1) / counts
        with np.errstate(divide="ignore", invalid="ignore"):
            return known_mean(prompt / (prompt + output))

    return subject.measure("lookback", "share", ("only its own output", "only the prompt"), formula)
