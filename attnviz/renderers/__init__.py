"""Maps and measures as text, bytes or figures; nothing here opens a file.

A data renderer takes one text at a time with `add(attention, views)` and ends with `finish()`. Both
return what to write now, so that a stream of texts needs no more memory than one text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attnviz.core.records import dataclass
from attnviz.core.registry import DataKind, Entry, FeatureFormat, Form, Format

if TYPE_CHECKING:  # they import numpy, and `attnviz models` must start without it
    from attnviz.core.attention_map import Attention
    from attnviz.core.measures import Link, Overview, SinkShares, View


class Views:
    """The views of a text, its strongest links and its overviews, each worked out once if asked."""

    def __init__(
        self,
        make: Callable[[], Sequence[View]],
        find_links: Callable[[], Sequence[Link]] | None = None,
        find_overviews: Callable[[], Sequence[Overview]] = tuple,
        find_sinks: Callable[[], SinkShares | None] = lambda: None,
    ) -> None:
        self._make, self._find_links, self._find_overviews = make, find_links, find_overviews
        self._find_sinks = find_sinks

    def __call__(self) -> Sequence[View]:
        return self._views

    @cached_property
    def _views(self) -> Sequence[View]:
        return self._make()

    @cached_property
    def overviews(self) -> Sequence[Overview]:
        """What is seen first of words; empty where the views are."""
        return self._find_overviews()

    @cached_property
    def sinks(self) -> SinkShares | None:
        """What of the main map goes to sinks; None: it is not known."""
        return self._find_sinks()

    @cached_property
    def links(self) -> Sequence[Link]:
        """The links that the first view lists, without the view where these are known alone."""
        return self._views[0].links if self._find_links is None else self._find_links()


NO_VIEWS = Views(tuple)
"""Of data that are no maps."""


@dataclass(frozen=True, slots=True)
class Display:
    """Where text will be read."""

    width: int = 80  # cells of a line
    colors: str | None = None  # rich's name of a colour system; None: no colours
    many: bool = False  # several texts may come
    as_list: bool = False  # JSON is a list even of one text, so that all shards are alike
    first: int = 0  # the first text's number among the records of the input
    begun: bool = False  # an interrupted run has already written the beginning
    rows: int = 0  # the most rows of a table; 0: all
    short: bool = False  # of a long matrix only the rows that say most
    whole: bool = False  # a matrix with every column, however wide
    pieces: bool = False  # tokens, special ones too, in place of words
    hints: bool = False  # a reader at a terminal: say what to type next
    fields: tuple[str, ...] = ()  # the only fields of JSON, or columns of rows; (): all
    digits: int | None = None  # decimals of weights in data; None: all that a float32 has

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

    def finish(self) -> str | bytes:
        """What to write after the last text."""


@runtime_checkable
class Numbering(Protocol):
    """A renderer that counts the texts of the input, those that fail too."""

    def skip(self) -> None:
        """Count a record that yielded no attention."""


FORMATS: dict[str, Format] = {
    "table": Format(
        "A table for the eye: one head or a mean, and a line for each head.",
        "text.table:TableRenderer",
        ".txt",
        "text",
        "reports:TextReport",
    ),
    "json": Format(
        "One JSON document, with everything; of several texts a list: jsonl suits these better.",
        "reports:JsonReport",
        ".json",
        "document",
    ),
    "jsonl": Format(
        "One JSON document a line, a line a text.",
        "reports:JsonLinesReport",
        ".jsonl",
        "document",
        grows=True,
    ),
    "csv": Format(
        "Comma-separated, one weight a row.",
        "reports:CsvReport",
        ".csv",
        "rows",
        grows=True,
    ),
    "tsv": Format(
        "Tab-separated, one weight a row, backslash escapes, never a quote.",
        "reports:TsvReport",
        ".tsv",
        "rows",
        grows=True,
    ),
    "npz": Format(
        "NumPy arrays with everything in them, readable without pickle.",
        "data:NpzRenderer",
        ".npz",
        "arrays",
        "reports:TextReport",
        binary=True,
    ),
    "parquet": FeatureFormat(
        "A table with a row for each text, for pandas, DuckDB and their like (needs pyarrow).",
        "parquet.file:ParquetRenderer",
        ".parquet",
        binary=True,
    ),
    "heatmap": FeatureFormat(
        "One matrix as a picture in the terminal.", "terminal.heatmap:TerminalHeatmap"
    ),
    "grid": FeatureFormat(
        "Every head as a thumbnail in the terminal.", "terminal.heatmap:TerminalGrid"
    ),
    "links": Format(
        "The strongest links, one per line: no special tokens, sinks or diagonal.",
        "text.link_list:LinksRenderer",
    ),
    "pharaoh": Format(
        "The links of a pair's words on one line, as word aligners write them: 0-0 2-1.",
        "reports:TextReport",
        ".txt",
        "links",
    ),
    "textgrid": Format(
        "Words with their times, as Praat reads them.",
        "reports:TextReport",
        ".textgrid",
        "textgrid",
    ),
    "vtt": Format(
        "Words with their times as WebVTT, a cue each.", "reports:TextReport", ".vtt", "vtt"
    ),
    "none": Format("Nothing on stdout.", "reports:NoReport", "", "nothing"),
}

DATA_KINDS: dict[DataKind, tuple[str, tuple[Form, ...]]] = {
    "maps": ("attention maps", ("text", "document", "rows", "arrays", "maps")),
    "heads": ("measures of heads", ("text", "document", "rows")),
    "corpus": ("a corpus report", ("text", "document", "rows", "arrays")),
    "comparison": ("a comparison", ("text", "document", "rows", "arrays")),
    "ablation": ("effects", ("text", "document", "rows", "arrays")),
    "why": ("reasons of a head", ("text", "document", "rows", "arrays")),
    "answer": ("what decided an answer", ("text", "document", "rows")),
    "match": ("a match", ("text", "document", "rows", "arrays")),
    "cache": ("what a smaller cache costs", ("text", "document", "rows")),
    "sources": ("the sources of an answer", ("text", "document", "rows")),
    "chat": ("the parts of a chat", ("text", "document", "rows")),
    "trace": ("sentences of a reasoning", ("text", "document", "rows")),
    "wiring": ("the wiring of heads", ("text", "document", "rows", "arrays")),
    "changes": ("changes of effects", ("text", "document", "rows")),
    "lenses": ("measures of lenses", ("text", "document", "rows")),
    "alignment": ("word alignments", ("links", "document", "rows")),
    "scores": ("scores of heads", ("text", "document", "rows")),
    "times": ("times of words", ("text", "document", "rows", "textgrid", "vtt")),
    "steps": ("matrices", ("text", "document", "arrays")),
    "lesson": ("a lesson", ("text", "document", "rows")),
    "history": ("the history of heads", ("text", "document", "rows")),
    "listing": ("a list", ("text", "document", "rows")),
}
"""Each kind of data in words, and what it can be written as, its usual form first."""

PICTURES: dict[str, Entry] = {
    "heatmap": Entry(
        "One matrix of weights as a heat map.", "attnviz.renderers.figures.heatmap:heatmap"
    ),
    "grid": Entry(
        "Every head of every layer side by side on one scale.",
        "attnviz.features.grid.picture:grid",
    ),
    "lines": Entry(
        "Two columns of tokens joined by lines, the heavier the larger the weight.",
        "attnviz.features.lines.picture:lines",
    ),
}

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
