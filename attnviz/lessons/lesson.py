"""What a lesson gives: numbers, words about them and a picture that is drawn on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One thing about attention.

    Attributes:
        title: what was computed, for every output.
        columns: names as data has them ("head_size"); a name in _seconds or _bytes has that unit.
        rows: a cell a column.
        explanation: what to see in the numbers, a sentence each.
        draw: makes the picture; matplotlib is imported only then.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    explanation: tuple[str, ...]
    draw: Callable[[], Figure]

    def column(self, name: str) -> tuple[Cell, ...]:
        """One column from top to bottom."""
        place = self.columns.index(name)
        return tuple(row[place] for row in self.rows)
