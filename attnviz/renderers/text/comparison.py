"""A comparison for the eye, as tab-separated rows a head, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from attnviz.core.attention_map import Provenance
from attnviz.core.effects import EffectComparison
from attnviz.core.measures import Comparison, HeadChange
from attnviz.renderers import Display
from attnviz.renderers.data.maps import report_json, tsv
from attnviz.renderers.printable import exact, nats, printable, shorten
from attnviz.renderers.text.console import paragraph, shown
from attnviz.renderers.text.links import amount, names, place

READING = "mean Jensen–Shannon divergence of a head's rows, in nats; 0: alike, 0.693: no common key"
BAR = 20


def comparison_table(found: Comparison, captions: tuple[str, str], top: int, show: Display) -> str:
    """What A and B are, the `top` heads that differ most, and the links that changed most."""
    parts: list[Text] = []
    for side, caption in zip("AB", captions, strict=True):
        parts += paragraph(f"{side}  {printable(caption)}", show.width, "bold")
    for note in found.notes:
        parts += paragraph(printable(note), show.width, "dim")
    parts += [Text(), *paragraph(READING, show.width, "dim")]
    # Heads without a divergence come last.
    values = np.nan_to_num(found.divergences.ravel(), nan=-1.0)
    order: list[int] = np.argsort(-values, kind="stable").tolist()
    labels = [head_name(found, position) for position in order[:top]]
    width = max(map(len, labels))
    bar = max(min(BAR, show.width - width - 9), 0)
    for label, position in zip(labels, order, strict=False):
        value = float(found.divergences.ravel()[position])
        blocks = "█" * round(value / np.log(2) * bar) if value == value else "no row to compare"
        parts.append(Text(f"{label.ljust(width)}  {value:.3f}  {blocks}"))
    parts += more(len(order), top, 80)
    parts += [Text(), Text("links that changed most (A → B)", style="dim")]
    parts += _links(found)
    return shown(parts, show)


def comparison_tsv(found: Comparison) -> str:
    """A line a head, in the order of the map."""
    lines = [("layer_a", "head_a", "layer_b", "head_b", "divergence_nats")]
    for (a, b), value in zip(found.heads, found.divergences.ravel().tolist(), strict=True):
        lines.append((*a, *b, exact(value)))
    return tsv(lines)


def comparison_json(found: Comparison, sides: tuple[tuple[str, Provenance], ...]) -> str:
    """One document: both sides, a divergence a head, and the links that changed most."""
    heads = [
        {
            **{side: {"layer": at[0], "head": at[1]} for side, at in zip("ab", pair, strict=True)},
            "divergence": value,
        }
        for pair, value in zip(found.heads, found.divergences.ravel().tolist(), strict=True)
    ]
    return report_json(
        "comparison",
        **_sides(sides),
        stream=found.map.stream,
        unit="nats",
        heads=heads,
        links=[_link(change) for change in found.changes],
        notes=list(found.notes),
    )


def _sides(sides: Sequence[tuple[str, Provenance]]) -> dict[str, Any]:
    return {
        name: {"caption": caption, "provenance": asdict(provenance)}
        for name, (caption, provenance) in zip("ab", sides, strict=True)
    }


def effects_table(found: EffectComparison, top: int, show: Display) -> str:
    """What A and B are, how their effects rank alike, and the `top` parts that differ most."""
    parts: list[Text] = []
    for name, side in zip("AB", found.sides, strict=True):
        told = " · ".join(filter(None, (f"{name}  {printable(side.caption)}", side.instead)))
        parts += paragraph(told, show.width, "bold")
    common = sum(None not in pair for pair in found.pairs)
    told = f"effects in nats (log p with it minus log p without it) of {common} parts of both"
    if not math.isnan(found.correlation):
        told += f"; their rank correlation is {found.correlation:.2f}"
    only = [sum(pair[side] is None for pair in found.pairs) for side in (1, 0)]
    if any(only):
        told += f"; parts only in A: {only[0]}, only in B: {only[1]}"
    parts += [*paragraph(told, show.width, "dim"), Text()]
    order = sorted(_effect_rows(found), key=lambda row: (math.isnan(row[4]), -abs(row[4])))
    rows = [
        (shorten(printable(label), max(min(show.width - 26, 48), 8)), *map(nats, numbers))
        for _, label, *numbers in order[:top]
    ]
    rows = [("", "A", "B", "B − A"), *rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        padded = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        spelt = "  ".join([name + " " * (widths[0] - cell_len(name)), *padded])
        parts.append(Text(spelt, "" if name else "dim", no_wrap=True))
    return shown([*parts, *more(len(order), top, show.width)], show)


def more(count: int, top: int, width: int) -> list[Text]:
    """How to see those that a table leaves out, if any."""
    told = f"and {count - top} more: --top {count} or -f tsv"
    return paragraph(told, width, "dim") if count > top else []


def effects_tsv(found: EffectComparison) -> str:
    """A line a part; nothing where it has no effect, or is not in one of them."""
    lines: list[Sequence[str]] = [("kind", "label", "a_nats", "b_nats", "change_nats")]
    for kind, label, *numbers in _effect_rows(found):
        lines.append((kind, label, *map(exact, numbers)))
    return tsv(lines)


def effects_json(found: EffectComparison) -> str:
    """One document: both sides, the rank correlation, and each part's effects and their change."""
    names_of = ("kind", "label", "a", "b", "change")
    return report_json(
        "ablation comparison",
        **_sides([(side.caption, side.provenance) for side in found.sides]),
        unit="nats",
        rank_correlation=found.correlation,
        effects=[dict(zip(names_of, row, strict=True)) for row in _effect_rows(found)],
        only_in_a=[one.label for one, other in found.pairs if one and not other],
        only_in_b=[other.label for one, other in found.pairs if other and not one],
    )


def _effect_rows(found: EffectComparison) -> list[tuple[str, str, float, float, float]]:
    """Kind, label, the effect in A, in B, and the change; NaN where there is none."""
    rows = []
    for pair in found.pairs:
        one = next(filter(None, pair))
        a, b = (math.nan if side is None else side.effect for side in pair)
        rows.append((one.kind, one.label, a, b, b - a))
    return rows


def head_name(found: Comparison, position: int) -> str:
    """A head of A, and of B where that is another."""
    a, b = found.heads[position]
    spelt = [f"layer {layer} head {head}" for layer, head in dict.fromkeys((a, b))]
    return printable(" → ".join(spelt))


def _links(found: Comparison) -> list[Text]:
    if not found.changes:
        return [Text("none: every weight is the same")]
    queries, keys = names(found.map.query_tokens), names(found.map.key_tokens)
    rows = [
        (
            f"{queries[change.link.query_position]} → {keys[change.link.key_position]}",
            f"{amount(change.before)} → {amount(change.after)}",
            amount(change.link.weight, signed=True),
            place(change.link),
        )
        for change in found.changes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        Text("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]))
        for row in rows
    ]


def _link(change: HeadChange) -> dict[str, Any]:
    names_of = ("query", "query_position", "key", "key_position", "layer", "head")
    place = {name: getattr(change.link, name) for name in names_of}
    return {**place, "a": change.before, "b": change.after, "change": change.link.weight}
