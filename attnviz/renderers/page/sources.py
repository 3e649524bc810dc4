"""The answer with links to its sources, and the sources, as a page of words."""

from __future__ import annotations

import html

from attnviz.core.answers import SourcesReport
from attnviz.renderers.page.document import plain_page
from attnviz.renderers.printable import nats, printable, two_digits


def sources_page(report: SourcesReport, command: str) -> str:
    """A page: the answer with links to its sources, and the sources."""

    def escape(text: str) -> str:
        return html.escape(printable(text))

    said = []
    for number, sentence in enumerate(report.sentences):
        links = ", ".join(f'<a href="#part-{n}">{n}</a>' for n in report.sources_of(number))
        said.append(escape(sentence) + (f"<sup>{links}</sup>" if links else ""))
    parts = "".join(
        f'<li id="part-{one.number}">{escape(one.text)}<br>'
        f"<small><b>{nats(one.effect)} nats</b> · {escape(one.file)}</small></li>"
        for one in report.parts
    )
    known = [f"{name} {two_digits(value)}" for name, value in report.agreement.items()]
    line = f"Estimates beside the effects (rank correlation): {' · '.join(known)}."
    wrote = "The model writes" if report.written else "The answer"
    body = (
        f"<p>{escape(report.question)}</p><h2>{wrote}</h2><p>{' '.join(said)}</p>"
        f"<h2>Sources</h2><ol>{parts}</ol>"
        "<p>Numbers: log p of the answer with a part minus without it. A part is left out: "
        f"{escape(report.how)}. {escape(line.replace('-', '−'))}</p>"
        f"<p><code>{escape(command)}</code></p>"
    )
    return plain_page(printable(report.caption), body)
