"""Maps and measures as text, bytes or figures; nothing here opens a file.

A data renderer takes one text at a time with `add(attention, views)` and ends with `finish()`. Both
return what to write now, so that a stream of texts needs no more memory than one text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # they import numpy, and `attnviz models` must start without it
    from attnviz.core.attention_map import Attention
    from attnviz.core.measures import View

Views = Callable[[], "Sequence[View]"]
"""The views of a text, computed only if a renderer calls it."""


@dataclass(frozen=True, slots=True)
class Display:
    """Where text will be read."""

    width: int = 80  # cells of a line
    colors: str | None = None  # rich's name of a colour system; None: no colours
    many: bool = False  # several texts may come
    first: int = 0  # the first text's number among the records of the input
    begun: bool = False  # an interrupted run has already written the beginning
    rows: int = 0  # the most rows of a table; 0: all

    def more_rows_note(self, count: int) -> str:
        """A line that says how many of a table's rows are shown; empty if all are."""
        if not self.rows or count <= self.rows:
            return ""
        return (
            f"{self.rows:,} of {count:,} rows: --max-rows {count} shows all; "
            "-f tsv and -f json have them as data\n"
        )


class Renderer(Protocol):
    """Turns attention into text or bytes, text by text."""

    def __init__(self, display: Display) -> None: ...

    def add(self, attention: Attention, views: Views) -> str | bytes:
        """What to write for one more text."""
        ...

    def finish(self) -> str | bytes:
        """What to write after the last text."""
        ...


@runtime_checkable
class Numbering(Protocol):
    """A renderer that numbers its texts by their place in the input."""

    def skip(self) -> None:
        """Count a record that yielded no attention."""
        ...
