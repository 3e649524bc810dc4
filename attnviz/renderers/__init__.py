"""Maps and measures as text, bytes or figures; nothing here opens a path.

A data renderer is fed one text at a time, `add(attention, views)`, and closed with `finish()`; both
return what is to be written now, so that a stream of texts flows through without being held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # these import numpy, and lists of names do without
    from attnviz.core.attention_map import Attention
    from attnviz.core.measures import View

Views = Callable[[], "Sequence[View]"]
"""The views of a text, worked out only if a renderer asks."""


@dataclass(frozen=True, slots=True)
class Display:
    """What is known of the place where text will be read, with its colours: None for none.

    `first` is the number of the first text among all records of the input; `many`: several texts
    may come; `begun`: a run that was interrupted has written the beginning already; `rows`: how
    many a table shows at most, 0: all.
    """

    width: int = 80
    colors: str | None = None
    many: bool = False
    first: int = 0
    begun: bool = False
    rows: int = 0

    def left_out(self, count: int) -> str:
        """A line about how many rows of a table are not shown; empty where all are."""
        if not self.rows or count <= self.rows:
            return ""
        told = f"{self.rows:,} of {count:,} rows: --max-rows {count} shows all"
        return f"{told}; -f tsv and -f json have them as data\n"


class Renderer(Protocol):
    """Something that turns attention into text or bytes, text by text."""

    def __init__(self, display: Display) -> None: ...

    def add(self, attention: Attention, views: Views) -> str | bytes:
        """What to write for one more text."""
        ...

    def finish(self) -> str | bytes:
        """What to write once all texts are through."""
        ...


@runtime_checkable
class Numbering(Protocol):
    """A renderer that numbers its texts by their place in the input."""

    def skip(self) -> None:
        """A record came to nothing: the next one's number is one more."""
        ...
