"""Heads as tables and data: their measures, which look alike, which find syntactic relations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.text import Text

from attnviz.core.measures import (
    Finding,
    HeadReport,
    HeadRow,
    Meaning,
    Relation,
    SimilarityReport,
    TreebankReport,
)
from attnviz.renderers import Display
from attnviz.renderers.data.heads import SCHEMA, plain
from attnviz.renderers.data.maps import escape
from attnviz.renderers.printable import printable, shorten, two_digits
from attnviz.renderers.text.console import paragraph, shaded, shown
from attnviz.storage.documents import dump_json

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
    """A line for each head under lines for uniform attention, in as many columns as fit.

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
        told = f"no room for {names}: -f tsv shows them as a table, -f json as data"
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
    return f"uniform: all it may see attended to alike; {told}"


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
    """What a head does and where it rests, such as "induction .68, rests on first token .85"."""
    acts, rests = row.clearest("acts"), row.clearest("rests")
    parts = [f"{acts.name} {two_digits(acts.share)}"] if acts else []
    if rests:
        parts.append(f"rests on {rests.name.replace('-', ' ')} {two_digits(rests.share)}")
    return ", ".join(parts)


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


_READING = "divergence of where two heads look, in nats; 0: alike, .69: never at the same key"


def similarity_table(report: SimilarityReport, display: Display) -> str:
    """For each head those that look most like it, as many as fit."""
    names = [printable(f"{layer}.{head}") for layer, head in report.heads]
    width = max(len("head"), *map(len, names))
    entry = width + 7
    count = max(min((display.width - width - 2) // entry, len(names) - 1, 6), 1)
    parts = paragraph(printable(report.caption), display.width, "bold")
    parts += [*paragraph(_READING, display.width, "dim"), Text()]
    parts.append(Text(f"{'head'.rjust(width)}  looks most like (layer.head)", style="dim"))
    apart = report.divergences + np.diag(np.full(len(names), np.inf))
    for name, row in zip(names, apart, strict=True):
        line = Text(f"{name.rjust(width)}  ", no_wrap=True)
        for other in np.argsort(row, kind="stable")[: min(count, len(names) - 1)].tolist():
            line.append(names[other].rjust(width), style="bold")
            line.append(f" {two_digits(float(row[other]))}".ljust(7))
        parts.append(line)
    return shown(parts, display)


def similarity_tsv(report: SimilarityReport) -> str:
    """A line for each pair of heads."""
    lines = [("stream", "layer", "head", "other_layer", "other_head", "divergence")]
    for place, (layer, head) in enumerate(report.heads):
        for other in range(place + 1, len(report.heads)):
            value = plain(float(report.divergences[place, other]))
            lines.append((report.stream, layer, head, *report.heads[other], value))
    return "".join("\t".join(map(escape, line)) + "\n" for line in lines)


def similarity_json(report: SimilarityReport) -> str:
    """{"schema", "caption", "heads": [{"layer", "head", "place"}], "divergences": [[…]], …}."""
    heads = [
        {"layer": layer, "head": head, "place": place}
        for (layer, head), place in zip(report.heads, report.places.tolist(), strict=True)
    ]
    document = {
        "schema": SCHEMA,
        "kind": "similarity",
        "caption": report.caption,
        "stream": report.stream,
        "texts": report.texts,
        "unit": "nats",
        "heads": heads,
        "divergences": report.divergences.tolist(),
        "plane_shows": report.shown,
        "provenance": asdict(report.provenance),
    }
    return dump_json(document) + "\n"


FEWEST = 10
"""Relations with fewer cases are for data only: some head is right about them by luck."""


def treebank_table(report: TreebankReport, display: Display) -> str:
    """For each relation the best fixed offset and the best head either way, bold where it wins."""
    sentences = f"{report.sentences} sentence{'s' * (report.sentences != 1)}"
    parts = paragraph(printable(f"{report.caption} · {sentences}"), display.width, "bold")
    heads = len({(finding.layer, finding.head) for finding in report.findings})
    reading = (
        f"share of cases that the best of {heads} heads (layer.head) gets right, picked on these "
        "very sentences; bold: more often than the best fixed offset"
    )
    parts += [*paragraph(reading, display.width, "dim"), Text()]
    relations = [item for item in report.relations if item.count >= FEWEST] or report.relations
    name = max([8, *(len(printable(item.name)) for item in relations)])
    best = {toward: _best(report, toward) for toward in ("head", "dependent")}
    cell = max([9, *(len(_cell(item)) for found in best.values() for item in found.values())])
    titles = ("→ head", "→ depend.")
    header = f"{'relation'.ljust(name)} {'cases':>6}  {'offset':>7}"
    header += "".join(f"  {title.rjust(cell)}" for title in titles)
    parts.append(Text(header, style="dim", no_wrap=True))
    for relation in relations:
        parts.append(
            _treebank_line(relation, [found[relation.name] for found in best.values()], name, cell)
        )
    few = len(report.relations) - len(relations)
    if few:
        what = "relation" if few == 1 else "relations"
        told = f"{few} {what} with fewer than {FEWEST} cases: -f tsv and -f json have them"
        parts += paragraph(told, display.width, "dim")
    return shown(parts, display)


def treebank_tsv(report: TreebankReport) -> str:
    """A line for each head, relation and direction."""
    relations = {relation.name: relation for relation in report.relations}
    columns = ("relation", "cases", "offset", "offset_share", "toward", "layer", "head", "share")
    lines = ["\t".join(columns)]
    for item in report.findings:
        of = relations[item.relation]
        known = (escape(of.name), str(of.count), str(of.offset), plain(of.by_offset))
        where = (item.toward, escape(item.layer), escape(item.head), plain(item.share))
        lines.append("\t".join((*known, *where)))
    return "\n".join(lines) + "\n"


def treebank_json(report: TreebankReport) -> str:
    """{"schema", "caption", "sentences", "relations": […], "findings": […], "provenance"}."""
    document = {
        "schema": SCHEMA,
        "kind": "treebank",
        "caption": report.caption,
        "sentences": report.sentences,
        "relations": [asdict(relation) for relation in report.relations],
        "findings": [asdict(finding) for finding in report.findings],
        "provenance": asdict(report.provenance),
        "notes": list(report.notes),
    }
    return dump_json(document) + "\n"


def _best(report: TreebankReport, toward: str) -> dict[str, Finding]:
    best: dict[str, Finding] = {}
    for finding in report.findings:
        if finding.toward == toward:
            best.setdefault(finding.relation, finding)
    return best


def _cell(finding: Finding) -> str:
    return f"{printable(finding.layer)}.{printable(finding.head)} {two_digits(finding.share)}"


def _treebank_line(relation: Relation, best: list[Finding], name: int, cell: int) -> Text:
    offset = f"{relation.offset:+d} {two_digits(relation.by_offset)}"
    line = Text(no_wrap=True)
    line.append(f"{printable(relation.name).ljust(name)} {relation.count:>6}  {offset:>7}")
    for finding in best:
        line.append("  ")
        line.append(
            _cell(finding).rjust(cell), style="bold" if finding.share > relation.by_offset else ""
        )
    return line
