"""What heads did over a run of training, as a table, as rows and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import set_cell_size
from rich.text import Text

from attnviz.core.registry import MEASURES
from attnviz.features.compare.report import DRIFT, HISTORY, RULES, History, verdict_lines
from attnviz.renderers import Display, data
from attnviz.renderers.printable import (
    UNKNOWN,
    decimals,
    printable,
    short_paths,
    shorten,
    six_digits,
)
from attnviz.renderers.text import console, table
from attnviz.storage.documents import report_json

READING = (
    "first sample→last; role at the last; entropy in nats, sink as a share of attention, the "
    "largest score; drift: divergence from the sample before, in nats, over the steps, at the last"
)

SHOWN = ("entropy", "sink", "score-max")
SHORTEST_NAME = 10  # characters of a layer's name that a narrow table keeps at least
BARS = 10


def _runs(history: History | tuple[History, ...]) -> tuple[History, ...]:
    return history if isinstance(history, tuple) else (history,)


def history_table(history: History | tuple[History, ...], show: Display) -> str:
    """A line for each head: its role, measures and drift; below, the verdicts with their rules."""
    return "\n".join(_history_lines(one, show) for one in _runs(history))


def _history_lines(run: History, show: Display) -> str:
    short, common = short_paths([layer for _, layer, _ in run.heads])
    reading = f"layers: {printable(common)}; {READING}" if common else READING
    caption = f"{run.run}: {run.caption}" if run.run else run.caption
    parts = console.introduction(printable(caption), reading, show.width)
    several = len({stream for stream, _, _ in run.heads}) > 1
    top = float(np.nan_to_num(run.values[DRIFT]).max())
    lines = [["layer", "head", "stream", "role", "entropy", "sink", "score", DRIFT]]
    for number, (stream, layer, head) in enumerate(run.heads):
        cells = [_ends(run.values[measure][:, number], measure) for measure in SHOWN]
        drift = np.nan_to_num(run.values[DRIFT][:, number])[1:]
        bars = table.sparkline(drift, min(len(drift), BARS), top) if len(drift) else ""
        cells.append(f"{bars} {decimals(run.values[DRIFT][-1, number], 4)}".strip())
        role = run.roles[-1][number] or UNKNOWN
        lines.append([printable(short[layer]), head, stream, role, *cells])
    if np.isnan(run.values["score-max"]).all():
        for line in lines:
            del line[6]
    if not several:
        for line in lines:
            del line[2]
    widths = console.column_widths(lines)
    room = show.width - sum(widths[1:]) - 2 * len(widths[1:])
    widths[0] = min(widths[0], max(room, SHORTEST_NAME))
    for line in lines:
        text = "  ".join(map(set_cell_size, map(shorten, line, widths), widths))
        parts.append(Text(text.rstrip(), "dim" if line is lines[0] else "", no_wrap=True))
    for verdict in verdict_lines(run, short):
        parts += [Text(), *console.wrap_text(printable(verdict), show.width)]
    return console.render_parts(parts, show)


def history_tsv(history: History | tuple[History, ...]) -> str:
    """A line for each step and head, with the verdicts that hold since; empty: no value."""
    titles = ("step", "stream", "layer", "head", "role", *HISTORY, "verdicts")
    runs = _runs(history)
    lines: list[tuple[str, ...]] = [(*(["run"] if len(runs) > 1 else []), *titles)]
    for run in runs:
        for place, step in enumerate(run.steps):
            for number, head in enumerate(run.heads):
                numbers = (six_digits(float(run.values[name][place, number])) for name in HISTORY)
                own = (one.name for one in run.verdicts if one.head == head and one.step <= step)
                cells = str(step), *head, run.roles[place][number], *numbers, ",".join(own)
                lines.append((*([run.run] if len(runs) > 1 else []), *cells))
    return data.tsv(lines)


def history_json(history: History | tuple[History, ...]) -> str:
    """One document: steps, and roles, measures and verdicts of heads; of two runs a list."""
    runs = [_history_document(one) for one in _runs(history)]
    own = {"runs": runs} if len(runs) > 1 else runs[0]
    return report_json("history", **own, rules=RULES)


def history_panel(run: History, name: str, places: Sequence[Any]) -> dict[str, Any]:
    """What the page shows of a run: `places` has each head's map, layer and head at each step."""
    short, _ = short_paths([layer for _, layer, _ in run.heads])
    several = len({stream for stream, _, _ in run.heads}) > 1
    titles = [
        printable(f"{stream} {short[layer]}.{head}" if several else f"{short[layer]}.{head}")
        for stream, layer, head in run.heads
    ]
    about = {one: MEASURES[one].summary for one in HISTORY if one in MEASURES}
    about |= {DRIFT: "Divergence from the sample before, in nats."}
    about |= {"row-entropy": "Median entropy of a row as a share of what is possible."}
    return {
        "name": printable(name),
        "steps": run.steps,
        "heads": titles,
        "measures": {
            one: {"about": about[one].rstrip("."), "values": nulls_for_nan(run.values[one])}
            for one in HISTORY
            if not np.isnan(run.values[one]).all()
        },
        "verdicts": [
            {
                "name": one.name,
                "head": run.heads.index(one.head),
                "step": one.step,
                "detail": one.detail,
            }
            for one in run.verdicts
        ],
        "places": places,
    }


def _history_document(run: History) -> dict[str, Any]:
    return {
        **({"run": run.run} if run.run else {}),
        "caption": run.caption,
        "steps": run.steps,
        "heads": [
            {
                **dict(zip(("stream", "layer", "head"), head, strict=True)),
                "roles": [of_step[number] or None for of_step in run.roles],
                "verdicts": [
                    {"name": one.name, "step": one.step, "detail": one.detail}
                    for one in run.verdicts
                    if one.head == head
                ],
                **{
                    name: nulls_for_nan(values[:, number : number + 1].T)[0]
                    for name, values in run.values.items()
                },
            }
            for number, head in enumerate(run.heads)
        ],
        "notes": run.notes,
        "provenance": asdict(run.provenance),
    }


def _ends(values: NDArray[np.float64], measure: str) -> str:
    digits = (
        0 if measure == "score-max" and np.nan_to_num(np.abs(values[[0, -1]])).max() >= 10 else 2
    )
    first, last = decimals(values[0], digits), decimals(values[-1], digits)
    return first if first == last else f"{first}→{last}"


def nulls_for_nan(values: NDArray[np.float64]) -> list[Any]:
    """Rows of numbers for JSON."""
    return [[None if np.isnan(one) else one for one in row] for row in values.tolist()]
