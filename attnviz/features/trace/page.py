"""A page of a reasoning: sentences with links to those that they need and that they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.features.trace.table import cells_of, headings_of, heads_line, readings_of
from attnviz.renderers.page.reports import (
    escape_text,
    paragraphs,
    picture_tag,
    report_page,
)
from attnviz.renderers.printable import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.features.trace.anchors import TracedSentence, TraceReport

LINKED = (
    "needs: the earlier sentences without which it changes most. changes: the later ones that "
    "change most without it."
)
LONGEST = 160  # characters of what stands there instead


def trace_page(report: TraceReport, picture: bytes, command: str) -> str:
    """The triangle, every sentence with its scores and links, the answer, and what these mean."""
    sentences = "".join(_sentence(report, one) for one in report.sentences)
    answer = f"<h2>Answer</h2><p>{escape_text(report.answer)}</p>" if report.answer else ""
    faint = [*readings_of(report), LINKED, *report.notes]
    body = picture_tag(picture, "what each sentence changes later")
    body += (
        f"<h2>Sentences</h2><ol>{sentences}</ol>{answer}<p>{escape_text(heads_line(report))}</p>"
    )
    return report_page(report.caption, body + paragraphs(faint, "faint"), command)


def _sentence(report: TraceReport, one: TracedSentence) -> str:
    """A sentence, bold where it stands out, with its scores, and links."""
    text = f"<b>{escape_text(one.text)}</b>" if one.marks else escape_text(one.text)
    names, (_, mark, *cells) = headings_of(report)[2:], cells_of(report, one)
    about = [f"{name} {escape_text(cell)}" for name, cell in zip(names, cells, strict=True)]
    about += [f"{word} {_links(own)}" for word, own in _links_by_name(one) if own]
    if one.resampling and one.resampling.instead:
        about.append(f"else “{escape_text(shorten(one.resampling.instead, LONGEST))}”")
    return (
        f'<li id="sentence-{one.number}">{mark and f"{mark} "}{text}<br>'
        f"<small>{' · '.join(about)}</small></li>"
    )


def _links_by_name(one: TracedSentence) -> tuple[tuple[str, Sequence[int]], ...]:
    return ("needs", one.needs), ("changes", one.changes)


def _links(numbers: Sequence[int]) -> str:
    return ", ".join(f'<a href="#sentence-{number}">{number}</a>' for number in numbers)
