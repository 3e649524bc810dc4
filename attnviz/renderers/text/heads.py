"""Heads as tables and data: their measures, which look alike, which find syntactic relations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict

import numpy as np
from rich.text import Text

from attnviz.core.measures import (
    EFFECT,
    Finding,
    HeadReport,
    HeadRow,
    Meaning,
    Relation,
    SimilarityReport,
    TreebankReport,
    about_effects,
    mass_note,
)
from attnviz.renderers import Display
from attnviz.renderers.data.heads import plain
from attnviz.renderers.data.maps import report_json, tsv
from attnviz.renderers.printable import number, printable, two_digits
from attnviz.renderers.text.console import Column, grid, no_room, paragraph, shown

# What a narrow table keeps first.
_FIRST = (
    EFFECT,
    *("mass", "previous-token", "next-token", "self", "first-token", "special-token", "induction"),
    *("entropy", "distance", "same-token", "sink", "confidence", "punctuation", "duplicate"),
)


def measures_table(report: HeadReport, display: Display, keep: str | None = None) -> str:
    """A line for each head under lines for uniform attention, in as many columns as fit.

    The measure `keep` is never left out.
    """
    several = len({row.stream for row in report.rows}) > 1
    headings = ("stream", "layer", "head", "role")[not several :]
    names = [
        tuple(map(printable, (row.stream, row.layer, row.head, _role(row))))[not several :]
        for row in report.rows
    ]
    columns = {meaning.name: _column(report, meaning) for meaning in report.measures}
    first = (keep, *_FIRST) if keep else _FIRST
    lines, left_out = grid(headings, names, columns, display, first)
    kept = [meaning for meaning in report.measures if meaning.name not in left_out]
    others = in_units(kept)
    told = f"{', '.join(others)}, all else shares" if others else "numbers are shares"
    notes = (mass_note(report.measures), about_effects(report.provenance))
    reading = "; ".join(["uniform: all it may see attended to alike", told, *filter(None, notes)])
    parts = paragraph(printable(report.caption), display.width, "bold")
    parts += [*paragraph(reading, display.width, "dim"), Text(), *lines]
    if report.sinks:
        parts += [Text(), *paragraph(printable(report.sinks), display.width)]
    return shown([*parts, *no_room(left_out, display)], display)


def _column(report: HeadReport, meaning: Meaning) -> Column:
    found = [row.values.get(meaning.name, math.nan) for row in report.rows]
    even = [row.uniform.get(meaning.name, math.nan) for row in report.rows]
    return Column(
        meaning.short.rjust(5 if meaning.unit == "tokens" else 4),
        [number(value, meaning) for value in even],
        [_measured(row, value, meaning) for row, value in zip(report.rows, found, strict=True)],
        [0.0 if math.isnan(value) else max(value, 0.0) / meaning.top for value in found],
    )


def _measured(row: HeadRow, value: float, meaning: Meaning) -> str:
    """A number, of a mean over texts with half its interval."""
    low, high = row.intervals.get(meaning.name, (math.nan, math.nan))
    half = "" if math.isnan(high - low) else f"±{(high - low) / 2:.2f}"
    return number(value, meaning) + half


def in_units(measures: Iterable[Meaning]) -> list[str]:
    """The measures that are no shares, such as "entropy in nats"."""
    names: dict[str, list[str]] = {}
    for meaning in measures:
        if meaning.unit != "share":
            names.setdefault(meaning.unit, []).append(meaning.name)
    return [f"{' and '.join(found)} in {unit}" for unit, found in names.items()]


def _role(row: HeadRow) -> str:
    acts, rests = row.clearest("acts"), row.clearest("rests")
    parts = [f"{acts.name} {two_digits(acts.share)}"] if acts else []
    if rests:
        parts.append(f"rests on {rests.name.replace('-', ' ')} {two_digits(rests.share)}")
    return ", ".join(parts)


_READING = (
    "divergence of where two heads look, in nats, rows made to sum to 1; 0: alike, .69: never at "
    "the same key"
)


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
        known = [place for place in np.argsort(row, kind="stable") if row[place] < np.inf]
        for other in known[:count]:
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
    return tsv(lines)


def similarity_json(report: SimilarityReport) -> str:
    """{"schema", "caption", "heads": [{"layer", "head", "place"}], "divergences": [[…]], …}."""
    heads = [
        {"layer": layer, "head": head, "place": place}
        for (layer, head), place in zip(report.heads, report.places.tolist(), strict=True)
    ]
    return report_json(
        "similarity",
        caption=report.caption,
        stream=report.stream,
        texts=report.texts,
        unit="nats",
        heads=heads,
        divergences=report.divergences.tolist(),
        plane_shows=report.shown,
        provenance=asdict(report.provenance),
    )


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
    lines = [columns]
    for item in report.findings:
        of = relations[item.relation]
        known = (of.name, str(of.count), str(of.offset), plain(of.by_offset))
        lines.append((*known, item.toward, item.layer, item.head, plain(item.share)))
    return tsv(lines)


def treebank_json(report: TreebankReport) -> str:
    """{"schema", "caption", "sentences", "relations": […], "findings": […], "provenance"}."""
    return report_json(
        "treebank",
        caption=report.caption,
        sentences=report.sentences,
        relations=[asdict(relation) for relation in report.relations],
        findings=[asdict(finding) for finding in report.findings],
        provenance=asdict(report.provenance),
        notes=list(report.notes),
    )


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
