"""Which model answers for pictures with a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.models.open import check_origin, check_torch, loading_of, name_of

if TYPE_CHECKING:
    from attnviz.core.options import Origin
    from attnviz.models import Source, WithHead


def open_picture_text(origin: Origin, *, with_head: WithHead = False) -> Source:
    """The model of pictures and a text; it always has its head."""
    from attnviz.features.picture_text.source import load_picture_text_model

    check_origin(origin, "picture")
    check_torch(origin, "pictures with a text")
    return load_picture_text_model(name_of(origin), generate=origin.generate, **loading_of(origin))
