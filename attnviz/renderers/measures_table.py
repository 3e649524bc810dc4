"""The heads of a model as a table: what each is called for, and its measures beside chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from attnviz.measures import HeadReport, HeadRow, Meaning
from attnviz.renderers import Display
from attnviz.renderers.console import paragraph, shaded, shown
from attnviz.renderers.numerals import two_digits
from attnviz.renderers.printable import printable, shorten

UNKNOWN = "–"
# What a narrow table keeps first.
_FIRST = (
    *("previous-token", "next-token", "self", "first-token", "special-token", "induction"),
    *("entropy", "distance", "same-token", "sink", "confidence", "punctuation", "duplicate"),
)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns that fit: widths of the names before the numbers, and the measures after."""

    names: tuple[int, ...]
    role: int
    measures: tuple[Meaning, ...]
    left_out: tuple[Meaning, ...]


def measures_table(report: HeadReport, display: Display, keep: str | None = None) -> str:
    """A line for each head under lines for an even look, in as many columns as fit.

    Args:
        report: the heads.
        display: where it will be read.
        keep: a measure that must not be left out.
    """
    layout = _lay_out(report, display.width, keep)
    parts = paragraph(printable(report.caption), display.width, "bold")
    parts += paragraph(_reading(layout.measures), display.width, "dim")
    parts.append(Text())
    parts.append(_header(layout, report))
    parts += _even_lines(report, layout)
    parts += [_line(row, report, layout, display) for row in report.rows]
    if report.sinks:
        parts += [Text(), *paragraph(printable(report.sinks), display.width)]
    if layout.left_out:
        names = ", ".join(meaning.name for meaning in layout.left_out)
        told = f"no room for {names}: -f tsv and -f json have them"
        parts += paragraph(told, display.width, "dim")
    return shown(parts, display)


def number(value: float, meaning: Meaning) -> str:
    """A share in two digits, anything else in about three; – where it says nothing."""
    if math.isnan(value):
        return UNKNOWN
    if meaning.unit == "share":
        return two_digits(value)
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value + 0.0:.{digits}f}"


def _reading(measures: Sequence[Meaning]) -> str:
    others = [f"{names} in {unit}" for unit, names in _by_unit(measures) if unit != "share"]
    told = f"{', '.join(others)}, all else shares" if others else "numbers are shares"
    return f"uniform: an even look at all it may see; {told}"


def _by_unit(measures: Iterable[Meaning]) -> list[tuple[str, str]]:
    names: dict[str, list[str]] = {}
    for meaning in measures:
        names.setdefault(meaning.unit, []).append(meaning.name)
    return [(unit, " and ".join(found)) for unit, found in names.items()]


def _names(row: HeadRow, report: HeadReport) -> tuple[str, ...]:
    several = len({other.stream for other in report.rows}) > 1
    return (*((row.stream,) if several else ()), row.layer, row.head)


def _headings(report: HeadReport) -> tuple[str, ...]:
    several = len({row.stream for row in report.rows}) > 1
    return (*(("stream",) if several else ()), "layer", "head")


def _lay_out(report: HeadReport, width: int, keep: str | None) -> _Layout:
    columns = [_headings(report), *(_names(row, report) for row in report.rows)]
    names = tuple(max(map(len, column)) for column in zip(*columns, strict=True))
    role = max([len("uniform"), *(len(_role(row)) for row in report.rows)])
    room = width - sum(names) - len(names) - role
    order = [name for name in (keep, *_FIRST) if name]
    ranked = sorted(
        report.measures,
        key=lambda item: order.index(item.name) if item.name in order else len(order),
    )
    kept: list[Meaning] = []
    for meaning in ranked:
        if room >= _width(meaning) + 1:
            room -= _width(meaning) + 1
            kept.append(meaning)
    return _Layout(
        names,
        role,
        tuple(meaning for meaning in report.measures if meaning in kept),
        tuple(meaning for meaning in report.measures if meaning not in kept),
    )


def _width(meaning: Meaning) -> int:
    return max(len(meaning.short), 5 if meaning.unit == "tokens" else 4)


def _role(row: HeadRow) -> str:
    if not row.roles:
        return ""
    return f"{row.roles[0].name} {two_digits(row.roles[0].share)}"


def _header(layout: _Layout, report: HeadReport) -> Text:
    names = [name.rjust(width) for name, width in zip(_headings(report), layout.names, strict=True)]
    heads = [meaning.short.rjust(_width(meaning)) for meaning in layout.measures]
    return Text(" ".join([*names, "role".ljust(layout.role), *heads]), style="dim", no_wrap=True)


def _even_lines(report: HeadReport, layout: _Layout) -> list[Text]:
    """A line for each mask; most models have one, sliding windows bring more."""
    masks: dict[tuple[str, ...], list[HeadRow]] = {}
    for row in report.rows:
        numbers = tuple(
            number(row.uniform.get(meaning.name, math.nan), meaning) for meaning in layout.measures
        )
        masks.setdefault(numbers, []).append(row)
    lines = []
    room = sum(layout.names) + len(layout.names) - 1
    for numbers, rows in masks.items():
        label = shorten(_where(rows) if len(masks) > 1 else "", room)
        cells = [
            text.rjust(_width(meaning))
            for text, meaning in zip(numbers, layout.measures, strict=True)
        ]
        line = " ".join([label.rjust(room), "uniform".ljust(layout.role), *cells])
        lines.append(Text(line, style="dim", no_wrap=True))
    return lines


def _where(rows: Sequence[HeadRow]) -> str:
    streams = dict.fromkeys(row.stream for row in rows)
    return ",".join(dict.fromkeys(row.layer for row in rows) if len(streams) == 1 else streams)


def _line(row: HeadRow, report: HeadReport, layout: _Layout, display: Display) -> Text:
    names = [
        printable(name).rjust(width)
        for name, width in zip(_names(row, report), layout.names, strict=True)
    ]
    line = Text(" ".join(names) + " ", no_wrap=True)
    line.append(_role(row).ljust(layout.role), style="bold")
    for meaning in layout.measures:
        value = row.values.get(meaning.name, math.nan)
        text = number(value, meaning).rjust(_width(meaning))
        share = 0.0 if math.isnan(value) else max(value, 0.0) / meaning.top
        line.append(" ")
        line.append_text(shaded(text, share, display))
    return line
