"""The cost of attention by length (Katharopoulos 2020, section 3.2.1), measured here and now."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import UsageError
from attnviz.mechanisms import dot_product as scaled_attention
from attnviz.mechanisms import linear as linear_attention
from attnviz.teach.lessons.lesson import Lesson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORTEST, LONGEST = 64, 16384
REPEATS = 3
COLUMNS = (
    "length",
    "standard_time_seconds",
    "linear_time_seconds",
    "standard_memory_bytes",
    "linear_memory_bytes",
)


def linear(length: int = 4096, size: int = 64, seed: int = 0) -> Lesson:
    """Standard against linear attention: time and memory as the length grows.

    Both run in float32 on numpy over the same random queries, keys and values, one head. Time is
    the shortest of three runs; memory is the most that one run held at once beyond its inputs.

    Returns:
        A row a length: seconds and bytes of both.
    """
    if not SHORTEST <= length <= LONGEST:
        raise UsageError(f"--length {length} is outside {SHORTEST} to {LONGEST}")
    random = np.random.default_rng(seed)
    lengths = [length >> halvings for halvings in range(16) if length >> halvings >= SHORTEST]
    rows = tuple(_row(random, positions, size) for positions in reversed(lengths))
    title = f"linear · standard against linear attention, head size {size}, numpy on this machine"
    return Lesson(title, COLUMNS, rows, _explain(rows), lambda: _draw(title, rows))


def _row(random: np.random.Generator, length: int, size: int) -> tuple[float, ...]:
    given = [random.standard_normal((length, size), dtype=np.float32) for _ in range(3)]

    def standard() -> Any:
        return scaled_attention.scaled(*given)

    def short_cut() -> Any:
        return linear_attention.linear(*given, need_weights=False)

    return (length, seconds(standard), seconds(short_cut), peak(standard), peak(short_cut))


def seconds(run: Callable[[], Any]) -> float:
    """The shortest of three runs, after one that warms up."""
    run()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def peak(run: Callable[[], Any]) -> int:
    """The most bytes that a run held at once, beyond what was there before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _explain(rows: tuple[tuple[float, ...], ...]) -> tuple[str, ...]:
    length, standard, short, standard_bytes, short_bytes = rows[-1]
    return (
        f"At {length} positions standard attention takes {standard / short:.3g} times the time and "
        f"{standard_bytes / short_bytes:.3g} times the memory of linear attention.",
        "Standard attention holds a weight for each pair: twice the length, four times the memory. "
        "Linear attention keeps only two sums over the keys: twice the length, twice the memory.",
        "The price: its weights come from a feature map, not from a softmax, and are less sharp.",
    )


def _draw(title: str, rows: tuple[tuple[float, ...], ...]) -> Figure:
    from attnviz.teach.lessons.drawing import BLUE, ORANGE, line, panels

    lengths, *measured = (list(column) for column in zip(*rows, strict=True))
    figure, (times, memory), face = panels(
        title,
        [
            ("time, shortest of three runs", "positions", "milliseconds"),
            ("memory at its peak", "positions", "MiB"),
        ],
    )
    for axes, columns, unit in ((times, measured[:2], 1e-3), (memory, measured[2:], 2.0**20)):
        for name, values, color in zip(
            ("standard", "linear"), columns, (ORANGE, BLUE), strict=True
        ):
            line(axes, lengths, [value / unit for value in values], name, color, face)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        shown = lengths[:: -(-len(lengths) // 6)]
        axes.set_xticks(shown, [f"{value:.0f}" for value in shown])
    return figure
