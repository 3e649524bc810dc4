"""Attention as one .npz archive: the pipe to `attnviz render -` and to numpy."""

from __future__ import annotations

from attnviz.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.storage.archive import ArchiveWriter


class NpzRenderer:
    """All texts in one archive, which can be read once its end is written."""

    def __init__(self, display: Display) -> None:
        self.writer = ArchiveWriter()

    def add(self, attention: Attention, views: Views) -> bytes:
        """The text's weights."""
        return self.writer.add(attention)

    def finish(self) -> bytes:
        """The list of texts and the archive's end."""
        return self.writer.finish()
