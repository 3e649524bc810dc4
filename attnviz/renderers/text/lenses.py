"""How faithful each lens is, as text, as rows and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import chain
from typing import Any

from rich.text import Text

from attnviz.core.effects import LENS_MEASURES, LENS_SHARES, RANDOM, LensReport, LensRow
from attnviz.renderers import Display
from attnviz.renderers.data.maps import report_json, tsv
from attnviz.renderers.printable import UNKNOWN, all_digits, decimals, nats, printable
from attnviz.renderers.text.console import introduction, render_parts, wrap_text

READING = (
    "rank correlation of each lens' scores of tokens, by size, with what hiding the token from all "
    "others changes in log p; comprehensiveness: nats lost where the tokens that it ranks highest "
    "are hidden (more is better), sufficiency: where they alone are kept (less is better)"
)
INTERVALS = "behind the correlation its 95 % interval over texts; those of all numbers: -f tsv"


def lenses_table(report: LensReport, show: Display) -> str:
    """A line for each lens, the highest correlation first, then the conclusion."""
    several = report.texts > 1
    reading = f"{READING}; {INTERVALS}" if several else READING
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
    return report_json(
        "lenses",
        caption=report.caption,
        unit="nats",
        texts=report.texts,
        lenses=[_lens(row) for row in report.rows],
        conclusion=report.conclusion,
        rule=report.rule,
        tokens=[*report.tokens],
        provenance=asdict(report.provenance),
    )


def _lens(row: LensRow) -> dict[str, Any]:
    measures = {
        name: {"mean": mean, "low": low, "high": high}
        for name, mean, low, high in zip(LENS_MEASURES, row.mean, row.low, row.high, strict=True)
    }
    return {"lens": row.lens, "texts": row.texts, **measures, "left_out": row.left_out or None}
