"""Comparisons of two maps, or of effects in two models, as text, as rows and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.cells import set_cell_size
from rich.text import Text

from attnviz.core.attention_map import Provenance
from attnviz.core.measures import format_weight
from attnviz.features.compare.report import Comparison, EffectComparison, HeadChange
from attnviz.renderers import Display, data
from attnviz.renderers.printable import all_digits, nats, printable, shorten
from attnviz.renderers.text.console import column_widths, more_note, render_parts, wrap_text
from attnviz.renderers.text.link_list import name_tokens, place_of
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import report_json

READING = "mean Jensen–Shannon divergence of a head's rows, in nats; 0: alike, 0.693: no common key"
BAR = 20


def comparison_table(report: Comparison, captions: tuple[str, str], top: int, show: Display) -> str:
    """A and B, the `top` heads that differ most, and the links that changed most."""
    parts: list[Text] = []
    for side, caption in zip("AB", captions, strict=True):
        parts += wrap_text(f"{side}  {printable(caption)}", show.width, "bold")
    for note in report.notes:
        parts += wrap_text(printable(note), show.width, "dim")
    parts += [Text(), *wrap_text(READING, show.width, "dim")]
    # Heads without a divergence come last.
    values = np.nan_to_num(report.divergences.ravel(), nan=-1.0)
    order: list[int] = np.argsort(-values, kind="stable").tolist()
    labels = [head_name(report, position) for position in order[:top]]
    width = max(map(len, labels))
    bar = max(min(BAR, show.width - width - 9), 0)
    for label, position in zip(labels, order, strict=False):
        value = float(report.divergences.ravel()[position])
        is_number = not math.isnan(value)
        blocks = "█" * round(value / np.log(2) * bar) if is_number else "no row to compare"
        parts.append(Text(f"{label.ljust(width)}  {value:.3f}  {blocks}"))
    parts += more_note(len(order), top, 80)
    parts += [Text(), Text("links that changed most (A → B)", style="dim")]
    return render_parts([*parts, *_link_lines(report)], show)


def comparison_tsv(report: Comparison) -> str:
    lines = [columns_of("comparison")]
    for (a, b), value in zip(report.heads, report.divergences.ravel().tolist(), strict=True):
        lines.append((*a, *b, all_digits(value)))
    return data.tsv(lines)


def comparison_json(report: Comparison, sides: tuple[tuple[str, Provenance], ...]) -> str:
    """One document: both sides, a divergence for each head, and the links that changed most."""
    heads = []
    for (a, b), value in zip(report.heads, report.divergences.ravel().tolist(), strict=True):
        ends = ({"layer": layer, "head": head} for layer, head in (a, b))
        heads.append({**dict(zip("ab", ends, strict=True)), "divergence": value})
    about = {**_sides(sides), "stream": report.map.stream, "unit": "nats", "heads": heads}
    links = [_link(change) for change in report.changes]
    return report_json("comparison", **about, links=links, notes=report.notes)


def _sides(sides: Sequence[tuple[str, Provenance]]) -> dict[str, Any]:
    return {
        name: {"caption": caption, "provenance": provenance}
        for name, (caption, provenance) in zip("ab", sides, strict=True)
    }


def effects_table(report: EffectComparison, top: int, show: Display) -> str:
    """A and B, the rank correlation of their effects, and the `top` parts that differ most."""
    parts: list[Text] = []
    for name, side in zip("AB", report.sides, strict=True):
        caption = " · ".join(filter(None, (f"{name}  {printable(side.caption)}", side.instead)))
        parts += wrap_text(caption, show.width, "bold")
    common = sum(None not in pair for pair in report.pairs)
    reading = f"effects in nats (log p with it minus log p without it) of {common} parts of both"
    if not math.isnan(report.correlation):
        reading += f"; their rank correlation is {report.correlation:.2f}"
    only = [sum(pair[side] is None for pair in report.pairs) for side in (1, 0)]
    if any(only):
        reading += f"; parts only in A: {only[0]}, only in B: {only[1]}"
    parts += [*wrap_text(reading, show.width, "dim"), Text()]
    order = sorted(_effect_rows(report), key=lambda row: (math.isnan(row[4]), -abs(row[4])))
    rows = [
        (shorten(printable(label), max(min(show.width - 26, 48), 8)), *map(nats, numbers))
        for _, label, *numbers in order[:top]
    ]
    rows = [("", "A", "B", "B − A"), *rows]
    first, *widths = column_widths(rows)
    for name, *numbers in rows:
        line = "  ".join([set_cell_size(name, first), *map(str.rjust, numbers, widths)])
        parts.append(Text(line, "" if name else "dim", no_wrap=True))
    return render_parts([*parts, *more_note(len(order), top, show.width)], show)


def effects_tsv(report: EffectComparison) -> str:
    """A line for each part; a field is empty where a part has no effect or one side lacks it."""
    lines: list[Sequence[str]] = [columns_of("ablation-comparison")]
    for kind, label, *numbers in _effect_rows(report):
        lines.append((kind, label, *map(all_digits, numbers)))
    return data.tsv(lines)


def effects_json(report: EffectComparison) -> str:
    """One document: both sides, the rank correlation, and each part's effects and their change."""
    fields = ("kind", "label", "a", "b", "change")
    return report_json(
        "ablation comparison",
        **_sides([(side.caption, side.provenance) for side in report.sides]),
        unit="nats",
        rank_correlation=report.correlation,
        effects=[dict(zip(fields, row, strict=True)) for row in _effect_rows(report)],
        only_in_a=[one.label for one, other in report.pairs if one and not other],
        only_in_b=[other.label for one, other in report.pairs if other and not one],
    )


EFFECTS = effects_table, effects_tsv, effects_json


def _effect_rows(report: EffectComparison) -> list[tuple[str, str, float, float, float]]:
    """Kind, label, the effect in A and in B, and the change; NaN where there is none."""
    rows = []
    for pair in report.pairs:
        one = next(filter(None, pair))
        a, b = (math.nan if side is None else side.effect for side in pair)
        rows.append((one.kind, one.label, a, b, b - a))
    return rows


def head_name(report: Comparison, position: int) -> str:
    """The name of a head of A, and of B's head if that is another."""
    both = dict.fromkeys(report.heads[position])
    return printable(" → ".join(f"layer {layer} head {head}" for layer, head in both))


def _link_lines(report: Comparison) -> list[Text]:
    if not report.changes:
        return [Text("none: every weight is the same")]
    queries, keys = name_tokens(report.map.query_tokens), name_tokens(report.map.key_tokens)
    rows = [
        (
            f"{queries[change.link.query_position]} → {keys[change.link.key_position]}",
            f"{format_weight(change.before)} → {format_weight(change.after)}",
            format_weight(change.link.weight, signed=True),
            place_of(change.link),
        )
        for change in report.changes
    ]
    widths = column_widths(rows)
    return [Text("  ".join(map(set_cell_size, row, widths)).rstrip()) for row in rows]


def _link(change: HeadChange) -> dict[str, Any]:
    link = data.fields_of(change.link, "query query_position key key_position layer head")
    return {**link, "a": change.before, "b": change.after, "change": change.link.weight}
