"""Attention as Parquet, for pandas, DuckDB, Spark and whatever else reads tables."""

from __future__ import annotations

from attnviz.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.storage.parquet import ParquetWriter


class ParquetRenderer:
    """One row a text; rows are written in groups."""

    def __init__(self, display: Display) -> None:
        self.writer = ParquetWriter()
        self.record = display.first

    def add(self, attention: Attention, views: Views) -> bytes:
        """A group of rows, where the text's completes one."""
        self.record += 1
        return self.writer.add(attention, self.record - 1)

    def skip(self) -> None:
        """A record came to nothing: the next one's number is one more."""
        self.record += 1

    def finish(self) -> bytes:
        """The last rows and the end of the file."""
        return self.writer.finish()
