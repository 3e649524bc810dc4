"""A page of a chat: the bands, its messages with what they get, and every sentence and head."""

from __future__ import annotations

from attnviz.features.chat.picture import chat_picture
from attnviz.features.chat.report import BEGINNING, ChatReport
from attnviz.features.chat.table import reading_line, times
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.page.reports import escape_text, number_table, picture_tag, report_page
from attnviz.renderers.printable import two_digits

HEADS = 32  # that a page lists
TERMS = (
    "Shares are of a row's attention. × even: the share over what an even look at all that a row "
    "sees would give the part. difference: half the sum of the differences from the mean of heads."
)


def chat_page(report: ChatReport, command: str) -> str:
    """The picture (SVG), then the messages, the rows and the heads with their shares."""
    names = [one.name for one in report.parts]
    messages = "".join(
        f"<p><b>{escape_text(one.name)}</b> · {one.tokens:,} tokens · {two_digits(one.share)} · "
        f"{times(one)} × even<br>{escape_text(one.text)}"
        f"{'…' if len(one.text) >= BEGINNING else ''}</p>"
        for one in report.parts
    )
    rows = [(" ".join(one.text.split()), *map(two_digits, one.shares)) for one in report.rows]
    heads = [
        (f"{one.layer}.{one.head}", two_digits(one.difference), *map(two_digits, one.shares))
        for one in report.heads[:HEADS]
    ]
    body = f"<p>{escape_text(reading_line(report))} {escape_text(report.heads_shown)}</p>"
    body += picture_tag(
        figure_bytes(chat_picture(report), ".svg"), "the parts of the chat as bands"
    )
    body += f"<h2>What {escape_text(report.unit)} look at</h2>"
    body += number_table((report.unit, *names), rows)
    body += f"<h2>Parts</h2>{messages}"
    body += "<h2>Heads that differ most from the mean</h2>"
    body += number_table(("head", "difference", *names), heads)
    body += f'<p class="faint">{TERMS}</p>'
    return report_page(report.caption, body, command)
