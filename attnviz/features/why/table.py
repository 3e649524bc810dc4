"""Why a head looks there, and where along the layers an answer appears: as text, rows and JSON."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnviz.features.why.layers import MODEL, blocks_of, lens_notes
from attnviz.features.why.report import LAYERS_READING, LENS_READING, LayersReport
from attnviz.features.writers.report import LinkReport, WriterPart
from attnviz.renderers import Display, data
from attnviz.renderers.printable import all_digits, nats, printable, shorten, two_digits, with_sign
from attnviz.renderers.text.console import bar_of, introduction, render_parts, shade_text, wrap_text
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import report_json

WORDS = 6
BAR = 16
LAYER, TOKEN = 5, 8  # cells of a layer's name, and of a token in the lens at most
SETTLED = "▸"  # before the first prediction of a column that stays


def why_table(report: LinkReport, show: Display) -> str:
    """Where the head looks, why, what that adds to the logits, and the checks."""
    several = report.link is None
    reading = f"mean of the attended scores {with_sign(report.contrast)} above {report.against}"
    if not several:
        reading = (
            f"weight {two_digits(report.weight)} · score {report.score:.2f}, "
            f"{with_sign(report.contrast)} above {report.against}"
        )
    parts = introduction(printable(report.caption), printable(reading), show.width)[:-1]
    if line := report.position_reason:
        parts += wrap_text(line, show.width)
    ends = [printable(end) for end in report.ends]
    most = max((abs(one.value) for one in (*report.query, *report.key)), default=1.0)
    titles = (
        ("the queries" if several else f"the query {ends[0]}"),
        ("the keys" if several else f"the key {ends[1]}"),
    )
    for title, own in ((titles[1], report.key), (titles[0], report.query)):
        parts += [
            Text(),
            *wrap_text(f"why there: what was written into {title}", show.width, "bold"),
        ]
        parts += _bars(report.shown_parts(own), report.contrast, most, show)
    if report.pairs:
        pairs = " · ".join(f"{q} × {k} {with_sign(v)}" for q, k, v in report.pairs[:3])
        parts += wrap_text(f"query × key, the largest: {pairs}", show.width, "dim")
    parts += [Text(), *_argument_lines(report, show)]
    if report.checks or report.effect is not None:
        parts += [Text(), Text("checked", "bold")]
    for one in report.checks:
        change = f"{two_digits(report.weight)} → {two_digits(one.measured)}"
        line = f"without {one.writer} in the {one.side}: weight {change}"
        parts += wrap_text(f"{line} (expected {two_digits(one.expected)})", show.width)
    if report.effect is not None:
        line = f"without this link in this head: log p of {printable(report.output)} changes by"
        parts += wrap_text(f"{line} {nats(-report.effect)} nats", show.width)
    return render_parts(parts, show)


def _bars(parts: Sequence[WriterPart], total: float, most: float, show: Display) -> list[Text]:
    labels = [f"{one.writer} {one.role}".rstrip() for one in parts]
    between = [
        f"{with_sign(one.interval[0])} to {with_sign(one.interval[1])}" if one.interval else ""
        for one in parts
    ]
    wide = max(map(len, between), default=0)
    room = max(show.width - BAR - 14 - wide, 12)
    names = [shorten(printable(one), min(room, 40)) for one in labels]
    width = max([*map(cell_len, names), 3])
    lines = []
    for one, name, ends in zip(parts, names, between, strict=True):
        line = Text(f"  {set_cell_size(name, width)}  {with_sign(one.value):>7}  ", no_wrap=True)
        line.append(f"{ends:<{wide}}  " if wide else "", "dim")
        bar = bar_of(abs(one.value) / (most or 1.0), BAR)
        line.append(bar, "red" if one.value < 0 else "blue")
        lines.append(line)
    return [*lines, Text(f"  {set_cell_size('sum', width)}  {with_sign(total):>7}", "dim")]


def _argument_lines(report: LinkReport, show: Display) -> list[Text]:
    lines = [Text("what it brings: tokens it argues for and against", "bold")]

    def add(text: str, style: str = "") -> None:
        lines.extend(Text("  ").append_text(one) for one in wrap_text(text, show.width - 2, style))

    if not report.arguments:
        add("the model predicts nothing from this position", "dim")
        return lines
    half = len(report.arguments) // 2
    for name, own in (("for", report.arguments[:half]), ("against", report.arguments[half:][::-1])):
        words = " · ".join(f"{printable(one.token)} {with_sign(one.logit)}" for one in own[:WORDS])
        add(f"{name} {words}")
    if report.predicted is not None and report.argument is not None and report.logits is not None:
        token, chance = report.predicted
        adds, whole = with_sign(report.argument), with_sign(report.logit or 0.0)
        more = f"{report.rank - 1:,}" if report.rank and report.rank > 1 else "none"
        add(
            f"the model predicts {printable(token)} ({two_digits(chance)}): the link adds {adds} "
            f"to its logit of {whole}; {more} of {len(report.logits):,} tokens gain more by it"
        )
    if report.value:
        writers = " · ".join(f"{one.writer} {with_sign(one.value)}" for one in report.value[:3])
        add(f"its value argues for {printable(report.value_of)} by what these wrote: {writers}")
    add("logits, above their mean over all choices", "dim")
    return lines


def why_tsv(report: LinkReport) -> str:
    """A line for each number: what it is of, the names, the value and its interval."""
    lines: list[tuple[str, ...]] = [columns_of("why")]

    def add(part: str, name: str, value: float | None, other: str = "", role: str = "") -> None:
        if value is not None:
            lines.append((part, name, other, role, all_digits(value), "", ""))

    for name in ("weight", "score", "contrast", "position", "at_distance", "effect"):
        add(name, "", getattr(report, name))
    for part in ("query", "key", "value"):
        for one in getattr(report, part):
            low, high = map(all_digits, one.interval or (math.nan, math.nan))
            lines.append((part, one.writer, "", one.role, all_digits(one.value), low, high))
    for query, key, value in report.pairs:
        add("pair", query, value, key)
    for argument in report.arguments:
        add("argument", argument.token, argument.logit)
    for check in report.checks:
        add("expected", check.writer, check.expected, check.side)
        add("measured", check.writer, check.measured, check.side)
    return data.tsv(lines)


def why_json(report: LinkReport, name: str = "") -> str:
    return report_json("why", **({"id": name} if name else {}), **report.document())


def why_npz(report: LinkReport) -> bytes:
    """Arrays of every writer of a side (names, values), and of each choice's logit if known."""
    members: dict[str, Any] = {}
    for side in ("query", "key", "value"):
        own = getattr(report, side)
        members[f"{side}/writers"] = np.array([one.writer for one in own], dtype=str)
        members[f"{side}/values"] = np.array([one.value for one in own])
    if report.logits is not None:
        members["logits"] = report.logits
    return data.npz_bytes(**members, attnviz=np.array(f"[{why_json(report).rstrip()}]"))


def layers_table(report: LayersReport, show: Display) -> str:
    """The lens, then a line for each layer with what it adds to one logit, and the heads."""
    parts = introduction(printable(report.caption), LENS_READING, show.width)
    parts += lens_lines(report, show)
    if report.rows and report.logit is not None and report.other is not None:
        parts += [Text(), *_added_lines(report, report.logit, report.other, show)]
    return render_parts(parts, show)


def lens_lines(report: LayersReport, show: Display) -> list[Text]:
    """A block of columns for as many positions as fit, a row each layer; then what they are."""
    lines = list[Text]()
    names = [cell.top[0][0] for one in report.columns for cell in one.cells]
    widest = max(cell_len(printable(name)) for name in (*names, *(c.token for c in report.columns)))
    room = min(max(widest, 3), TOKEN)
    across = max((show.width - LAYER) // (room + 6), 1)
    for own in blocks_of(report.columns, across):
        lines += [Text()] if lines else []
        heading = Text("layer".rjust(LAYER), "dim", no_wrap=True)
        for column in own:
            heading.append("  " + _fit(column.token, room + 4))
        lines.append(heading)
        for cells in zip(*(column.cells for column in own), strict=True):
            layer = cells[0].layer or "none"
            line = Text(layer.rjust(LAYER), no_wrap=True)
            for column, cell in zip(own, cells, strict=True):
                token, p = cell.top[0]
                is_first = column.settled == cell.layer and cell.layer != MODEL
                words = f"{SETTLED if is_first else ' '}{_fit(token, room)} {two_digits(p)}"
                line.append(" ").append_text(shade_text(words, p, show))
            lines.append(line)
    lines.append(Text())
    for sentence in lens_notes(report, SETTLED):
        lines += wrap_text(sentence, show.width, "dim")
    return lines


def _fit(text: str, width: int) -> str:
    return set_cell_size(shorten(printable(text), width), width)


def _added_lines(report: LayersReport, logit: float, other: float, show: Display) -> list[Text]:
    """A line for each layer with what it adds to a logit, then the sum and the heads."""
    title = f"what adds to the logit of {report.choice} after {report.position}"
    parts = introduction(printable(title), LAYERS_READING, show.width)
    widths = 11, 7, 6, 9, 8

    def line(*cells: str, last: str = "", style: str = "") -> Text:
        columns = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return Text("  ".join([*columns, last]), style, no_wrap=True)

    heading = line("after layer", "log p", "rank", "attention", "feed-fwd", last="predicts")
    heading.stylize("dim")
    parts.append(heading)
    for one in report.rows:
        adds = (with_sign(one.attention), with_sign(one.feed_forward)) if one.layer else ("", "")
        cells = (one.layer or "embedding", nats(one.log_p), f"{one.rank:,}", *adds)
        parts.append(line(*cells, last=shorten(printable(one.likeliest), 24)))
    names = "attention", "feed_forward"
    sums = [with_sign(sum(getattr(one, name) for one in report.rows)) for name in names]
    parts.append(line("sum", "", "", *sums, style="dim"))
    total = f"with {with_sign(other)} of embeddings and biases: logit {with_sign(logit)}"
    heads = " · ".join(f"{one.writer} {with_sign(one.value)}" for one in report.heads[:5])
    parts += [Text(), *wrap_text(total, show.width)]
    parts += wrap_text(f"heads that add most: {heads}", show.width)
    return parts


def layers_tsv(report: LayersReport) -> str:
    """A line for each position and layer; what a layer adds is known of one position."""
    lines: list[tuple[str, ...]] = [columns_of("layers")]
    for column in report.columns:
        place = str(column.position), column.token
        is_split = column.token == report.position
        rows = {one.layer: one for one in report.rows if is_split}
        for cell in column.cells:
            token, p = cell.top[0]
            row, is_first = rows.get(cell.layer), str(int(cell.layer == column.settled))
            adds = (row.attention, row.feed_forward) if row else (math.nan, math.nan)
            numbers = all_digits(cell.log_p), str(cell.rank), is_first, *map(all_digits, adds)
            lines.append((*place, cell.layer, token, all_digits(p), column.choice, *numbers))
    return data.tsv(lines)


def layers_json(report: LayersReport) -> str:
    return report_json("layers", unit="logits above the mean of all choices", **asdict(report))


LAYERS = layers_table, layers_tsv, layers_json
