"""The page of an answer with its sources."""

from __future__ import annotations

from attnviz.features.sources.report import SourcesReport
from attnviz.renderers.page.document import plain_page
from attnviz.renderers.page.reports import escape_text
from attnviz.renderers.printable import nats, printable, two_digits


def sources_page(report: SourcesReport, command: str) -> str:
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
