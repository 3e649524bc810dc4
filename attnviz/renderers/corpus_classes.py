"""What each layer looks at by class of key, and how many heads have each role."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from attnviz.renderers.canvas import Box, Canvas
from attnviz.renderers.colors import FAINT, INK, Color, ink_on
from attnviz.renderers.corpus_profiles import PLAIN, SMALL, class_colors
from attnviz.renderers.figure import LINE, NOTE_SIZE, TEXT_SIZE, points
from attnviz.renderers.role_colors import ROLE_COLORS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.corpus_report import StreamReport

CLASS_NAMES = {
    "special": "special tokens",
    "rank 1-10": "10 most frequent words",
    "rank 11-100": "to rank 100",
    "rank 101-1000": "to 1,000",
    "rank 1001-10000": "to 10,000",
    "rarer": "rarer words",
}


@dataclass(frozen=True, slots=True)
class ClassBars:
    """A bar for each layer, and one for an even look, divided by what the keys are.

    Attributes:
        stream: whose attention it is.
        left: of the bars.
        top: of the first line of words.
        width: of a bar.
    """

    stream: StreamReport
    left: int
    top: int
    width: int

    @property
    def _bar(self) -> int:
        return max(min(22, 300 // (len(self.stream.layers) + 1)), 5)

    @property
    def height(self) -> int:
        """Of the heading, the legend and the bars."""
        words = points(LINE * TEXT_SIZE) + 2 * points(LINE * NOTE_SIZE) + 12
        return int(words + (self._bar + 4) * (len(self.stream.layers) + 1) + 8)

    def draw(self, canvas: Canvas) -> None:
        """The heading, the legend, the bars."""
        line = points(LINE * NOTE_SIZE)
        y = self.top + points(0.6 * TEXT_SIZE)
        canvas.text(self.left, y, "attention by what the key is", TEXT_SIZE, INK)
        self._legend(canvas, y + 1.2 * line, line)
        start = y + 3.2 * line
        step = self._bar + 4
        names = [*self.stream.layers, "even look"]
        shares = [
            *self.stream.class_shares.mean(axis=-1).T,
            self.stream.class_even.mean(axis=(1, 2)),
        ]
        thin = max(math.ceil(line / step), 1)
        for place, (name, of_layer) in enumerate(zip(names, shares, strict=True)):
            top = start + place * step + (6 if place == len(names) - 1 else 0)
            if place % thin == 0 or place == len(names) - 1:
                middle = top + self._bar / 2
                canvas.text(self.left - 10, middle, name, NOTE_SIZE, FAINT, align="right")
            self._one(canvas, top, of_layer)

    def _one(self, canvas: Canvas, top: float, shares: NDArray[np.float64]) -> None:
        ends = np.rint(np.concatenate([[0], shares.cumsum()]) * self.width) + self.left
        boxes: list[Box] = [(start, top, end - start, self._bar) for start, end in pairwise(ends)]
        colors = class_colors(self.stream.classes)
        canvas.boxes(boxes, colors, "class shares")
        if self._bar < points(1.1 * SMALL):
            return
        for (left, _, width, _), color, share in zip(boxes, colors, shares, strict=True):
            text = f"{share:.0%}"
            if width > canvas.face.width(text, SMALL) + 8:
                middle = left + width / 2, top + self._bar / 2
                canvas.text(*middle, text, SMALL, ink_on(color), align="center")

    def _legend(self, canvas: Canvas, y: float, line: float) -> None:
        x = float(self.left)
        held = [bool(even.any()) for even in self.stream.class_even]
        side = line * 0.62
        for name, color, found in zip(
            self.stream.classes, class_colors(self.stream.classes), held, strict=True
        ):
            if not found:
                continue
            text = CLASS_NAMES.get(name, name)
            wide = side + 8 + canvas.face.width(text, NOTE_SIZE) + 22
            if x + wide > self.left + self.width and x > self.left:
                x, y = float(self.left), y + line
            canvas.boxes([(x, y - side / 2, side, side)], color, f"legend {name}")
            canvas.text(x + side + 8, y, text, NOTE_SIZE, FAINT)
            x += wide


@dataclass(frozen=True, slots=True)
class RoleLegend:
    """The roles that heads have, with how many have each."""

    stream: StreamReport
    left: int
    top: int

    @property
    def entries(self) -> list[tuple[str, Color, int]]:
        """Role, colour and number of heads, the most frequent first."""
        roles = [row.roles[0].name if row.roles else "" for row in self.stream.rows]
        found = sorted({*roles} - {""}, key=lambda name: (-roles.count(name), name))
        named = [(name, ROLE_COLORS[name], roles.count(name)) for name in found]
        return named + ([("no clear role", PLAIN, roles.count(""))] if "" in roles else [])

    @property
    def height(self) -> int:
        """Of the heading and the entries."""
        return int(points(LINE * TEXT_SIZE) + points(LINE * TEXT_SIZE) * len(self.entries) + 12)

    def draw(self, canvas: Canvas) -> None:
        """A line a role."""
        y = self.top + points(0.6 * TEXT_SIZE)
        canvas.text(self.left, y, "heads by role", TEXT_SIZE, INK)
        line = points(LINE * TEXT_SIZE)
        for place, (name, color, count) in enumerate(self.entries, 1):
            middle = y + place * line + 4
            canvas.boxes([(self.left, middle - 8, 26, 16)], color, f"legend {name}")
            canvas.text(self.left + 38, middle, f"{name}  {count}", NOTE_SIZE, INK)
