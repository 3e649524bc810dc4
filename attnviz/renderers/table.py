"""A table for the eye: one matrix in numbers, or in shades where numbers no longer fit."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnviz.attention_map import Attention
from attnviz.measures import HeadLine, Link, View
from attnviz.renderers import Display, Views
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
        console = Console(
            file=io.StringIO(),
            width=self.display.width,
            color_system=self.display.colors,  # type: ignore[arg-type]
            force_terminal=self.display.colors is not None,
            no_color=self.display.colors is None,
            legacy_windows=False,
            highlight=False,
            emoji=False,
            markup=False,
        )
        for view in views():
            if self.started:
                console.print()
            self.started = True
            if self.display.many:
                console.print(Text(f"{printable(attention.id)}:", style="bold"))
            print_view(console, view)
        written = console.file
        assert isinstance(written, io.StringIO)
        return "\n".join(line.rstrip() for line in written.getvalue().split("\n"))

    def finish(self) -> str:
        """Nothing more."""
        return ""


def print_view(console: Console, view: View) -> None:
    """Print the caption, the matrix, a line for each head and the strongest link."""
    for line in broken(printable(view.caption), console.width):
        console.print(Text(line, style="bold"))
    console.print(Text(view.orientation, style="dim"))
    console.print()
    for part in matrix(view.map, console.width, console.color_system is not None):
        console.print(part)
    if view.heads:
        console.print()
        console.print(head_table(view.heads, view.map.layers[0], console.width))
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
    """The strongest link, and how to see it."""
    shown = f"{printable(link.query)} → {printable(link.key)}  {two_digits(link.weight)}"
    options = f"--layer {link.layer} --head {link.head}"
    return Text.assemble(
        (shown, "bold"),
        f" in layer {link.layer} head {link.head}",
        (f"  ({options} shows it)", "dim"),
    )


def head_table(heads: Iterable[HeadLine], layer: str, width: int) -> Table:
    """A line for each head: what its keys receive, what it does most, and its entropy."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    named = f"heads of layer {layer}" if layer.isdecimal() else "heads"
    table.add_column("")
    table.add_column(named, no_wrap=True)
    table.add_column("what it does most", no_wrap=True, overflow="ellipsis")
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("entropy", justify="right", no_wrap=True)
    for line in heads:
        table.add_row(
            Text(line.head),
            Text(sparkline(line)),
            Text(shorten(printable(line.pattern), max(width - 46, 12))),
            two_digits(line.weight),
            f"{line.entropy:.2f}",
        )
    return table


def sparkline(line: HeadLine) -> str:
    """What each key receives on average, as bars; many keys share a bar, which shows their peak."""
    profile = line.profile
    width = min(len(profile), PROFILE_WIDTH)
    edges = [round(place * len(profile) / width) for place in range(width + 1)]
    peaks = [float(profile[low:high].max()) for low, high in pairwise(edges)]
    return "".join(BARS[min(int(max(peak, 0.0) * len(BARS)), len(BARS) - 1)] for peak in peaks)
