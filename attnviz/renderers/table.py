"""A table for the eye: one matrix in numbers, or in shades where numbers no longer fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnviz.attention_map import Attention
from attnviz.measures import HeadLine, Link, View
from attnviz.renderers import Display, Views
from attnviz.renderers.console import console_of, written
from attnviz.renderers.matrix import matrix
from attnviz.renderers.numerals import two_digits
from attnviz.renderers.printable import printable, shorten

BARS = "▁▂▃▄▅▆▇█"
PROFILE_WIDTH = 16


class TableRenderer:
    """Tables as text, with colour where the display has it."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.started = False

    def add(self, attention: Attention, views: Views) -> str:
        """The views of one text, behind a line with the text's id where several may come."""
        console = console_of(self.display)
        for view in views():
            if self.started:
                console.print()
            self.started = True
            if self.display.many:
                console.print(Text(f"{printable(attention.id)}:", style="bold"))
            print_view(console, view)
        return written(console)

    def finish(self) -> str:
        """Nothing more."""
        return ""


def print_view(console: Console, view: View) -> None:
    """Print the caption, the matrix, a line for each head and the strongest link."""
    for line in broken(printable(view.caption), console.width):
        console.print(Text(line, style="bold"))
    console.print(Text(printable(view.orientation), style="dim"))
    console.print()
    for part in matrix(view.map, console.width, console.color_system is not None):
        console.print(part)
    if view.heads:
        console.print()
        layer = view.map.layers[0]
        named = f"heads of layer {layer}" if layer.isdecimal() else f"heads, {layer} over layers"
        named = printable(named)
        console.print(Text(f"{named} (bars: what each key receives)", style="dim"))
        console.print(head_table(view.heads, console.width))
    if view.strongest:
        console.print(strongest_line(view.strongest))


def broken(caption: str, width: int) -> list[str]:
    """The caption in lines that fit, broken between its parts rather than inside one."""
    lines = [""]
    for part in caption.split(" · "):
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if lines[-1] and cell_len(joined) > width:
            lines.append(part)
        else:
            lines[-1] = joined
    return lines


def strongest_line(link: Link) -> Text:
    """The strongest link, and how to see it where it stands in one layer and head."""
    shown = f"{printable(link.query)} → {printable(link.key)}  {two_digits(link.weight)}"
    places = [
        f"{what} {name}"
        for what, name in (("layer", link.layer), ("head", link.head))
        if name.isdecimal()
    ]
    text = Text.assemble((shown, "bold"), f" in {' '.join(places)}" if places else "")
    if len(places) == 2:
        text.append(f"  (--layer {link.layer} --head {link.head} shows it)", style="dim")
    return text


def head_table(heads: Sequence[HeadLine], width: int) -> Table:
    """A line for each head: what its keys receive, what it does most, and its entropy in nats."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    bars = min(len(heads[0].profile), PROFILE_WIDTH, max(width // 5, 4))
    numbers = max(len(line.head) for line in heads)
    table.add_column("", no_wrap=True, min_width=numbers)
    table.add_column("keys", no_wrap=True, min_width=bars)
    table.add_column("does most", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True, min_width=5)
    table.add_column("entropy", justify="right", no_wrap=True, min_width=7)
    room = max(width - numbers - max(bars, 4) - 12 - 8, 4)
    top = max(float(line.profile.max()) for line in heads)
    for line in heads:
        table.add_row(
            Text(printable(line.head)),
            sparkline(line.profile, bars, top),
            Text(shorten(printable(line.pattern), room)),
            two_digits(line.weight),
            "–" if np.isnan(line.entropy) else f"{line.entropy:.2f}",
        )
    return table


def sparkline(profile: NDArray[np.float64], width: int, top: float) -> str:
    """What each key receives on average, as bars; many keys share a bar, which shows their peak.

    Args:
        profile: shape (keys,).
        width: how many bars.
        top: what the highest bar stands for, the same for all heads beside each other.
    """
    edges = [round(place * len(profile) / width) for place in range(width + 1)]
    peaks = [float(profile[low:high].max()) for low, high in pairwise(edges)]
    levels = (int(max(peak, 0.0) / (top or 1.0) * len(BARS)) for peak in peaks)
    return "".join(BARS[min(level, len(BARS) - 1)] for level in levels)
