"""Attention as one .npz archive: the pipe to `attnviz render -` and to numpy."""

from __future__ import annotations

from attnviz.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.storage.archive import dump_archive


class NpzRenderer:
    """All texts in one archive, written at the end."""

    def __init__(self, display: Display) -> None:
        self.kept: list[Attention] = []

    def add(self, attention: Attention, views: Views) -> bytes:
        """Nothing yet: an archive is whole or useless."""
        self.kept.append(attention)
        return b""

    def finish(self) -> bytes:
        """The archive."""
        return dump_archive(self.kept)
