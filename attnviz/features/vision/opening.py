"""Which model answers for a picture alone, and the file of one as a query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from attnviz.core.errors import UsageError
from attnviz.core.options import Origin
from attnviz.core.query import Picture, Query
from attnviz.models.open import (
    check_origin,
    is_shipped,
    load_shipped,
    loading_of,
    name_of,
    open_in_numpy,
)

if TYPE_CHECKING:
    from attnviz.features.vision.vision_model import VisionModel
    from attnviz.models import Source, WithHead

VISION = "pocket-vit"  # the default model of pictures


def check_vision(origin: Origin) -> None:
    """Refuse sources of texts for pictures."""
    if is_shipped(origin) and origin.model not in (None, VISION):
        raise UsageError(
            f"'{origin.model}' reads texts, and pictures need a vision model: leave --model out "
            f"for '{VISION}', or name one by --model ID_OR_FOLDER"
        )
    usual = Origin()
    texts = ("mechanism", "weights", "qk", "causal", "from_", "to")
    for name in (*texts, "max_size", "rows", "window"):
        if getattr(origin, name) != getattr(usual, name):
            option = name.strip("_").replace("_", "-")
            raise UsageError(f"--{option} is for texts, and these are pictures: leave it out")


def open_vision(origin: Origin, *, with_head: WithHead = False) -> Source:
    """The model of a picture alone."""
    check_origin(origin, "picture")
    if is_shipped(origin):
        return cast("Source", load_shipped(origin, VISION))
    name = name_of(origin)

    def load_whole() -> VisionModel:
        from attnviz.features.vision.vision_model import load_vision_model

        return load_vision_model(name, **loading_of(origin))

    def load() -> Source:
        from attnviz.features.vision.vision_model import load_picture_model

        return load_picture_model(name, **loading_of(origin))

    def open_light() -> Source:
        from attnviz.features.vision.light_vision import open_light_vision

        return open_light_vision(origin, str(name), load_whole, with_head=bool(with_head))

    return open_in_numpy(origin, name, open_light) or load()


def query_of_picture(path: Path, lens: str = "raw") -> Query:
    """The query for the file of a picture."""
    from attnviz.features.vision.picture_files import read_picture

    return Query("", kind="picture", picture=Picture(read_picture(path), lens=lens))
