"""No output, for a run that only writes files."""

from __future__ import annotations

from attnviz.attention_map import Attention
from attnviz.renderers import Display, Views


class NoRenderer:
    """Says nothing."""

    def __init__(self, display: Display) -> None: ...

    def add(self, attention: Attention, views: Views) -> str:
        """Nothing."""
        return ""

    def finish(self) -> str:
        """Nothing."""
        return ""
