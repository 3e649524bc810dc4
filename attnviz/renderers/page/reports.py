"""Pages of words, tables and pictures: an answer with its sources, two runs that differ."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from typing import Any

from attnviz.features.sources.report import SourcesReport
from attnviz.core.writers import LinkReport
from attnviz.renderers.page.document import TABLE_FRAME, plain_page
from attnviz.renderers.printable import nats, printable, printable_texts, two_digits


def escape_text(text: str) -> str:
    """A text that neither styles nor breaks a page."""
    return html.escape(printable(text))


def shown_report(report: LinkReport) -> dict[str, Any]:
    """The part of a report that a page shows; its texts neither style nor break it."""
    names = (
        "weight score contrast against query key pairs position at_distance arguments predicted "
        "argument rank logit value value_of checks notes"
    )
    document = report.document()
    return {name: printable_texts(document[name]) for name in names.split()}


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


def picture_tag(svg: bytes, about: str) -> str:
    data = base64.b64encode(svg).decode("ascii")
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape_text(about)}">'


def number_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a column of words, then numbers."""

    def line(kind: str, cells: Sequence[str]) -> str:
        first, *rest = (escape_text(cell) if cell else "" for cell in cells)
        others = "".join(f"<{kind}>{cell}</{kind.partition(' ')[0]}>" for cell in rest)
        tag = kind.partition(" ")[0]
        return f'<tr><{kind} class="word">{first}</{tag}>{others.replace("-", "−")}</tr>'

    body = "".join(line("td", row) for row in rows)
    head = line('th scope="col"', names)
    return f"{TABLE_FRAME}<table><thead>{head}</thead><tbody>{body}</tbody></table></div>"
