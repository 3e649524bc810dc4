"""Which heads and positions restore one text's answer in the run of another."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnviz.core.answers import ContrastReport, Restored
from attnviz.renderers.data.maps import report_json, tsv
from attnviz.renderers.printable import all_digits, printable, shorten, two_digits
from attnviz.renderers.text.console import color_cell, introduction, render_parts, wrap_text

if TYPE_CHECKING:
    from attnviz.renderers import Display

LISTED = 8
READING = (
    "share of the answer that comes back where heads of the second text's run put out what they "
    "put out for the first: 0 none, 1 all"
)


def _share(value: float) -> str:
    return two_digits(value).replace("-", "−")


def contrast_lines(report: ContrastReport) -> list[str]:
    """Each text with its answer, and how well the estimates agree with what was measured."""
    found = [
        f'"{shorten(text, 60)}" → {answer}; log p of {report.answers[0]} '
        + f"minus that of {report.answers[1]}: {score:.1f}".replace("-", "−")
        for text, answer, score in zip(report.texts, report.answers, report.scores, strict=True)
    ]
    if report.agreement is not None:
        found.append(
            "first-order estimates: rank correlation "
            f"{_share(report.agreement)} with the measured shares of heads"
        )
    return found


def contrast_table(report: ContrastReport, show: Display) -> str:
    """The heads that restore most, their rows, and all layers by position."""
    parts: list[Any] = introduction(printable(report.caption), READING, show.width)
    for line in contrast_lines(report):
        parts += wrap_text(printable(line), show.width)
    alone = len({one.stream for one in report.layers}) == 1
    bracket = "" if report.agreement is None else " (in brackets the estimate)"
    parts.append(Text())
    for label, found in (
        (f"heads, at every position{bracket}", report.heads),
        ("heads, at one position", report.rows),
        ("links", report.links),
    ):
        names = " · ".join(
            f"{one.name(alone=alone)} {_share(one.share)}{_estimate(one)}" for one in found[:LISTED]
        )
        parts += wrap_text(printable(f"{label}: {names}"), show.width) if found else []
    parts += [Text(), Text("all heads of a layer, at one position", "dim")]
    for stream in dict.fromkeys(one.stream for one in report.layers):
        parts += _grid([one for one in report.layers if one.stream == stream], stream, alone=alone)
    return render_parts(parts, show)


def _estimate(one: Restored) -> str:
    return "" if one.estimate is None else f" ({_share(one.estimate)})"


def _grid(cells: list[Restored], stream: str, *, alone: bool) -> list[Text]:
    """A line for each position, with the share of each layer."""
    layers = [*dict.fromkeys(one.layer for one in cells)]
    tokens = {one.position: printable(one.token) for one in cells}
    wide = min(max(*map(cell_len, tokens.values()), 5), 24)
    head = set_cell_size("layer" if alone else stream, wide)
    lines = [Text(head + "".join(f"{layer:>6}" for layer in layers), "dim")]
    for position, token in tokens.items():
        line = Text(set_cell_size(shorten(token, wide), wide))
        for one in cells:
            if one.position == position:
                line.append(" ").append_text(
                    color_cell(f"{_share(one.share):>5}", one.share, (-1, 1))
                )
        lines.append(line)
    return lines


def contrast_tsv(report: ContrastReport) -> str:
    """A line for each head, head at a position, layer at a position, and link."""
    named = ("stream", "layer", "head", "position", "token", "key", "key_token")
    lines: list[tuple[str, ...]] = [(*named, "restored", "estimate")]
    for one in (*report.heads, *report.rows, *report.layers, *report.links):
        values = ("" if x is None else str(x) for x in (getattr(one, name) for name in named))
        estimate = "" if one.estimate is None else all_digits(one.estimate)
        lines.append((*values, all_digits(one.share), estimate))
    return tsv(lines)


def contrast_json(report: ContrastReport) -> str:
    return report_json("contrast", **asdict(report))
