"""A lesson as a page: its picture, its sentences, its whole table."""

from __future__ import annotations

import base64
from html import escape

from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.page.plain import plain_page
from attnviz.renderers.printable import printable
from attnviz.teach.lessons.drawing import drawn
from attnviz.teach.lessons.lesson import Lesson, heading, told


def page_of(lesson: Lesson, command: str = "") -> str:
    """One HTML file; the picture is an image in it, and nothing in it runs."""

    def cell(place: int, text: str, tag: str) -> str:
        words = all(isinstance(value, str) for value in lesson.column(lesson.columns[place]))
        word = ' class="word"' if words else ""
        return f"<{tag}{word}>{escape(text)}</{tag.split()[0]}>"

    heads = [cell(i, heading(name), 'th scope="col"') for i, name in enumerate(lesson.columns)]
    rows = [
        "".join(
            cell(i, told(*one), "td") for i, one in enumerate(zip(row, lesson.columns, strict=True))
        )
        for row in lesson.rows
    ]
    svg = base64.b64encode(figure_bytes(drawn(lesson), ".svg")).decode("ascii")
    title = printable(lesson.title)
    parts = [
        f'<img src="data:image/svg+xml;base64,{svg}" alt="{escape(title)}">',
        *(f"<p>{escape(printable(sentence))}</p>" for sentence in lesson.explanation),
        f'<p class="faint">{escape(printable(lesson.reference))}</p>',
        f'<div class="wide"><table><thead><tr>{"".join(heads)}</tr></thead><tbody>',
        *(f"<tr>{row}</tr>" for row in rows),
        "</tbody></table></div>",
        *([f'<p class="faint"><code>{escape(printable(command))}</code></p>'] if command else []),
    ]
    return plain_page(title, "\n".join(parts))
