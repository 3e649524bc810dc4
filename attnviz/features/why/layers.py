"""What a model would predict after each layer, and what each layer adds to a logit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attnviz.core.tokens import token_label
from attnviz.core.writers import ResidualStream, WrittenText
from attnviz.features.why.report import LayerRow, LayersReport, LensCell, LensColumn
from attnviz.features.writers.links import adds_up, rank_parts, role_names
from attnviz.features.writers.report import WriterPart

CURVED_HEAD = (
    "the model's output layer is not linear, so the parts of a logit are estimates by its slope; "
    "what they miss is counted in the rest"
)
MODEL = "model"  # the row of what the model predicts, below those of attention alone
TOP = 5  # choices of a cell that are named
AT_ONCE = 1 << 22  # logits that are held: of fewer positions where the vocabulary is larger


def read_lens(
    stream: ResidualStream, targets: Mapping[int, int], *, attention_only: bool = False
) -> tuple[LensColumn, ...]:
    """What would be predicted at each position after each layer.

    A position's choice is what the model predicts there, or what is in `targets`.
    """
    columns, start, most = list[LensColumn](), 0, 1
    depth = len(stream.states) - attention_only
    layers = ["", *map(str, range(depth - 1)), *([MODEL] if attention_only else [])]
    while start < len(stream.rows):
        some = slice(start, start + most)
        logits = stream.predict(stream.states[-1], some)
        choices = [
            targets.get(row, int(own.argmax()))
            for row, own in zip(stream.rows[some], logits, strict=True)
        ]
        by_layer = [
            _cells(stream, layer, stream.predict(state, some), choices)
            for layer, state in zip(layers, stream.states, strict=True)
        ]
        for row, choice, *cells in zip(stream.rows[some], choices, *by_layer, strict=True):
            label, own = stream.spell(choice), tuple(cells)
            token = token_label(stream.tokens, row)
            first = None
            for cell in reversed([one for one in own if one.layer != MODEL]):
                if cell.rank > 1:
                    break
                first = cell.layer
            columns.append(LensColumn(row, token, label, first, own))
        start, most = start + most, max(AT_ONCE // logits.shape[1], 1)
    return tuple(columns)


def _cells(
    stream: ResidualStream, layer: str, logits: NDArray[np.float64], choices: Sequence[int]
) -> list[LensCell]:
    """The cells of a layer, by position."""
    cells = []
    for own, choice in zip(logits, choices, strict=True):
        below_top = own - own.max()
        log_p = below_top - np.log(np.exp(below_top).sum())
        most = min(TOP, len(own))
        least = np.partition(own, len(own) - most)[len(own) - most]
        best = np.flatnonzero(own >= least)
        best = best[np.argsort(-own[best], kind="stable")][:most]
        top = tuple((stream.spell(int(n)), float(np.exp(log_p[n]))) for n in best)
        rank = int((own > own[choice]).sum()) + 1
        cells.append(LensCell(layer, top, float(log_p[choice]), rank))
    return cells


def stream_of_row(text: WrittenText, row: int) -> ResidualStream:
    """The logits after each layer at one position, of a model that has a stream for no others."""
    tokens = text.attention.main.query_tokens
    states = [one[None] for one in text.layer_logits(row)]
    about = text.attention.provenance
    return ResidualStream(tokens, (row,), states, lambda one, some: one[some], text.spell, about)


def add_parts(report: LayersReport, text: WrittenText, row: int, choice: int) -> LayersReport:
    """A report with what each layer and head adds to the logit of one choice."""
    item = text.attention.main
    logits = text.logits(row)
    parts = text.logit_parts(row, choice)
    total = float(logits[choice] - logits.mean())
    notes = report.notes if adds_up(parts, total) else (*report.notes, CURVED_HEAD)
    # Layers of an encoder reach the logits through the decoder's heads.
    sides = {one.stream for one in text.attention.maps if one.query_side == item.query_side}
    own = [n for n, writer in enumerate(text.writers) if writer.stream in sides and writer.layer]
    (column,) = (one for one in report.columns if one.position == row)
    rows = []
    for cell in column.cells:
        sums = {"head": 0.0, "feed-forward": 0.0}
        for place in own:
            writer = text.writers[place]
            if cell.layer and writer.layer == cell.layer and writer.kind in sums:
                sums[writer.kind] += float(parts[place])
        adds = sums["head"], sums["feed-forward"]
        rows.append(LayerRow(cell.layer, *adds, cell.log_p, cell.rank, cell.top[0][0]))
    heads = np.where([writer.kind == "head" for writer in text.writers], parts, 0.0)
    other = total - sum(one.attention + one.feed_forward for one in rows)
    ranking: tuple[WriterPart, ...] = rank_parts(
        text, heads, item.stream, role_names(text.attention)
    )
    return replace(report, rows=tuple(rows), other=other, logit=total, heads=ranking, notes=notes)


def blocks_of(columns: Sequence[LensColumn], most: int) -> list[Sequence[LensColumn]]:
    """Columns in blocks of about one size, `most` at most."""
    count = -(-len(columns) // most)
    ends = [number * len(columns) // count for number in range(count + 1)]
    return [columns[first:last] for first, last in pairwise(ends)]


def lens_notes(report: LayersReport, mark: str) -> list[str]:
    """What the mark of a lens says, what attention alone is, and which tokens are left out."""
    notes = [f"{mark} the first layer from which what the model predicts stays on top"]
    if report.attention_only:
        notes.append(
            "a layer's stream here: the embeddings and what attention adds up to there, without "
            "feed-forward parts; the row model is what the whole model predicts"
        )
    if len(report.columns) < report.tokens:
        first, last = report.columns[0].position, report.columns[-1].position
        notes.append(f"tokens {first} to {last} of {report.tokens:,}: --rows A-B shows others")
    return notes
