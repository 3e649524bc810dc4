"""Why scores are divided by the root of the head size (Vaswani 2017, section 3.2.1, note 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.analyses.entropy import row_entropy
from attnviz.mechanisms.arrays import transpose
from attnviz.mechanisms.dot_product import scaled, single_head
from attnviz.teach.lessons.lesson import Lesson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES, KEYS = 512, 64
HEAD_SIZES = tuple(2**power for power in range(11))
COLUMNS = (
    "head_size",
    "score_spread",
    "unscaled_entropy",
    "scaled_entropy",
    "unscaled_largest",
    "scaled_largest",
)


def scaling(seed: int = 0) -> Lesson:
    """Scaled against unscaled softmax as the head size grows.

    Queries and keys are drawn from the standard normal distribution, so a score is a sum of as
    many terms as the head has features, and its standard deviation is the root of their number.

    Returns:
        A row a head size: the scores' standard deviation, and the mean entropy (nats) and the mean
        largest weight of a row, each without and with scaling.
    """
    random = np.random.default_rng(seed)
    rows = tuple(_row(random, head_size) for head_size in HEAD_SIZES)
    title = f"scaling · {QUERIES} random queries over {KEYS} random keys, seed {seed}"
    explanation = (
        f"Entropy in nats: 0 is one key taking all, {np.log(KEYS):.2f} uniform attention over "
        f"{KEYS} keys.",
        "Scores spread as the root of the head size. Unscaled, the softmax therefore hardens until "
        "one key takes nearly all and hardly any gradient is left for the others.",
        "Divided by that root, scores spread by 1 whatever the size, and the weights stay alike.",
    )
    return Lesson(title, COLUMNS, rows, explanation, lambda: _draw(title, rows))


def _row(random: np.random.Generator, head_size: int) -> tuple[float, ...]:
    query = random.standard_normal((QUERIES, head_size))
    key = random.standard_normal((KEYS, head_size))
    hard, soft = (attend(query, key, key)[1] for attend in (single_head, scaled))
    return (
        head_size,
        float((query @ transpose(key)).std()),
        float(row_entropy(hard).mean()),
        float(row_entropy(soft).mean()),
        float(hard.max(axis=-1).mean()),
        float(soft.max(axis=-1).mean()),
    )


def _draw(title: str, rows: tuple[tuple[float, ...], ...]) -> Figure:
    from attnviz.renderers.colors import FAINT
    from attnviz.renderers.figures.figure import NOTE_SIZE, ink
    from attnviz.teach.lessons.drawing import BLUE, ORANGE, line, panels

    sizes, _, *measured = (list(column) for column in zip(*rows, strict=True))
    figure, (entropies, largest), face = panels(
        title,
        [
            ("entropy of a row", "head size", "nats"),
            ("largest weight of a row", "head size", "share of the row's attention"),
        ],
    )
    for axes, (hard, soft) in ((entropies, measured[:2]), (largest, measured[2:])):
        line(axes, sizes, soft, "scaled", BLUE, face)
        line(axes, sizes, hard, "unscaled", ORANGE, face)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes[::2], [f"{size:.0f}" for size in sizes[::2]])
        axes.set_ylim(0, np.log(KEYS) * 1.12 if axes is entropies else 1.0)
    even = float(np.log(KEYS))
    entropies.axhline(even, color=ink(FAINT), linewidth=0.8, linestyle=(0, (2, 2)))
    entropies.annotate(
        "uniform attention",
        (sizes[-1], even),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontproperties=face.font(NOTE_SIZE),
        color=ink(FAINT),
    )
    return figure
