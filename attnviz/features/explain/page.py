"""The page of two runs that differ: lines, a picture, and what restores an answer."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.features.explain.report import ContrastReport, Restored
from attnviz.renderers.page.reports import number_table, paragraphs, picture_tag, report_page
from attnviz.renderers.printable import two_digits

LISTED = 15
"""Parts in a table of a page."""


def contrast_page(
    report: ContrastReport, lines: Sequence[str], picture: bytes, command: str
) -> str:
    """A page: lines, the picture (SVG) of layers by positions, and what restores most."""
    body = paragraphs([*lines, *report.notes])
    body += picture_tag(picture, "layers by positions")
    for name, own in (
        ("Heads at every position", report.heads),
        ("Heads at one position", report.rows),
        ("Links", report.links),
    ):
        body += f"<h2>{name}</h2>{_restored_table(own)}" if own else ""
    return report_page(report.caption, body, command)


def _restored_table(parts: Sequence[Restored]) -> str:
    """A row for each part, the first fifteen, with its share and its estimate."""
    rows = [
        (
            one.name(),
            two_digits(one.share),
            "" if one.estimate is None else two_digits(one.estimate),
        )
        for one in parts[:LISTED]
    ]
    more = f'<p class="faint">and {len(parts) - LISTED:,} more</p>' if len(parts) > LISTED else ""
    return number_table(("part", "share", "estimate"), rows) + more
