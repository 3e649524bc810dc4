"""Effects of an ablation, and how faithful each lens is, as text, as rows, as JSON, as arrays."""

import math
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnviz.core.effects import Effect
from attnviz.features.ablate.report import (
    LENS_MEASURES,
    RANDOM,
    AblationReport,
    LensReport,
    LensRow,
    Prediction,
)
from attnviz.features.lenses.token_scores import LENS_SHARES
from attnviz.renderers import Display
from attnviz.renderers.data import fields_of, npz_bytes, tsv
from attnviz.renderers.printable import (
    UNKNOWN,
    all_digits,
    decimals,
    nats,
    printable,
    shorten,
    two_digits,
)
from attnviz.renderers.text.console import bar_of, introduction, more_note, render_parts, wrap_text
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import dump_json, report_json, to_report

READING = (
    "effect: log p of the output with it minus log p without it, in nats; above 0 it supports the "
    "output"
)
BAR = 20
SLIGHT = 0.05  # outputs that change by fewer nats are not listed
NO_VALUE = f"{UNKNOWN}: nothing else was left to see"
WORDS, NUMBERS = ("kind", "label", "stream", "layer", "side"), ("head", "query", "key", "position")
"""The fields that name the part of an effect: texts, then whole numbers."""


def ablation_table(report: AblationReport, top: int, show: Display) -> str:
    """The effects, the largest first, then the outputs and the written text before and after."""
    means = any(one.interval for one in report.effects)
    reading = (READING, report.instead, "behind each mean its 95 % interval" if means else "")
    caption = printable(report.caption)
    parts = introduction(caption, "; ".join(filter(None, reading)), show.width)
    order = sorted(report.effects, key=lambda one: (math.isnan(one.effect), -abs(one.effect)))
    joint = [report.together] if report.together and report.effect_sum else []
    parts += _bars([*joint, *report.effect_sum, *order[:top]], report.texts, show)
    parts += more_note(len(order), top, show.width)
    if report.predictions:
        parts += [Text(), *_predictions(report.predictions, show)]
    if report.wrote is not None:
        before, after = (printable(text.strip()) or "nothing" for text in report.wrote)
        # A causal model continues its text; others write one of their own.
        continues = report.maps.main.query_side == "text"
        was, now = ("went on", "goes on") if continues else ("wrote", "writes")
        lines = [f"it {was}:  {before}", f"it {now}: {after}"]
        parts.append(Text())
        for line in lines if before != after else [f"it still {now}: {after}"]:
            parts += wrap_text(line, show.width)
    return render_parts(parts, show)


def ablation_tsv(report: AblationReport) -> str:
    """A line for each effect: the part and its place, nats, interval and texts."""
    lines: list[tuple[str, ...]] = [columns_of("ablation")]
    for one in report.every:
        numbers = (one.effect, *(one.interval or (math.nan, math.nan)))
        places = (_place_field(one, name) for name in (*WORDS, *NUMBERS))
        lines.append((*places, *map(all_digits, numbers), str(one.texts)))
    return tsv(lines)


def ablation_json(report: AblationReport) -> str:
    return dump_json(_document(report)) + "\n"


def ablation_npz(report: AblationReport) -> bytes:
    """Arrays with an entry for each part, all parts together last, readable without pickle.

    "effect" and "interval" (low, high) are in nats, NaN where unknown; "of_outputs" has a column
    for each of "outputs". "kind", "label", "stream", "layer", "side" are texts; "head", "query",
    "key", "position" are numbers, -1 where unknown. "heads/STREAM" holds the effects of single
    heads, shape (layers, heads). Member "attnviz" is a list with the JSON document.
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
        **{name: np.array([_place_field(one, name) for one in every]) for name in WORDS},
        **{
            name: np.array([int(_place_field(one, name) or -1) for one in every])
            for name in NUMBERS
        },
        "attnviz": np.array(dump_json([_document(report)])),
    }
    for stream in {one.place["stream"]: None for one in report.effects if one.kind == "head"}:
        items = [item for item in report.maps.maps if item.stream == stream]
        layers = [layer for item in items for layer in item.layers]
        effects = np.full((len(layers), max(len(item.heads) for item in items)), np.nan)
        for one in report.effects:
            if one.kind == "head" and one.place["stream"] == stream:
                effects[layers.index(str(one.place["layer"])), int(one.place["head"])] = one.effect
        members[f"heads/{str(stream).replace('/', '_')}"] = effects
    return npz_bytes(**members)


def _document(report: AblationReport) -> dict[str, Any]:
    maps = report.maps
    texts = {"id": maps.id, "text": maps.text, "source": maps.source, "target": maps.target}
    return to_report(
        "ablation",
        **{name: text for name, text in texts.items() if report.texts == 1 and text is not None},
        caption=report.caption,
        unit="nats",
        **fields_of(report, "by reference texts explained effects together"),
        outputs=report.predictions,
        wrote=report.wrote and dict(zip(("before", "after"), report.wrote, strict=True)),
        **fields_of(report, "notes provenance"),
    )


def _place_field(effect: Effect, name: str) -> str:
    return str(getattr(effect, name) if name in WORDS[:2] else effect.place.get(name, ""))


def _bars(effects: Sequence[Effect], texts: int, show: Display) -> list[Text]:
    """A line for each effect: its name, nats, its interval and number of texts, and a bar."""
    most = max([SLIGHT, *(abs(one.effect) for one in effects if not math.isnan(one.effect))])
    ranges = [" to ".join(map(nats, one.interval or ())) for one in effects]
    if any(one.texts != texts for one in effects):
        counts = ["1 text" if one.texts == 1 else f"{one.texts} texts" for one in effects]
        ranges = ["  ".join(filter(None, two)) for two in zip(ranges, counts, strict=True)]
    wide = max(map(len, ranges))
    room = max(show.width - 12 - (wide + 2 if wide else 0), 12)
    names = [shorten(printable(one.label), min(room, 48)) for one in effects]
    width = max(map(cell_len, names))
    lines = []
    for one, name, between in zip(effects, names, ranges, strict=True):
        style = {"together": "bold", "sum": "dim"}.get(one.kind, "")
        line = Text(set_cell_size(name, width), style, no_wrap=True)
        lines.append(line)
        if math.isnan(one.effect):
            line.append(f"        {NO_VALUE}", "dim")
            continue
        line.append(f"  {nats(one.effect):>7}  ")
        line.append(f"{between:<{wide}}  " if wide else "", "dim")
        bar = bar_of(abs(one.effect) / most, max(min(BAR, room - width), 0))
        line.append(bar, "red" if one.effect < 0 else "blue")
    return lines


def _predictions(every: Sequence[Prediction], show: Display) -> list[Text]:
    """For each output that changed, its likeliest tokens before and after."""
    # NaN counts as a change.
    changes = [one for one in every if not abs(one.after - one.before) < SLIGHT]
    heading = f"outputs that changed by {SLIGHT} nats or more: {len(changes)} of {len(every)}"
    lines = wrap_text(heading, show.width, "dim")
    for one in changes:
        name = printable(one.name) + ("" if one.position is None else f" ({one.position})")
        change = f"{name}  log p {nats(one.before)} → {nats(one.after)}"
        lines += wrap_text(change, show.width, "bold")
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
                line.append("  " + set_cell_size(cell, width))
            lines.append(line)
    return lines


ABLATION = ablation_table, ablation_tsv, ablation_json
LENS_READING = (
    "rank correlation of each lens' scores of tokens, by size, with what hiding the token from all "
    "others changes in log p; comprehensiveness: nats lost where the tokens that it ranks highest "
    "are hidden (more is better), sufficiency: where they alone are kept (less is better)"
)
INTERVALS = "behind the correlation its 95 % interval over texts; those of all numbers: -f tsv"


def lenses_table(report: LensReport, show: Display) -> str:
    """A line for each lens, the highest correlation first, then the conclusion."""
    several = report.texts > 1
    reading = f"{LENS_READING}; {INTERVALS}" if several else LENS_READING
    parts = introduction(printable(report.caption), reading, show.width)
    wide = max(len(row.lens) for row in report.rows)
    room = 21 if several else 12
    shares = "".join(f"{share:>5} %" for share in LENS_SHARES)
    upper = f"{'':{wide}} {' rank':<{room}} comprehensiveness   sufficiency"
    lower = f"{'lens':<{wide}} {' correlation':<{room}}{shares}  {shares}"
    parts += (Text(line, "dim", no_wrap=True) for line in (upper, lower))
    for row in report.rows:
        if row.texts or not row.left_out:
            style = "dim" if row.lens == RANDOM else ""
            parts.append(Text(_line(row, wide, room), style, no_wrap=True))
    for row in report.rows:
        if row.left_out:
            parts += wrap_text(printable(f"{row.lens} left out: {row.left_out}"), show.width, "dim")
    parts += [Text(), *wrap_text(report.conclusion, show.width, "bold")]
    parts += wrap_text(report.rule, show.width, "dim") if several else []
    return render_parts(parts, show)


def _line(row: LensRow, wide: int, room: int) -> str:
    between = "" if math.isnan(row.low[0]) else f" ({row.low[0]:.2f} to {row.high[0]:.2f})"
    first = f"{decimals(row.mean[0]):>5}{between}"
    numbers = [UNKNOWN if math.isnan(one) else nats(one)[:6].rstrip(".") for one in row.mean[1:]]
    half = len(LENS_SHARES)
    blocks = ("".join(f"{one:>7}" for one in own) for own in (numbers[:half], numbers[half:]))
    return f"{row.lens:<{wide}} {first.replace('-', '−'):<{room}}{'  '.join(blocks)}"


def lenses_tsv(report: LensReport) -> str:
    """A line for each lens: each measure and the ends of its interval; empty where unknown."""
    ends = ("", "_low", "_high")
    names = [f"{measure}{end}" for measure in LENS_MEASURES for end in ends]
    lines: list[tuple[str, ...]] = [("lens", "texts", *names, "left_out")]
    for row in report.rows:
        numbers = chain(*zip(row.mean, row.low, row.high, strict=True))
        lines.append((row.lens, str(row.texts), *map(all_digits, numbers), row.left_out))
    return tsv(lines)


def lenses_json(report: LensReport) -> str:
    """One document: each lens, the conclusion and, of a single text, its tokens."""
    about = {"caption": report.caption, "unit": "nats", "texts": report.texts}
    about["lenses"] = [_lens(row) for row in report.rows]
    return report_json("lenses", **about, **fields_of(report, "conclusion rule tokens provenance"))


LENSES = lenses_table, lenses_tsv, lenses_json


def _lens(row: LensRow) -> dict[str, Any]:
    measures = {
        name: {"mean": mean, "low": low, "high": high}
        for name, mean, low, high in zip(LENS_MEASURES, row.mean, row.low, row.high, strict=True)
    }
    return {"lens": row.lens, "texts": row.texts, **measures, "left_out": row.left_out or None}
