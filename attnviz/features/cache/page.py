"""The page of `cache`: the costs as a picture and as a table, and heads with keys struck out."""

from collections.abc import Sequence

from attnviz.features.cache.report import CacheReport
from attnviz.renderers.page.reports import (
    escape_text,
    number_table,
    paragraphs,
    picture_tag,
    report_page,
)
from attnviz.renderers.printable import nats, two_digits

CACHE_TERMS = (
    "keys: share of the keys that a query still sees. attention: share of its attention, with all "
    "keys, that goes to these. nats a token: what log p of each token loses (natural logarithms; "
    "ln 2 = .69 nats is one bit). changed: share of tokens whose likeliest choice is another."
)


def cache_page(
    report: CacheReport, plot: bytes, heads: Sequence[tuple[str, bytes]], command: str
) -> str:
    """A page: the costs (SVG), a table of them, and for each rule a head with keys struck out."""
    table = number_table(
        ("rule", "keys", "attention", "nats a token", "changed"),
        [
            (
                f"{one.kind} {one.rule}".strip(),
                *map(two_digits, (one.held, one.mass)),
                nats(one.cost),
                two_digits(one.changed),
            )
            for one in report.rules
        ],
    )
    body = paragraphs([report.prompt, *report.notes])
    body += (picture_tag(plot, "costs of each rule") if plot else "") + table
    body += f'<p class="faint">{CACHE_TERMS}</p>'
    for rule, picture in heads:
        image = picture_tag(picture, f"keys that {rule} drops")
        body += f"<h2>{escape_text(rule)}</h2>{image}"
    return report_page(report.caption, body, command)
