"""The interactive page: one file with every head and every weight, which makes no request."""

from __future__ import annotations

from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.renderers.page.data import Patches
from attnviz.renderers.page.document import MOST_WEIGHTS, assemble, iframe, page_parts

__all__ = ["MOST_WEIGHTS", "Patches", "assemble", "iframe", "page", "page_parts"]


def page(attention: Attention, **parts: Any) -> str:
    """An HTML page with every map of one text; see `page_parts`. Write it as UTF-8."""
    return assemble(*page_parts(attention, **parts))
