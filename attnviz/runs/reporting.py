"""What a run reports: results, failures and notes.

The command line has a report that prints and writes files, Python one that collects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from attnviz.core.errors import AttnvizError
from attnviz.core.options import Options
from attnviz.renderers import NO_VIEWS
from attnviz.renderers.reports import Data, Item

if TYPE_CHECKING:
    from attnviz.core.attention_map import Attention
    from attnviz.storage.texts import BadText, Text

Source = TypeVar("Source", bound="Text | BadText | None")
Value = TypeVar("Value")


class RunReport(Protocol):
    """Takes what a run finds: call `add` or `skip` for each record in order, then `finish`."""

    def add(self, result: Attention | Data | Item) -> None:
        """Take one result."""

    def add_page(self, page: Callable[[str], str]) -> None:
        """Take the page of one text, whose data come with those of all."""

    def add_blank(self, result: Data) -> None:
        """Take what stands for a failed record, where each record keeps its place."""

    def skip(self, record: Text | BadText | None, error: AttnvizError) -> None:
        """Take the reason why a record failed; raises it where the run is to stop there."""

    def reject(self, lines: bytes, count: int = 1) -> None:
        """Take lines of failed records, also from the run that this one continues."""

    def say(self, text: str) -> None:
        """Tell the reader something now."""

    def hold(self, text: str) -> None:
        """Tell the reader something at the end, its numbers as a range over all texts."""

    def progress(
        self, total: Callable[[], int | None] | None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A function to call with the number of further records that are done."""

    def finish(self, summary: str = "") -> None:
        """Complete everything; `done` says what was done."""


def item_of(result: Attention | Data | Item, options: Options) -> Item:
    """A result with its usual views, pictures and page."""
    if isinstance(result, Item):
        return result
    if isinstance(result, Data):  # which may be a mere list of names, and waits for no numpy
        return Item(result, NO_VIEWS, result.figures, result.page)
    from attnviz.runs.outputs import views_of

    return Item(result, views_of(result, options.choice, options.origin.top))


def hold_notes(attention: Attention, report: RunReport, *, in_words: bool = False) -> None:
    """Tell the reader at the end what must be known of a result, printed `in_words` or not."""
    from attnviz.analyses.sinks import notable_holders

    for text in (*attention.provenance.notes, *notable_holders(attention, in_words=in_words)):
        report.hold(text)


def good_results(
    outcomes: Iterable[tuple[Source, Value | AttnvizError]],
    report: RunReport,
    total: Callable[[], int | None] | None,
) -> Iterator[tuple[Source, Value]]:
    """Each record that succeeded with its result; failed ones are reported."""
    with report.progress(total) as advance:
        for record, result in outcomes:
            advance(1)
            if isinstance(result, AttnvizError):
                report.skip(record, result)
            else:
                yield record, result


def reject_of(record: Text | BadText | None, error: AttnvizError) -> bytes:
    """The line of --on-error for a record that failed; empty without a record."""
    if record is None:
        return b""
    return reject_line(record.line, record.where, str(error), record.raw)


def reject_line(number: int, where: str, reason: str, raw: str) -> bytes:
    """One JSON line, such as {…,"line":2,"reason":"the text is empty","text":" "}."""
    from attnviz.core.values import is_utf8
    from attnviz.storage.documents import dump_json, to_report

    reason = reason.removeprefix(f"{where}: ")
    if where:
        reason = reason.replace(where, f"line {number}")
    record = to_report("reject", line=number, reason=reason, text=raw)
    if is_utf8(reason) and is_utf8(raw):
        return dump_json(record).encode() + b"\n"
    # Only json.dumps() writes the surrogates that stand for bytes outside of UTF-8.
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
