"""One self-contained interactive page: every head, every weight, no request to anywhere.

The page is a file: it opens from disk without a network, in a notebook's cell or from an e-mail.
Its scripts and styles are files of their own beside this one, put together when a page is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.core.attention_map import Attention, Projections
from attnviz.core.measures import HeadMeasure
from attnviz.renderers.page.data import Patches
from attnviz.renderers.page.document import Extras, Words, assemble, framed, page_document

__all__ = ["Patches", "assemble", "framed", "page", "page_parts"]

MOST_WEIGHTS = 40_000_000
"""More weights than these (12 × 12 heads at 512 tokens) are pooled into blocks of tokens."""


def page(attention: Attention, **shown: Any) -> str:
    """An HTML page with every map of one text, to be looked at in a browser; see `page_parts`.

    Write it as UTF-8.
    """
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
    """What a page shows of one text: its document, and the packed numbers that this names.

    Weights are kept to within 0.001, where they are few to within 0.00004 (see `codes`). Of maps
    with more weights than `most_weights` altogether, tokens are pooled into blocks, and each
    head's strongest links are kept exactly.

    The first map is shown first, at the layer and head in focus, under a title that says what was
    run, by default the model. By the number of a map come measures of its heads to sort and filter
    by; for each query token and each key token the number of its word or None, or nothing where
    tokens are all there is; the queries and keys behind its scores; and the picture that its keys
    are patches of. `command` makes the page again.

    Raises:
        InputError: words, projections or patches that do not fit their map.
    """
    extras = Extras(measures or {}, words or {}, projections or {}, patches or {})
    return page_document(attention, extras, title, command, most_weights)
