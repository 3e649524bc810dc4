"""What a causal mask does to scores (Vaswani 2017, section 3.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy
from attnviz.mechanisms.dot_product import causal, causal_mask, scaled
from attnviz.models.own import SeededEmbedding, split_words
from attnviz.teach.lessons.lesson import Cell, Lesson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCE = "The professor who supervised the student published the paper"
COLUMNS = (
    "query",
    "full_entropy",
    "causal_entropy",
    "full_strongest",
    "causal_strongest",
    "share_not_hidden",
)


def masking(text: str = SENTENCE, size: int = 16, seed: int = 0) -> Lesson:
    """Full against causal attention over the same scores.

    The words get the seeded vectors and projections of an untrained own layer.

    Returns:
        A row a query: its entropy in nats and the key it looks at most, full and causal, and the
        share of its full attention that the mask leaves.
    """
    tokens = split_words(text)
    words = tuple(token.text for token in tokens)
    embedding = SeededEmbedding(seed, size)
    inputs = embedding.embed(tokens)
    projected = [inputs @ embedding.projection(name) for name in ("query", "key", "value")]
    full, masked = (attend(*projected)[1] for attend in (scaled, causal))
    rows = tuple(_row(words, full, masked, query) for query in range(len(words)))
    title = f"masking · full and causal attention, untrained, size {size}, seed {seed}"
    explanation = (
        "Entropy in nats: 0 is one key taking all. A causal mask sets the scores of later keys to "
        "−∞ before the softmax: their weights are 0.",
        "What it leaves is the full row cut off and divided by its sum: each causal "
        "weight is the full weight divided by the share not hidden.",
        "So the first query can only look at itself, and the last one is not changed at all.",
    )
    return Lesson(title, COLUMNS, rows, explanation, lambda: _draw(title, words, full, masked))


def _row(
    words: tuple[str, ...],
    full: NDArray[np.float64],
    masked: NDArray[np.float64],
    query: int,
) -> tuple[Cell, ...]:
    pair = (full[query], masked[query])
    return (
        words[query],
        *(float(row_entropy(row)) for row in pair),
        *(words[int(row.argmax())] for row in pair),
        float(full[query, : query + 1].sum()),
    )


def _draw(
    title: str, words: tuple[str, ...], full: NDArray[np.float64], masked: NDArray[np.float64]
) -> Figure:
    from attnviz.teach.lessons.drawing import image

    count = len(words)
    gap = np.full((count, 1), np.nan)
    visible = causal_mask(masked, count, count)
    return image(
        np.hstack([full, gap, np.where(visible, masked, np.nan)]),
        title=title,
        subtitle="full and causal, hidden cells white; rows are queries, columns are keys",
        unit="share of a row's attention",
        limits=(0.0, 1.0),
        rows=words,
        columns=[*words, "", *words],
    )
