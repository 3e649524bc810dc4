"""Heads as tables and data: their measures, likeness and relations."""

import math

import numpy as np
from rich.text import Text

from attnviz.core import measures
from attnviz.features.heads.similarity import SimilarityReport
from attnviz.features.measures.columns import (
    Column,
    format_measure,
    head_grid,
    measures_by_unit,
    no_room_note,
)
from attnviz.features.measures.study import HeadReport
from attnviz.renderers import Display
from attnviz.renderers.data import fields_of, tsv
from attnviz.renderers.printable import printable, shorten, six_digits, two_digits, with_sign
from attnviz.renderers.text import console
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import report_json

_ROLES = ("previous-token", "next-token", "self", "first-token", "special-token", "induction")
_OTHERS = ("entropy", "distance", "same-token", "sink", "confidence", "punctuation", "duplicate")
_SCORES = ("score-max", "score-mean", "score-std", "saturated", "query-norm", "key-norm")
_FIRST = (
    measures.EFFECT,
    measures.COPYING,
    *measures.PROBES,
    *_SCORES,
    "mass",
    "informative",
    "kv-likeness",
    *_ROLES,
    *_OTHERS,
)
"""The columns that a narrow table keeps first."""


def measures_table(report: HeadReport, display: Display, keep: str | None = None) -> str:
    """A line for each head under uniform attention, in the columns that fit; `keep` comes first."""
    headings = ["stream", "layer", "head", "role"]
    names = [[row.stream, row.layer, row.head, _name_roles(row)] for row in report.rows]
    if report.groups:  # the head of keys and values that a head shares
        headings.insert(3, "kv")
        for name, row in zip(names, report.rows, strict=True):
            name.insert(3, "" if row.kv is None else str(row.kv))
    if len({row.stream for row in report.rows}) == 1:
        headings, names = headings[1:], [name[1:] for name in names]
    names = [[*map(printable, name)] for name in names]
    columns = {meaning.name: _column(report, meaning) for meaning in report.measures}
    first = (keep, *_FIRST) if keep else _FIRST
    lines, left_out = head_grid(headings, names, columns, display, first)
    others = measures_by_unit(one for one in report.measures if one.name not in left_out)
    units = f"{', '.join(others)}, all else shares" if others else "numbers are shares"
    notes = (measures.mass_note(report.measures), measures.about_effects(report.provenance))
    reading = "; ".join(
        ["uniform: equal attention to all visible keys", units, *filter(None, notes)]
    )
    parts = [*console.introduction(printable(report.caption), reading, display.width), *lines]
    if any(row.writes for row in report.rows):
        parts += [Text(), *_writes_lines(report, display)]
    if report.groups:
        parts += [Text(), *console.wrap_text(printable(report.groups), display.width)]
    if report.sinks:
        parts += [Text(), *console.wrap_text(printable(report.sinks), display.width)]
    return console.render_parts([*parts, *no_room_note(left_out, display)], display)


def _writes_lines(report: HeadReport, display: Display) -> list[Text]:
    """One line for each head: the tokens that it argues for."""
    title = "tokens that each head argues for: what it adds to their logits, above the mean of all"
    lines = console.wrap_text(title, display.width, "dim")
    several = len({row.stream for row in report.rows}) > 1
    for row in report.rows:
        name = f"{row.stream} {row.layer}.{row.head}" if several else f"{row.layer}.{row.head}"
        words = " · ".join(f"{printable(one.token)} {with_sign(one.logit)}" for one in row.writes)
        line = f"{name}  {words or 'nothing: its stream predicts nothing'}"
        lines.append(Text(shorten(line, display.width), no_wrap=True))
    return lines


def _column(report: HeadReport, meaning: measures.Meaning) -> Column:
    values = [row.values.get(meaning.name, math.nan) for row in report.rows]
    even = [row.uniform.get(meaning.name, math.nan) for row in report.rows]
    cells = []
    for row, value in zip(report.rows, values, strict=True):
        low, high = row.intervals.get(meaning.name, (math.nan, math.nan))
        half = "" if math.isnan(high - low) else f"±{(high - low) / 2:.2f}"
        cells.append(format_measure(value, meaning) + half)
    return Column(
        meaning.short.rjust(5 if meaning.unit == "tokens" else 4),
        [format_measure(value, meaning) for value in even],
        cells,
        [0.0 if math.isnan(value) else max(value, 0.0) / meaning.top for value in values],
    )


def _name_roles(row: measures.HeadRow) -> str:
    acts, rests = row.clearest("acts"), row.clearest("rests")
    parts = [f"{acts.name} {two_digits(acts.share)}"] if acts else []
    if rests:
        place = rests.token or rests.name.replace("-", " ")
        parts.append(f"rests on {place} {two_digits(rests.share)}")
    return ", ".join(parts)


def measures_tsv(report: HeadReport) -> str:
    """A line for each head; beside each measure its interval or uniform attention's value."""
    names = [meaning.name for meaning in report.measures]
    header = ["stream", "layer", "head", "role", "role_share"]
    for name in names:
        beside = ("low", "high") if name == measures.EFFECT else ("uniform",)
        header += [name, *(f"{name}_{what}" for what in beside)]
    header += ["rests_on", "rests_share"]
    rows = [_fields(row, names) for row in report.rows]
    if any(row.writes for row in report.rows):
        header.append("writes")
        for fields, row in zip(rows, report.rows, strict=True):
            fields.append(" ".join(one.token for one in row.writes))
    return tsv([header, *rows])


def _fields(row: measures.HeadRow, names: list[str]) -> list[str]:
    fields = [row.stream, row.layer, row.head, *_role_fields(row.roles[0] if row.roles else None)]
    for name in names:
        beside = [row.uniform.get(name, math.nan)]
        if name == measures.EFFECT:
            beside = [*row.intervals.get(name, (math.nan, math.nan))]
        fields += map(six_digits, (row.values.get(name, math.nan), *beside))
    return [*fields, *_role_fields(row.clearest("rests"))]


def _role_fields(role: measures.Role | None) -> tuple[str, str]:
    return (role.name, six_digits(role.share)) if role else ("", "")


def measures_json(report: HeadReport) -> str:
    """One document: the measures, and for each head its roles, values and uniform values."""
    usual = "stream layer head roles values uniform intervals"
    usual += " kv" if report.groups else ""
    heads = [fields_of(row, f"{usual} writes" if row.writes else usual) for row in report.rows]
    about = fields_of(report, "caption texts sinks groups") | {
        "note": measures.mass_note(report.measures)
    }
    about |= {"measures": report.measures, "heads": heads, "provenance": report.provenance}
    return report_json("heads", **about)


_READING = (
    "divergence of where two heads look, in nats, rows made to sum to 1; 0: alike, .69: never at "
    "the same key"
)


def similarity_table(report: SimilarityReport, display: Display) -> str:
    """For each head the most similar heads, as many as fit."""
    names = [printable(f"{layer}.{head}") for layer, head in report.heads]
    width = max(len("head"), *map(len, names))
    entry = width + 7
    count = max(min((display.width - width - 2) // entry, len(names) - 1, 6), 1)
    parts = console.introduction(printable(report.caption), _READING, display.width)
    parts.append(Text(f"{'head'.rjust(width)}  looks most like (layer.head)", style="dim"))
    apart = report.divergences + np.diag(np.full(len(names), np.inf))
    for name, row in zip(names, apart, strict=True):
        line = Text(f"{name.rjust(width)}  ", no_wrap=True)
        neighbours = [place for place in np.argsort(row, kind="stable") if row[place] < np.inf]
        for other in neighbours[:count]:
            line.append(names[other].rjust(width), style="bold")
            line.append(f" {two_digits(float(row[other]))}".ljust(7))
        parts.append(line)
    return console.render_parts(parts, display)


def similarity_tsv(report: SimilarityReport) -> str:
    lines = [columns_of("similarity")]
    for place, (layer, head) in enumerate(report.heads):
        for other in range(place + 1, len(report.heads)):
            value = six_digits(float(report.divergences[place, other]))
            lines.append((report.stream, layer, head, *report.heads[other], value))
    return tsv(lines)


def similarity_json(report: SimilarityReport) -> str:
    """One document: the heads with their places in the plane, and the matrix of divergences."""
    heads = [
        {"layer": layer, "head": head, "place": place}
        for (layer, head), place in zip(report.heads, report.places.tolist(), strict=True)
    ]
    about = fields_of(report, "caption stream texts") | {"unit": "nats", "heads": heads}
    about |= {"divergences": report.divergences, "plane_shows": report.shown}
    return report_json("similarity", **about, provenance=report.provenance)


SIMILARITY = similarity_table, similarity_tsv, similarity_json
