"""A picture seen through a lens, for the query that is to be shown."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING

from attnviz.analyses.patches import query_place
from attnviz.attention_map import Attention
from attnviz.registry import Needs
from attnviz.sources.lens import see

if TYPE_CHECKING:
    from PIL.Image import Image

    from attnviz.cli.image_run import Asked
    from attnviz.evidence import Explained, Transformed
    from attnviz.hugging_face.vision import VisionModel


def look_through(
    model: VisionModel, picture: Image, asked: Asked, size: tuple[int, int] | None
) -> Attention:
    """A picture's attention over itself through the lens asked for, every layer and head of it.

    Raises:
        AttnvizError: the model has no such attention, or the lens does not apply to it.
    """
    choice = asked.options.choice
    if choice.lens != "raw":
        model.check_tokens(choice.lens)

    def attend() -> Attention:
        return model.attend_image(picture, asked.patch, size)

    def ask(needs: Needs) -> Explained | Transformed:
        if needs == "gradients":
            return model.explain_image(picture, choice.explain, size)
        return model.transform_image(picture, size)

    if choice.lens == "flow":
        return flow_shown(attend(), asked)
    found = see(choice.lens, attend, ask, lambda attention: attention)
    if choice.lens != "norm":
        return found
    # Heads are summed unless one is asked for, which only the map of their own has.
    name = "self" if choice.head is None else "self-by-head"
    return replace(found, maps=(found.stream(name),))


def flow_shown(attention: Attention, asked: Asked) -> Attention:
    """The flow to the query that is shown: all pairs of a picture take half an hour.

    Raises:
        UsageError: more than one query is shown, and they are too many.
    """
    from attnviz.analyses.flow import MOST_SOLVES, flow

    tokens = attention.main.query_tokens
    place = None if asked.everything else query_place(tokens, asked.patch)
    fits = isqrt(MOST_SOLVES) - sum(token.special for token in tokens)
    one = f"choose one --patch ({len(tokens):,} problems)"
    return flow(
        attention,
        None if place is None else (place,),
        f"{one}, give a smaller --image-size (at most {fits} patches), or use --lens rollout",
    )
