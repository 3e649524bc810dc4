"""Heads over the steps of a training run, as text, as rows and as JSON."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from rich.cells import set_cell_size
from rich.text import Text

from attnviz.core.measures import DRIFT, HISTORY, History
from attnviz.renderers import Display
from attnviz.renderers.data.maps import report_json, tsv
from attnviz.renderers.printable import (
    UNKNOWN,
    decimals,
    printable,
    short_paths,
    shorten,
    six_digits,
)
from attnviz.renderers.text.console import column_widths, introduction, render_parts
from attnviz.renderers.text.table import sparkline

READING = (
    "first sample→last; role at the last; entropy in nats, sink and previous token as shares of "
    "attention; drift: divergence from the sample before, in nats, over the steps and at the last"
)
SHORTEST_NAME = 10
"""Characters of a layer's name that a narrow table keeps at least."""
BARS = 10


def history_table(found: History, show: Display) -> str:
    """A line for each head: its role and measures in the first and last sample, and its drift."""
    short, common = short_paths([layer for _, layer, _ in found.heads])
    reading = f"layers: {printable(common)}; {READING}" if common else READING
    parts = introduction(printable(found.caption), reading, show.width)
    several = len({stream for stream, _, _ in found.heads}) > 1
    top = float(np.nan_to_num(found.values[DRIFT]).max())
    lines = [["layer", "head", "stream", "role", "entropy", "sink", "previous", DRIFT]]
    for number, (stream, layer, head) in enumerate(found.heads):
        cells = [_ends(found.values[measure][:, number]) for measure in HISTORY[:-1]]
        drift = np.nan_to_num(found.values[DRIFT][:, number])[1:]
        bars = sparkline(drift, min(len(drift), BARS), top) if len(drift) else ""
        cells.append(f"{bars} {decimals(found.values[DRIFT][-1, number], 4)}".strip())
        role = found.roles[-1][number] or UNKNOWN
        lines.append([printable(short[layer]), head, stream, role, *cells])
    if not several:
        for line in lines:
            del line[2]
    widths = column_widths(lines)
    room = show.width - sum(widths[1:]) - 2 * len(widths[1:])
    widths[0] = min(widths[0], max(room, SHORTEST_NAME))
    for line in lines:
        text = "  ".join(map(set_cell_size, map(shorten, line, widths), widths))
        parts.append(Text(text.rstrip(), "dim" if line is lines[0] else "", no_wrap=True))
    return render_parts(parts, show)


def _ends(values: NDArray[np.float64]) -> str:
    first, last = decimals(values[0]), decimals(values[-1])
    return first if first == last else f"{first}→{last}"


def history_tsv(found: History) -> str:
    """A line for each step and head; empty where there is no value."""
    lines: list[tuple[str, ...]] = [("step", "stream", "layer", "head", "role", *HISTORY)]
    for place, step in enumerate(found.steps):
        for number, head in enumerate(found.heads):
            numbers = (six_digits(float(found.values[name][place, number])) for name in HISTORY)
            lines.append((str(step), *head, found.roles[place][number], *numbers))
    return tsv(lines)


def history_json(found: History) -> str:
    """One document: the steps, and for each head its roles and measures at each step."""
    return report_json(
        "history",
        caption=found.caption,
        steps=found.steps,
        heads=[
            {
                **dict(zip(("stream", "layer", "head"), head, strict=True)),
                "roles": [of_step[number] or None for of_step in found.roles],
                **{
                    name: [None if np.isnan(one) else one for one in values[:, number].tolist()]
                    for name, values in found.values.items()
                },
            }
            for number, head in enumerate(found.heads)
        ],
        notes=found.notes,
        provenance=asdict(found.provenance),
    )
