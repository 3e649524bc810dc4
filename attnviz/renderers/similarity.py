"""Heads that look alike, as a table of each one's nearest, as tab-separated pairs and as JSON."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from rich.text import Text

from attnviz.measures import SimilarityReport
from attnviz.renderers import Display
from attnviz.renderers.console import paragraph, shown
from attnviz.renderers.csv import escape
from attnviz.renderers.measures_data import SCHEMA, plain
from attnviz.renderers.numerals import two_digits
from attnviz.renderers.printable import printable
from attnviz.storage.json import dump_json

_READING = "divergence of where two heads look, in nats; 0: alike, .69: never at the same key"


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
        for other in np.argsort(row, kind="stable")[: min(count, len(names) - 1)].tolist():
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
    return "".join("\t".join(map(escape, line)) + "\n" for line in lines)


def similarity_json(report: SimilarityReport) -> str:
    """{"schema", "caption", "heads": [{"layer", "head", "place"}], "divergences": [[…]], …}."""
    heads = [
        {"layer": layer, "head": head, "place": place}
        for (layer, head), place in zip(report.heads, report.places.tolist(), strict=True)
    ]
    document = {
        "schema": SCHEMA,
        "kind": "similarity",
        "caption": report.caption,
        "stream": report.stream,
        "texts": report.texts,
        "unit": "nats",
        "heads": heads,
        "divergences": report.divergences.tolist(),
        "plane_shows": report.shown,
        "provenance": asdict(report.provenance),
    }
    return dump_json(document) + "\n"
