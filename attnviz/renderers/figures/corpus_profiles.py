"""Every head of a corpus as a small portrait: where it looks, and at what."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attnviz.core.corpus_report import StreamReport
from attnviz.core.measures import HeadRow
from attnviz.renderers.colors import FAINT, ROLE_COLORS, Color, color_of, role_color
from attnviz.renderers.figures.canvas import Box, Canvas
from attnviz.renderers.figures.figure import line_height, points
from attnviz.renderers.printable import two_digits

SMALL = 5.5
_LOWEST, _HIGHEST, _WIDEST, _PANEL, _GAP = 24, 124, 400, 1240, 9
NAMES = 70
"""Pixels beside panels for the names of layers."""
_GROUND: Color = (242, 244, 247)


def class_colors(classes: tuple[str, ...]) -> list[Color]:
    """A colour for each class of keys: the frequent words dark, the rarer the lighter."""
    ranks = [name for name in classes if name.startswith("rank")] + ["rarer"]
    blues = {
        name: color_of(0.86 - 0.64 * place / (len(ranks) - 1)) for place, name in enumerate(ranks)
    }
    others = {
        "special": ROLE_COLORS["special-token"],
        "punctuation": ROLE_COLORS["punctuation"],
        "other": (200, 200, 200),
    }
    return [{**blues, **others}[name] for name in classes]


@dataclass(frozen=True, slots=True)
class Profiles:
    """The grid of heads: layers down, heads across."""

    stream: StreamReport
    left: int
    top: int
    width: int

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a head, with the gap after it."""
        across = min(self.width // len(self.stream.heads), _WIDEST)
        down = max(min(_HIGHEST, _PANEL // len(self.stream.layers), across), _LOWEST)
        return across, down

    @property
    def height(self) -> int:
        """Of the grid and the words under it."""
        return self.cell[1] * len(self.stream.layers) + int(line_height(SMALL)) + 6

    def draw(self, canvas: Canvas) -> None:
        """Every head's portrait, and the names around them."""
        rows = {(row.layer, row.head): row for row in self.stream.rows}
        across, down = self.cell
        grounds: list[Box] = []
        middles = []
        for place in np.ndindex(len(self.stream.layers), len(self.stream.heads)):
            box = self._box(*place)
            grounds.append(box)
            middle = box[0] + box[2] / 2
            middles.append([(middle, box[1]), (middle, box[1] + box[3])])
        canvas.boxes(grounds, _GROUND, "ground", zorder=0.2)
        canvas.strokes(np.array(middles), (215, 219, 225), 0.5, zorder=0.4)
        for layer, layer_name in enumerate(self.stream.layers):
            for head, head_name in enumerate(self.stream.heads):
                self._portrait(canvas, layer, head, rows[layer_name, head_name])
        self._names(canvas, across, down)

    def _box(self, layer: int, head: int) -> Box:
        across, down = self.cell
        gap = _GAP if min(across, down) >= 40 else 3
        return self.left + head * across, self.top + layer * down, across - gap, down - gap

    def _portrait(self, canvas: Canvas, layer: int, head: int, row: HeadRow) -> None:
        left, top, width, height = self._box(layer, head)
        shares = np.clip(self.stream.offset_shares[:, layer, head], 0, 1)
        strip = max(round(height * 0.12), 3)
        room = height - strip - 2
        edges = np.rint(left + np.linspace(0, width, len(shares) + 1))
        heights = np.rint(np.sqrt(shares) * room)
        bars = [
            (edges[place], top + room - tall, edges[place + 1] - edges[place], tall)
            for place, tall in enumerate(heights)
            if tall
        ]
        canvas.boxes(bars, role_color(row), f"positions {row.layer} {row.head}")
        ends = np.rint(
            np.concatenate([[0], self.stream.class_shares[:, layer, head].cumsum()]) * width
        )
        parts: list[Box] = [
            (left + start, top + height - strip, end - start, strip)
            for start, end in pairwise(ends)
        ]
        canvas.boxes(parts, class_colors(self.stream.classes), f"classes {row.layer} {row.head}")
        if row.roles and width >= 70 and height >= 44:
            share = two_digits(row.roles[0].share)
            high = top + points(0.85 * SMALL)
            canvas.text(left + width - 5, high, share, SMALL, FAINT, align="right")

    def _names(self, canvas: Canvas, across: int, down: int) -> None:
        names = self.stream.layers, self.stream.heads
        canvas.name_heads(names, (self.left, self.top), (across, down), _GAP)
        if across >= 110:
            low = self.top + len(self.stream.layers) * down + points(0.5 * SMALL)
            first, last = self.stream.offsets[0], self.stream.offsets[-1]
            for head in range(len(self.stream.heads)):
                left, _, width, _ = self._box(0, head)
                ticks = ((0, f"{first}".replace("-", "−"), "left"), (0.5, "0", "center"),
                         (1, f"+{last}", "right"))  # fmt: skip
                for at, text, align in ticks:
                    canvas.text(left + at * width, low, text, SMALL, FAINT, align=align)
