"""The grid of 12 × 12 heads at 64 tokens against `plt.subplots(12, 12)`, side by side in one run.

Run it as a script; it prints the two times and their ratio and asserts nothing.
"""

from __future__ import annotations

from io import BytesIO
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.features.grid.picture import grid
from attnviz.renderers.figures.figure import figure_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS, HEADS, LENGTH, ROUNDS = 12, 12, 64, 5


def composite(weights: np.ndarray) -> int:
    """This project's grid as PNG; its size in bytes."""
    tokens = tuple(Token(f"token{position}") for position in range(LENGTH))
    figure = grid(AttentionMap("self", tokens, tokens, weights), title="12 × 12 heads")
    return len(figure_bytes(figure, ".png"))


def subplots(weights: np.ndarray) -> int:
    """What is written by hand: one axes for each head."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(LAYERS, HEADS, figsize=(9, 9))
    for layer in range(LAYERS):
        for head in range(HEADS):
            axes[layer, head].imshow(weights[layer, head], vmin=0, vmax=1)
            axes[layer, head].set_xticks([])
            axes[layer, head].set_yticks([])
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=200)
    plt.close(figure)
    return buffer.tell()


def seconds(draw: Callable[[np.ndarray], int], weights: np.ndarray) -> float:
    """How long one drawing takes."""
    start = perf_counter()
    draw(weights)
    return perf_counter() - start


def main() -> None:
    """Measure both in turns, after one round that warms up fonts and caches."""
    mpl.use("agg")
    scores = np.random.default_rng(0).normal(scale=2, size=(LAYERS, HEADS, LENGTH, LENGTH))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    times = [(seconds(composite, weights), seconds(subplots, weights)) for _ in range(ROUNDS + 1)]
    ours, theirs = (median(column) for column in zip(*times[1:], strict=True))
    print(f"composite grid   {ours:.3f} s")
    print(f"plt.subplots     {theirs:.3f} s")
    print(f"ratio            {ours / theirs:.2f}  (target: at most 0.5)")


if __name__ == "__main__":
    main()
