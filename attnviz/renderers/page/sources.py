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
    rows = "".join(
        f'<tr id="part-{one.number}"><th scope="row">{one.number}</th>'
        f"<td>{nats(one.effect)}</td><td>{escape(one.file)}</td><td>{escape(one.text)}</td></tr>"
        for one in report.parts
    )
    known = [f"{name} {two_digits(value)}" for name, value in report.agreement.items()]
    line = f"Estimates beside the effects (rank correlation): {' · '.join(known)}."
    body = (
        f"<h1>{escape(report.caption)}</h1><p>{escape(report.question)}</p>"
        f"<h2>Answer</h2><p>{' '.join(said)}</p><h2>Sources</h2>"
        "<table><thead><tr><th>part</th><th>effect, nats</th><th>file</th><th>text</th></tr>"
        "</thead>"
        f"<tbody>{rows}</tbody></table><p>{escape(line)}</p>"
        f"<p>A part is left out: {escape(report.how)}.</p><p><code>{escape(command)}</code></p>"
    )
    return plain_page(printable(report.caption), body)
