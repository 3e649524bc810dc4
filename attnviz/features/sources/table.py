"""Which parts of a context an answer was made from, as a table, as rows and as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.cells import set_cell_size
from rich.text import Text

from attnviz.features.sources import report as answers
from attnviz.renderers import Display
from attnviz.renderers.data import tsv
from attnviz.renderers.page.document import plain_page
from attnviz.renderers.page.reports import escape_text
from attnviz.renderers.printable import all_digits, nats, printable, shorten, two_digits
from attnviz.renderers.text.console import render_parts, wrap_text
from attnviz.storage.documents import report_json

BAR = 16
DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def sources_table(report: answers.SourcesReport, show: Display) -> str:
    """The answer, then a line for each part."""
    parts: list[Any] = wrap_text(printable(report.caption), show.width, "bold")
    parts += wrap_text(printable(report.question), show.width)
    answer = " ".join(
        sentence + ",".join(str(n).translate(DIGITS) for n in report.sources_of(number))
        for number, sentence in enumerate(report.sentences)
    )
    subject = "the model writes" if report.written else "the answer"
    parts += [Text(), *wrap_text(printable(f"{subject}: {answer}"), show.width)]
    parts += [Text(), Text("log p of the answer with a part minus without it, nats", "dim")]
    most = max((abs(one.effect) for one in report.parts if not math.isnan(one.effect)), default=1.0)
    order = sorted(report.parts, key=lambda one: (math.isnan(one.effect), -one.effect))
    for one in order[: show.rows or None]:
        size = 0 if math.isnan(one.effect) else round(abs(one.effect) / (most or 1.0) * BAR)
        value = "–" if math.isnan(one.effect) else f"{one.effect:+.1f}".replace("-", "−")
        line = Text(f"{one.number:>3}  {value:>6}  ", no_wrap=True)
        line.append(set_cell_size("█" * size, BAR), "red" if one.effect < 0 else "blue")
        together = f"(with {one.group[0]}–{one.group[-1]}) " if one.group else ""
        words = printable(f"{together}{one.file}: {one.text}")
        line.append(f"  {shorten(words, max(show.width - BAR - 16, 12))}")
        parts.append(line)
    weak = [n for n, value in enumerate(report.support) if not value >= answers.SUPPORTS]
    for number in weak:
        words = (
            f"no part supports “{shorten(report.sentences[number], 60)}” by {answers.SUPPORTS} nats"
        )
        parts += [Text(), *wrap_text(printable(words), show.width)]
    correlations = [f"{name} {two_digits(value)}" for name, value in report.agreement.items()]
    agreement = " · ".join(correlations).replace("-", "−")
    agreement = f"rank correlation of cheap estimates with these effects: {agreement}"
    parts += [Text(), *wrap_text(agreement, show.width)]
    parts += wrap_text(f"a part is left out: {report.how}; {report.runs} runs", show.width, "dim")
    return render_parts(parts, show)


def sources_tsv(report: answers.SourcesReport) -> str:
    """A line for each part: its effect, that on each sentence, and each estimate."""
    names = [f"sentence_{number + 1}" for number in range(len(report.sentences))]
    header = ("number", "file", "tokens", "effect", *names, *report.agreement, "text")
    lines: list[tuple[str, ...]] = [header]
    for one in report.parts:
        numbers = map(all_digits, (one.effect, *one.of_sentences, *one.estimates.values()))
        lines.append((str(one.number), one.file, str(one.tokens), *numbers, one.text))
    return tsv(lines)


def sources_json(report: answers.SourcesReport) -> str:
    sources = [report.sources_of(number) for number in range(len(report.sentences))]
    return report_json("sources", report, sources=sources)


def sources_page(report: answers.SourcesReport, command: str) -> str:
    """A page: the answer with links to its sources, and the sources."""
    sentences = []
    for number, sentence in enumerate(report.sentences):
        links = ", ".join(f'<a href="#part-{n}">{n}</a>' for n in report.sources_of(number))
        sentences.append(escape_text(sentence) + (f"<sup>{links}</sup>" if links else ""))
    parts = "".join(
        f'<li id="part-{one.number}">{escape_text(one.text)}<br>'
        f"<small><b>{nats(one.effect)} nats</b> · {escape_text(one.file)}</small></li>"
        for one in report.parts
    )
    correlations = [f"{name} {two_digits(value)}" for name, value in report.agreement.items()]
    line = f"Rank correlation of cheap estimates with these effects: {' · '.join(correlations)}."
    wrote = "The model writes" if report.written else "The answer"
    body = (
        f"<p>{escape_text(report.question)}</p><h2>{wrote}</h2><p>{' '.join(sentences)}</p>"
        f"<h2>Sources</h2><ol>{parts}</ol>"
        "<p>Numbers: log p of the answer with a part minus without it. A part is left out: "
        f"{escape_text(report.how)}. {escape_text(line.replace('-', '−'))}</p>"
        f"<p><code>{escape_text(command)}</code></p>"
    )
    return plain_page(printable(report.caption), body)


SOURCES = sources_table, sources_tsv, sources_json
