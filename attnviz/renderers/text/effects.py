"""What was switched off and what that changed: for the eye, as rows and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from attnviz.core.effects import HOW, AblationReport, Effect, Prediction
from attnviz.renderers import Display
from attnviz.renderers.data.maps import tsv
from attnviz.renderers.printable import UNKNOWN, nats, printable, shorten, two_digits
from attnviz.renderers.text.console import paragraph, shown
from attnviz.storage.documents import dump_json

SCHEMA = 1
READING = (
    "effect: log p of the output with it minus log p without it, in nats; above 0 it supports the "
    "output"
)
BAR = 20
HALVES = "▏▎▍▌▋▊▉█"
SLIGHT = 0.05
"""Nats below which a change of an output is not listed."""
NO_VALUE = f"{UNKNOWN}: nothing else was left to see"


def ablation_table(report: AblationReport, top: int, show: Display) -> str:
    """The effects, the largest first, then what the outputs and the written text have become."""
    parts: list[Text] = []
    parts += paragraph(printable(report.caption), show.width, "bold")
    off = f"heads put out {HOW[report.by]} instead" if _has_heads(report) else ""
    parts += paragraph("; ".join([READING, *([off] if off else [])]), show.width, "dim")
    parts.append(Text())
    order = sorted(report.effects, key=_size)
    listed = order[:top]
    if report.together is not None:
        total = sum(one.effect for one in report.effects)
        sums = Effect(f"sum of the {len(order)} alone", "sum", {}, total)
        listed = [report.together, *([sums] if len(order) > 1 else []), *listed]
        if len(order) == 1:
            listed = listed[1:]
    parts += _bars(listed, show)
    if len(order) > top:
        more = f"and {len(order) - top} more: --top {len(order)}, or -f tsv"
        parts += paragraph(more, show.width, "dim")
    changed = [one for one in report.predictions if not abs(one.after - one.before) < SLIGHT]
    if report.predictions:
        parts += [Text(), *_predictions(changed, report.predictions, show)]
    if report.wrote is not None:
        parts += [Text(), *_written(report.wrote, show)]
    return shown(parts, show)


def ablation_tsv(report: AblationReport) -> str:
    """A line an effect: what was off, where it is, nats, interval and texts."""
    names = ("stream", "layer", "head", "query", "key", "side", "position")
    lines: list[tuple[str, ...]] = [
        ("kind", "label", *names, "effect_nats", "low", "high", "texts")
    ]
    for effect in _all(report):
        low, high = effect.interval or (math.nan, math.nan)
        place = tuple(str(effect.place.get(name, "")) for name in names)
        numbers = tuple("" if math.isnan(n) else repr(n) for n in (effect.effect, low, high))
        lines.append((effect.kind, effect.label, *place, *numbers, str(effect.texts)))
    return tsv(lines)


def ablation_json(report: AblationReport) -> str:
    """One document with every effect, every output before and after, and what was written."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "ablation",
        "caption": report.caption,
        "unit": "nats",
        "by": report.by,
        "texts": report.texts,
        "effects": [_effect(effect) for effect in report.effects],
        "together": None if report.together is None else _effect(report.together),
        "outputs": [asdict(one) for one in report.predictions],
        "wrote": report.wrote and dict(zip(("before", "after"), report.wrote, strict=True)),
        "notes": list(report.notes),
        "provenance": asdict(report.maps.provenance),
    }
    return dump_json(document) + "\n"


def _effect(effect: Effect) -> dict[str, Any]:
    found = {**asdict(effect), "effect": None if math.isnan(effect.effect) else effect.effect}
    return {**found, "of_outputs": [None if math.isnan(n) else n for n in effect.of_outputs]}


def _all(report: AblationReport) -> list[Effect]:
    return [*report.effects, *([] if report.together is None else [report.together])]


def _has_heads(report: AblationReport) -> bool:
    return any(effect.kind in ("head", "layer") for effect in report.effects)


def _size(effect: Effect) -> float:
    return math.inf if math.isnan(effect.effect) else -abs(effect.effect)


def _bars(effects: Sequence[Effect], show: Display) -> list[Text]:
    known = [abs(one.effect) for one in effects if not math.isnan(one.effect)]
    most = max(known, default=0.0) or 1.0
    ranges = [
        "" if one.interval is None else "{} to {}".format(*map(nats, one.interval))
        for one in effects
    ]
    wide = max(map(len, ranges), default=0)
    room = max(show.width - 12 - (wide + 2 if wide else 0), 12)
    names = [shorten(printable(one.label), min(room, 48)) for one in effects]
    width = max(map(cell_len, names))
    bar = max(min(BAR, room - width), 0)
    lines = []
    for one, name, between in zip(effects, names, ranges, strict=True):
        line = Text(name + " " * (width - cell_len(name)), no_wrap=True)
        if one.kind in ("together", "sum"):
            line.stylize("bold" if one.kind == "together" else "dim")
        if math.isnan(one.effect):
            lines.append(line.append(f"       {NO_VALUE}", "dim"))
            continue
        line.append(f"  {nats(one.effect):>6}  ")
        if wide:
            line.append(f"{between:<{wide}}  ", "dim")
        line.append(_bar(abs(one.effect) / most * bar), "red" if one.effect < 0 else "blue")
        lines.append(line)
    return lines


def _bar(length: float) -> str:
    eighths = round(length * 8)
    return "█" * (eighths // 8) + (HALVES[eighths % 8 - 1] if eighths % 8 else "")


def _predictions(
    changed: Sequence[Prediction], every: Sequence[Prediction], show: Display
) -> list[Text]:
    told = f"outputs that changed by {SLIGHT} nats or more: {len(changed)} of {len(every)}"
    lines = paragraph(told, show.width, "dim")
    for one in changed:
        name = printable(one.name) + ("" if one.position is None else f" ({one.position})")
        line = Text(f"{name}  log p {nats(one.before)} → {nats(one.after)}", style="bold")
        lines.append(line)
        for when, likeliest in (("before", one.likeliest_before), ("after", one.likeliest_after)):
            found = ", ".join(f"{printable(word)} {two_digits(p)}" for word, p in likeliest)
            lines += paragraph(f"  {when:<6} {found or UNKNOWN}", show.width)
    return lines


def _written(wrote: tuple[str, str], show: Display) -> list[Text]:
    before, after = map(printable, wrote)
    if before == after:
        return paragraph(f"it still writes: {before}", show.width)
    return [
        *paragraph(f"it wrote:  {before}", show.width),
        *paragraph(f"it writes: {after}", show.width),
    ]
