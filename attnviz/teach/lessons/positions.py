"""What sinusoidal positions look like (Vaswani 2017, section 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import UsageError
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.teach.lessons.lesson import Cell, Lesson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 2048
COLUMNS = ("columns", "wave_length", "turns", "at_position_1", "at_the_end")


def positions(length: int = 64, size: int = 64) -> Lesson:
    """Sinusoidal position encoding as a heat map.

    Returns:
        A row a pair of columns: its wave's length in positions, how many turns it makes in the
        given length, and what its columns hold at position 1 and at the last; at 0 it is 0 and 1.
    """
    for option, given, least in (("--length", length, 2), ("--size", size, 1)):
        if not least <= given <= MOST:
            raise UsageError(f"{option} {given} is outside {least} to {MOST}")
    encoding = sinusoidal_positions(length, size)
    rows = tuple(_row(encoding, first) for first in range(0, size, 2))
    title = f"positions · sinusoidal encoding of {length} positions in {size} columns"
    return Lesson(title, COLUMNS, rows, _explain(encoding, rows), lambda: _draw(title, encoding))


def _row(encoding: NDArray[np.float32], first: int) -> tuple[Cell, ...]:
    """One pair of columns; the last is alone where the size is odd."""
    pair = encoding[:, first : first + 2]
    # At position 1 a wave has turned by less than a quarter, so its sine tells the angle.
    wave_length = 2 * np.pi / float(np.arcsin(np.float64(pair[1, 0])))
    places = " ".join(str(first + offset) for offset in range(pair.shape[1]))
    shown = (" ".join(f"{value:+.2f}" for value in pair[position]) for position in (1, -1))
    return places, wave_length, (len(encoding) - 1) / wave_length, *shown


def _explain(encoding: NDArray[np.float32], rows: tuple[tuple[Cell, ...], ...]) -> tuple[str, ...]:
    shortest, longest = (float(row[1]) for row in (rows[0], rows[-1]))
    waves = (
        f"Each pair of columns holds the sine and cosine of one wave, from {shortest:.2f} to "
        f"{longest:,.0f} positions long: fast ones tell neighbours apart, slow ones near from far."
    )
    length, size = encoding.shape
    if size % 2:
        return (waves,)
    start = encoding.astype(np.float64) @ encoding[0].astype(np.float64)
    near = ", ".join(f"{start[gap]:.2f} at {gap}" for gap in (0, 1, 2, 4, 8, 16) if gap < length)
    return waves, f"The dot product of two positions depends on their distance alone: {near}."


def _draw(title: str, encoding: NDArray[np.float32]) -> Figure:
    from attnviz.teach.lessons.drawing import image

    length, size = encoding.shape
    return image(
        encoding,
        title=title,
        subtitle="rows are positions, columns are features: even ones sine, odd ones cosine",
        unit="value",
        limits=(-1.0, 1.0),
        rows=list(map(str, range(length))),
        columns=list(map(str, range(size))),
    )
