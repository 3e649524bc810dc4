"""What was switched off and what that changed: for the eye, as rows, as JSON and as arrays."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from attnviz.core.effects import AblationReport, Effect, Prediction
from attnviz.renderers import Display
from attnviz.renderers.data.maps import SCHEMA, tsv
from attnviz.renderers.printable import UNKNOWN, exact, nats, printable, shorten, two_digits
from attnviz.renderers.text.console import paragraph, shown
from attnviz.storage.documents import dump_json

READING = (
    "effect: log p of the output with it minus log p without it, in nats; above 0 it supports the "
    "output"
)
BAR = 20
EIGHTHS = " ▏▎▍▌▋▊▉█"
SLIGHT = 0.05
"""Nats below which a change of an output is not listed."""
NO_VALUE = f"{UNKNOWN}: nothing else was left to see"
WORDS, NUMBERS = ("kind", "label", "stream", "layer", "side"), ("head", "query", "key", "position")
"""What an effect is of, and where that is."""


def ablation_table(report: AblationReport, top: int, show: Display) -> str:
    """The effects, the largest first, then what the outputs and the written text have become."""
    means = any(one.interval for one in report.effects)
    told = (READING, report.instead, "behind each mean its 95 % interval" if means else "")
    parts = [
        *paragraph(printable(report.caption), show.width, "bold"),
        *paragraph("; ".join(filter(None, told)), show.width, "dim"),
        Text(),
    ]
    order = sorted(report.effects, key=lambda one: (math.isnan(one.effect), -abs(one.effect)))
    joint = [report.together] if report.together and report.summed else []
    parts += _bars([*joint, *report.summed, *order[:top]], report.texts, show)
    if len(order) > top:
        more = f"and {len(order) - top} more: --top {len(order)}, or -f tsv"
        parts += paragraph(more, show.width, "dim")
    if report.predictions:
        parts += [Text(), *_predictions(report.predictions, show)]
    if report.wrote is not None:
        before, after = (printable(text.strip()) or "nothing" for text in report.wrote)
        # A causal model goes on after its text.
        on = report.maps.main.query_side == "text"
        was, now = ("went on", "goes on") if on else ("wrote", "writes")
        lines = [f"it {was}:  {before}", f"it {now}: {after}"]
        parts.append(Text())
        for line in lines if before != after else [f"it still {now}: {after}"]:
            parts += paragraph(line, show.width)
    return shown(parts, show)


def ablation_tsv(report: AblationReport) -> str:
    """A line an effect: what was off, where it is, nats, interval and texts."""
    lines: list[tuple[str, ...]] = [(*WORDS, *NUMBERS, "effect_nats", "low", "high", "texts")]
    for one in report.every:
        numbers = (one.effect, *(one.interval or (math.nan, math.nan)))
        places = (_at(one, name) for name in (*WORDS, *NUMBERS))
        lines.append((*places, *map(exact, numbers), str(one.texts)))
    return tsv(lines)


def ablation_json(report: AblationReport) -> str:
    """One document with every effect, every output before and after, and what was written."""
    return dump_json(_document(report)) + "\n"


def ablation_npz(report: AblationReport) -> bytes:
    """Arrays with an entry a part, all together last, readable without pickle.

    "effect" and "interval" (low, high) are in nats, NaN where there is none, "of_outputs" has a
    column for each of "outputs". "kind", "label", "stream", "layer", "side" are texts; "head",
    "query", "key", "position" numbers, -1 where they say nothing. "heads/STREAM" holds the effects
    of single heads as (layers, heads). Member "attnviz" is a list of the one JSON document.
    """
    every = report.every
    outputs = np.full((len(every), len(report.explained)), np.nan)
    for row, one in zip(outputs, every, strict=True):
        row[: len(one.of_outputs)] = one.of_outputs
    members: dict[str, Any] = {
        "effect": np.array([one.effect for one in every]),
        "interval": np.array([one.interval or (np.nan, np.nan) for one in every]),
        "texts": np.array([one.texts for one in every]),
        "of_outputs": outputs,
        "outputs": np.array(report.explained, dtype=str),
        **{name: np.array([_at(one, name) for one in every]) for name in WORDS},
        **{name: np.array([int(_at(one, name) or -1) for one in every]) for name in NUMBERS},
        "attnviz": np.array(dump_json([_document(report)])),
    }
    for stream in {one.place["stream"]: None for one in report.effects if one.kind == "head"}:
        items = [item for item in report.maps.maps if item.stream == stream]
        layers = [layer for item in items for layer in item.layers]
        found = np.full((len(layers), max(len(item.heads) for item in items)), np.nan)
        for one in report.effects:
            if one.kind == "head" and one.place["stream"] == stream:
                found[layers.index(str(one.place["layer"])), int(one.place["head"])] = one.effect
        members[f"heads/{str(stream).replace('/', '_')}"] = found
    file = io.BytesIO()
    np.savez_compressed(file, **members)
    return file.getvalue()


def _document(report: AblationReport) -> dict[str, Any]:
    maps = report.maps
    texts = {"id": maps.id, "text": maps.text, "source": maps.source, "target": maps.target}
    return {
        "schema": SCHEMA,
        "kind": "ablation",
        **{name: text for name, text in texts.items() if report.texts == 1 and text is not None},
        "caption": report.caption,
        "unit": "nats",
        "by": report.by,
        "reference": report.reference,
        "texts": report.texts,
        "explained": list(report.explained),
        "effects": [asdict(effect) for effect in report.effects],
        "together": report.together and asdict(report.together),
        "outputs": [asdict(one) for one in report.predictions],
        "wrote": report.wrote and dict(zip(("before", "after"), report.wrote, strict=True)),
        "notes": list(report.notes),
        "provenance": asdict(maps.provenance),
    }


def _at(effect: Effect, name: str) -> str:
    return str(getattr(effect, name) if name in WORDS[:2] else effect.place.get(name, ""))


def _bars(effects: Sequence[Effect], texts: int, show: Display) -> list[Text]:
    """A line an effect: its name, nats, its interval and texts where there are several, a bar."""
    most = max([SLIGHT, *(abs(one.effect) for one in effects if not math.isnan(one.effect))])
    ranges = [" to ".join(map(nats, one.interval or ())) for one in effects]
    if any(one.texts != texts for one in effects):
        counts = [f"  {one.texts} text{'s' * (one.texts != 1)}" for one in effects]
        ranges = [(a + b).strip() for a, b in zip(ranges, counts, strict=True)]
    wide = max(map(len, ranges))
    room = max(show.width - 12 - (wide + 2 if wide else 0), 12)
    names = [shorten(printable(one.label), min(room, 48)) for one in effects]
    width = max(map(cell_len, names))
    lines = []
    for one, name, between in zip(effects, names, ranges, strict=True):
        style = {"together": "bold", "sum": "dim"}.get(one.kind, "")
        line = Text(name + " " * (width - cell_len(name)), style, no_wrap=True)
        lines.append(line)
        if math.isnan(one.effect):
            line.append(f"       {NO_VALUE}", "dim")
            continue
        line.append(f"  {nats(one.effect):>6}  ")
        line.append(f"{between:<{wide}}  " if wide else "", "dim")
        eighths = round(abs(one.effect) / most * max(min(BAR, room - width), 0) * 8)
        bar = "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
        line.append(bar, "red" if one.effect < 0 else "blue")
    return lines


def _predictions(every: Sequence[Prediction], show: Display) -> list[Text]:
    """The likeliest choices before and after, of each output that changed."""
    changed = [one for one in every if not abs(one.after - one.before) < SLIGHT]
    told = f"outputs that changed by {SLIGHT} nats or more: {len(changed)} of {len(every)}"
    lines = paragraph(told, show.width, "dim")
    for one in changed:
        name = printable(one.name) + ("" if one.position is None else f" ({one.position})")
        told = f"{name}  log p {nats(one.before)} → {nats(one.after)}"
        lines += paragraph(told, show.width, "bold")
        rows = [
            [f"{two_digits(p)} {printable(word)}" for word, p in likeliest] or [UNKNOWN]
            for likeliest in (one.likeliest_before, one.likeliest_after)
        ]
        widths = [max(map(cell_len, column)) for column in zip_longest(*rows, fillvalue="")]
        for when, row in zip(("before", "after"), rows, strict=True):
            line = Text(f"  {when:<6}")
            for cell, width in zip(row, widths, strict=False):
                if line.cell_len > 8 and line.cell_len + 2 + cell_len(cell) > show.width:
                    lines.append(line)
                    line = Text(" " * 8)
                line.append("  " + cell + " " * (width - cell_len(cell)))
            lines.append(line)
    return lines
