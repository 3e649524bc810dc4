"""A corpus as tables, a line for each head: measures, positions, classes, examples."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

from attnviz.core.measures import EFFECT, Meaning, about_effects, mass_note
from attnviz.features.corpus import results
from attnviz.features.measures.columns import (
    Column,
    head_grid,
    label_line,
    measures_by_unit,
    no_room_note,
)
from attnviz.renderers import Display
from attnviz.renderers.printable import UNKNOWN, printable, shorten, two_digits
from attnviz.renderers.text import console


def _grid(
    stream: results.StreamReport, columns: dict[str, Column], display: Display, *, role: bool = True
) -> list[Text]:
    names = _names(stream)
    headings: tuple[str, ...] = ("layer", "head")
    if role:
        names = [
            (*name, printable(row.roles[0].label) if row.roles else "")
            for name, row in zip(names, stream.rows, strict=True)
        ]
        headings = ("layer", "head", "role")
    lines, left_out = head_grid(headings, names, columns, display)
    return [*lines, *no_room_note(left_out, display)]


def _names(stream: results.StreamReport) -> list[tuple[str, ...]]:
    return [(printable(row.layer), printable(row.head)) for row in stream.rows]


_FIRST = (
    *(EFFECT, "mass", "entropy", "previous-token", "next-token", "self"),
    *("special-token", "punctuation", "first-token", "same-token"),
    *("informative", "distance", "sink", "confidence"),
)
"""The columns that a narrow table keeps first."""
_SINGLE = [(offset, offset) for offset in range(-4, 5)]
_SPANS = [(-16, -9), (-8, -5), *_SINGLE, (5, 8), (9, 16)]  # first and last offset of a column


def corpus_table(report: results.CorpusReport, show: str, display: Display) -> str:
    """A line for each head; `show` names a kind of table."""
    parts = console.wrap_text(printable(report.caption), display.width, "bold")
    size = f"{report.texts:,} {report.things} · {report.streams[0].tokens:,} tokens"
    failures = f" · {report.failed:,} could not be read" if report.failed else ""
    parts += console.wrap_text(size + failures, display.width)
    for stream in report.streams:
        parts.append(Text())
        if len(report.streams) > 1:
            parts += console.wrap_text(f"stream {printable(stream.stream)}", display.width, "bold")
        parts += console.wrap_text(_READING[show](report, stream), display.width, "dim")
        parts += _LINES[show](stream, display)
    return console.render_parts(parts, display)


def _measures_reading(report: results.CorpusReport, stream: results.StreamReport) -> str:
    units = ", ".join(["shares", *measures_by_unit(stream.measures)])
    notes = (mass_note(stream.measures), about_effects(report.provenance))
    reading = f"mean ± half the {report.interval}; {units}; uniform: every key alike"
    return "; ".join([reading, *filter(None, notes)])


_READING: dict[str, Callable[[results.CorpusReport, results.StreamReport], str]] = {
    "measures": _measures_reading,
    "positions": lambda report, _: (
        "share of attention by distance in patches, rounded, between patches; what is missing to 1 "
        "goes to special tokens"
        if report.things == "pictures"
        else "share of attention by position of the key minus that of the query, "
        "between tokens that stand for text; what is missing to 1 goes to special tokens"
    ),
    "classes": lambda report, _: (
        "share of all attention by what the key is: a special token, or a patch by where it lies; "
        "uniform: every key alike"
        if report.things == "pictures"
        else "share of all attention by what the key is: a special token, a punctuation mark, or a "
        "word by its rank in this corpus; uniform: every key alike"
    ),
    "pairs": lambda report, stream: (
        f"mean weight of query → key over so many occurrences (at least {report.fewest}), among "
        f"the {stream.paired} most frequent words and marks"
    ),
    "links": lambda report, _: (
        "the picture in which each head fires most, by its strongest link between two patches, "
        "named ROW,COLUMN from 0,0 at the upper left"
        if report.things == "pictures"
        else "the sentence in which each head fires most, by its strongest link between two words"
    ),
}


def _measures(stream: results.StreamReport, display: Display) -> list[Text]:
    measures = sorted(
        enumerate(stream.measures),
        key=lambda item: _FIRST.index(item[1].name) if item[1].name in _FIRST else len(_FIRST),
    )
    columns = {one.name: _measure_column(stream, number, one) for number, one in measures}
    return _grid(stream, columns, display)


def _measure_column(stream: results.StreamReport, number: int, meaning: Meaning) -> Column:
    cells, shades, uniform = [], [], []
    for _, _, place in results.head_places(stream):
        at = (number, *place)
        mean, half = float(stream.mean[at]), float(stream.high[at] - stream.low[at]) / 2
        text = UNKNOWN if math.isnan(mean) else _digits(mean)
        cells.append(text if math.isnan(half) else f"{text}±{_digits(half)}")
        shades.append(0.0 if math.isnan(mean) else max(mean, 0.0) / meaning.top)
        uniform.append(_digits(float(stream.uniform[at])))
    width = max(map(len, cells), default=0)  # no head may have the role
    heading = meaning.name if len(meaning.name) <= width else meaning.short
    return Column(heading, uniform, cells, shades)


def _digits(value: float) -> str:
    if math.isnan(value):
        return UNKNOWN
    text = f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def _positions(stream: results.StreamReport, display: Display) -> list[Text]:
    start = stream.offsets[0] - 1
    columns = {}
    if start < -1:
        heading = f"≤{start}".replace("-", "−")
        columns["before"] = _share_column(heading, stream.offset_shares[0], stream)
    for low, high in _SPANS:
        if low <= start:
            continue
        shares = stream.offset_shares[low - start : high - start + 1].sum(axis=0)
        ends = [f"{end:+d}".replace("-", "−") if end else "0" for end in (low, high)]
        heading = ends[0] if low == high else f"{ends[0]}…" if low < 0 else f"…{ends[1]}"
        columns[f"{low}"] = _share_column(heading, shares, stream)
    last = f"≥+{stream.offsets[-1] + 1}"
    columns["after"] = _share_column(last, stream.offset_shares[-1], stream)
    return _grid(stream, columns, display, role=False)


def _classes(stream: results.StreamReport, display: Display) -> list[Text]:
    columns = {}
    for number, name in enumerate(stream.classes):
        shares, uniform = stream.class_shares[number], stream.class_even[number]
        if uniform.any():
            columns[name] = _share_column(_HEADINGS.get(name, name), shares, stream, uniform)
    return _grid(stream, columns, display)


_HEADINGS = {
    "special": "spec",
    "punctuation": "punct",
    "rank 1-10": "1–10",
    "rank 11-100": "–100",
    "rank 101-1000": "–1,000",
    "rank 1001-10000": "–10,000",
}


def _share_column(
    heading: str,
    shares: NDArray[np.float64],
    stream: results.StreamReport,
    uniform: NDArray[np.float64] | None = None,
) -> Column:
    at = [place for *_, place in results.head_places(stream)]
    values = [float(shares[place]) for place in at]
    even = [] if uniform is None else [two_digits(float(uniform[place])) for place in at]
    return Column(heading, even, [two_digits(value) for value in values], values)


def _pairs(stream: results.StreamReport, display: Display) -> list[Text]:
    pairs = results.group_by_head(stream.pairs)

    def format_pairs(at: tuple[str, str], room: int) -> str:
        line = ""
        for pair in pairs.get(at, ()):
            text = f"{_arrow(pair)} {two_digits(pair.mean)} ({pair.count:,})"
            longer = f"{line}   {text}" if line else text
            if cell_len(longer) > room:
                break
            line = longer
        return line or UNKNOWN

    return list(_head_lines(stream, display, format_pairs))


def _links(stream: results.StreamReport, display: Display) -> list[Text]:
    strongest = {(item.layer, item.head): item for item in stream.firings if item.rank == 1}

    def format_link(at: tuple[str, str], room: int) -> str:
        if at not in strongest:
            return UNKNOWN
        item = strongest[at]
        start = f"{two_digits(item.weight)} {_arrow(item).ljust(22)} {printable(item.id)}: "
        return shorten(start + printable(" ||| ".join(item.texts)), room)

    return list(_head_lines(stream, display, format_link))


def _arrow(item: results.Pair | results.TopExample) -> str:
    return f"{shorten(printable(item.query), 12)} → {shorten(printable(item.key), 12)}"


def _head_lines(
    stream: results.StreamReport,
    display: Display,
    format_head: Callable[[tuple[str, str], int], str],
) -> Iterator[Text]:
    names = [("layer", "head"), *_names(stream)]
    widths = console.column_widths(names)
    yield Text(label_line(names[0], widths).plain, style="dim", no_wrap=True)
    room = display.width - sum(widths) - 3
    for row, own in zip(stream.rows, names[1:], strict=True):
        yield label_line(own, widths).append("  " + format_head((row.layer, row.head), room))


_LINES: dict[str, Callable[[results.StreamReport, Display], list[Text]]] = {
    "measures": _measures,
    "positions": _positions,
    "classes": _classes,
    "pairs": _pairs,
    "links": _links,
}
