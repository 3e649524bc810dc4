"""The interactive page: one file with every head and every weight, which makes no request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.core.attention_map import Attention, Projections
from attnviz.core.measures import HeadMeasure
from attnviz.renderers.page.data import Patches
from attnviz.renderers.page.document import Extras, Words, assemble, iframe, page_document

__all__ = ["Patches", "assemble", "iframe", "page", "page_parts"]

MOST_WEIGHTS = 40_000_000
"""With more weights than these (12 × 12 heads at 512 tokens), tokens are pooled into blocks."""


def page(attention: Attention, **shown: Any) -> str:
    """An HTML page with every map of one text; see `page_parts`. Write it as UTF-8."""
    return assemble(*page_parts(attention, **shown))


def page_parts(
    attention: Attention,
    *,
    title: str = "",
    command: str = "",
    measures: Mapping[int, Sequence[HeadMeasure]] | None = None,
    words: Mapping[int, tuple[Words, Words]] | None = None,
    projections: Mapping[int, Projections] | None = None,
    patches: Mapping[int, Patches] | None = None,
    most_weights: int = MOST_WEIGHTS,
) -> tuple[dict[str, Any], dict[str, str]]:
    """A page's document, and the packed numbers that the document refers to by name.

    Weights are rounded by at most 0.001, few weights by at most 0.00004. The page shows the first
    map first, at the layer and head in focus.

    Args:
        attention: the maps of one text.
        title: the heading, by default the model.
        command: the command that makes the page again.
        measures: by number of a map, measures by which its heads are sorted and filtered.
        words: by number of a map, each query token's and each key token's word number, or None.
        projections: by number of a map, the queries and keys behind its scores.
        patches: by number of a map, the picture whose patches are its keys.
        most_weights: above so many weights in all, tokens are pooled into blocks, and each head's
            strongest links are kept exactly.

    Raises:
        InputError: words, projections or patches that do not fit their map.
    """
    extras = Extras(measures or {}, words or {}, projections or {}, patches or {})
    return page_document(attention, extras, title, command, most_weights)
