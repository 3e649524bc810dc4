"""The sentences of a reasoning as a table, as rows and as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.text import Text

from attnviz.features.trace.anchors import TracedSentence, TraceReport
from attnviz.renderers import Display
from attnviz.renderers.data import tsv
from attnviz.renderers.printable import all_digits, printable, shorten, two_digits, with_sign
from attnviz.renderers.text.console import column_widths, introduction, render_parts, wrap_text
from attnviz.storage import columns, documents

READING = (
    "receiver: how much sentences at least 4 later look at it: the mean weight of their tokens on "
    "each of its own, %, in receiver heads, which look back at few sentences.",
    "effect: how much later sentences change if it is hidden: log KL of their tokens, less the "
    "mean over all sentences that can be hidden there.",
)
OF_ANSWER = "answer: how much the answer changes if it is hidden: KL of its tokens, nats."
RESAMPLED = (
    "other: how many continuations say something else in its place. right: how many answers are "
    "right without → with it. KL: how far these answers differ, nats."
)
MARKS = "● both receiver and effect are far above the mean, ◐ one is; – too few sentences follow."
LEAST = 20  # cells of a sentence beside its scores at least
LISTED = 5  # heads that a line names


def trace_table(report: TraceReport, show: Display) -> str:
    """A line for each sentence, in their order."""
    first, *others = readings_of(report)
    parts: list[Any] = introduction(printable(report.caption), first, show.width)
    parts[-1:] = [line for own in (*others, "") for line in wrap_text(own, show.width, "dim")]
    lines = [headings_of(report), *(cells_of(report, one) for one in report.sentences)]
    widths = column_widths(lines)
    room = show.width - sum(widths) - 2 * len(widths)
    texts = ["sentence", *(printable(one.text) for one in report.sentences)]
    styles = ["dim", *("bold" if one.marks else "" for one in report.sentences)]
    for cells, text, style in zip(lines, texts, styles, strict=True):
        if room >= LEAST:
            row = "  ".join(cell.rjust(n) for cell, n in zip(cells, widths, strict=True))
            parts.append(Text(f"{row}  {shorten(text, room)}", style, no_wrap=True))
        elif cells is not lines[0]:  # too narrow: the scores below their sentence
            number = " ".join(filter(None, cells[:2]))
            parts.append(Text(f"{number} {shorten(text, show.width - len(number) - 1)}", style))
            pairs = zip(lines[0][2:], cells[2:], strict=True)
            scores = " · ".join(f"{name} {cell}" for name, cell in pairs)
            parts += (Text(f"  {line}") for line in wrap_text(scores, show.width - 2))
    parts.append(Text())
    parts += wrap_text(heads_line(report), show.width)
    parts += wrap_text(
        f"{report.tokens:,} tokens, {report.prompt_tokens:,} of them before the reasoning; "
        f"{report.passes:,.1f} passes in all, the first and a check counted; temperature "
        f"{report.temperature:g}",
        show.width,
        "dim",
    )
    for note in report.notes:
        parts += wrap_text(printable(note), show.width, "dim")
    return render_parts(parts, show)


def readings_of(report: TraceReport) -> list[str]:
    """What the columns and the marks mean, a line each."""
    more = [OF_ANSWER] if report.answer else []
    return [*READING, *more, *([RESAMPLED] if report.resamples else []), MARKS]


def heads_line(report: TraceReport) -> str:
    """The heads that receiver scores are of, those of the largest kurtosis by name."""
    if not report.heads:
        return "no head is a receiver: there are too few sentences"
    heads = " · ".join(
        f"{one.layer}.{one.head} {two_digits(one.kurtosis)}" for one in report.heads[:LISTED]
    )
    more = f" and {len(report.heads) - LISTED} more" if len(report.heads) > LISTED else ""
    return f"receiver heads (layer.head) by kurtosis: {heads}{more}".replace("-", "−")


def headings_of(report: TraceReport) -> tuple[str, ...]:
    more = ["answer"] if report.answer else []
    more += ["other", "right", "KL"] if report.resamples else []
    return ("", "", "receiver", "effect", *more)


def cells_of(report: TraceReport, one: TracedSentence) -> tuple[str, ...]:
    mark = ("", "◐", "●")[len(one.marks)]
    receiver = "–" if math.isnan(one.receiver) else f"{100 * one.receiver:.2f}"
    effect = "–" if math.isnan(one.effect) else with_sign(one.effect)
    cells = [str(one.number), mark, receiver, effect]
    if report.answer:
        cells.append(_number(one.answer_kl))
    other = one.resampling
    if report.resamples and other is None:
        cells += ["–"] * 3
    if other is not None:
        right = "–"
        if other.accuracy_with is not None:
            before = other.accuracy_without
            right = f"{'–' if before is None else f'{before:.0%}'} → {other.accuracy_with:.0%}"
        cells += [f"{other.different:.0%}", right, _number(other.kl)]
    return tuple(cells)


def _number(value: float | None) -> str:
    return "–" if value is None else two_digits(value)


def trace_tsv(report: TraceReport) -> str:
    """A line for each sentence."""
    lines: list[tuple[str, ...]] = [columns.columns_of("trace")]
    for one in report.sentences:
        other = one.resampling
        names = ("different", "accuracy_without", "accuracy_with", "kl")
        more = [getattr(other, name) if other else None for name in names]
        scores = (one.receiver, one.effect, one.kl, one.answer_kl, *more)
        numbers = ("" if value is None else all_digits(value) for value in scores)
        row = (str(one.number), str(one.tokens), *numbers, " ".join(one.marks), one.text)
        lines.append(row)
    return tsv(lines)


def trace_json(report: TraceReport) -> str:
    matrix = report.matrix()
    links = [row[:number].tolist() for number, row in enumerate(matrix)]
    return documents.report_json("trace", report, links=links)
