"""What pages of words, tables and pictures share: a text, a picture, a table of numbers."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

from attnviz.renderers.page.document import TABLE_FRAME, plain_page
from attnviz.renderers.printable import printable


def escape_text(text: str) -> str:
    """A text that neither styles nor breaks a page."""
    return html.escape(printable(text))


def paragraphs(lines: Iterable[str], kind: str = "") -> str:
    """A paragraph for each line, of a class of the style."""
    tag = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{tag}{escape_text(line)}</p>" for line in lines)


def report_page(caption: str, body: str, command: str, style: str = "") -> str:
    """The page of a report: its markup, and the command that made it."""
    line = f'<p class="faint"><code>{escape_text(command)}</code></p>'
    return plain_page(printable(caption), body + line, style)


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
