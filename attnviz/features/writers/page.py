"""The page of a text that explains some of its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.features.writers.report import LinkReport
from attnviz.renderers import page, printable
from attnviz.runs.outputs import page_data

PAGE_LINKS = 120  # links that a page explains


def why_page(
    reports: Sequence[LinkReport],
    attention: Attention,
    command: str,
    claims: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of a text that explains some links; the `claims` are those of an answer."""
    document, blobs = page_data(attention, command)
    document["claims"] = list(claims)
    document["why"] = []
    for one in reports:
        link = [one.head.stream, one.head.layer, str(one.head.head), *(one.link or ())]
        document["why"].append({"link": link, "report": shown_report(one)})
    return page.assemble(document, blobs, "why")


def shown_report(report: LinkReport) -> dict[str, Any]:
    """The part of a report that a page shows; its texts neither style nor break it."""
    names = (
        "weight score contrast against query key pairs position at_distance arguments predicted "
        "argument rank logit value value_of checks notes"
    )
    document = report.document()
    return {name: printable.printable_texts(document[name]) for name in names.split()}
