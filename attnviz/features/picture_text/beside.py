"""Pictures beside the sequence of a text: keys of cross-attention, and queries without a place.

A text attends to a picture's patches by layers of their own (Mllama, Idefics), or to a number of
queries that have gathered from all of them (Idefics 2, Aria). The keys of such a call are probed as
embeddings of a sequence are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError, ModelError
from attnviz.features.picture_text.layouts import PicturesRead, Sheet, place_by_probes
from attnviz.features.picture_text.probe import Cells, ReachedError, find_cells
from attnviz.features.vision.pictures import SIDE
from attnviz.models.hugging_face.capture.kernel import stream_of, watch_kernels
from attnviz.models.hugging_face.load import devices

CROSS = "cross"
STREAMS = ("queries", CROSS)
"""Streams in which queries of a picture may gather from its patches."""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """How a text reads a picture, and where in it.

    Cells of the sheets are positions in the sequence, or keys of `stream`: the text attends to
    them, or where `queries` are, these do.
    """

    places: Any  # positions of the picture's tokens in the sequence
    sheets: Sequence[Sheet]
    stream: str = ""
    keys: int = 0  # how many the stream has
    text: str = "self"  # the stream of the text's own attention
    queries: bool = False  # whether the picture's tokens have no place in it


def states_of(model: Any, inputs: Mapping[str, Any], stream: str, queries: int = 0) -> Any:
    """The keys of a stream's first call, shape (1, keys, width), with their graph.

    Args:
        model: the model, on its device.
        inputs: its inputs, which need gradients.
        stream: the stream of the call.
        queries: how many queries the call has; 0: any number.
    """
    paths, reached_at = {id(part): name for name, part in model.named_modules()}, list[Any]()

    def look(call: AttentionCall) -> None:
        many, keys = call.query.shape[2], call.key.shape[2]
        wanted = many == queries if queries else stream == CROSS
        if wanted and keys != many and stream_of(paths.get(id(call.module), "")) == stream:
            reached_at.append(call.key)
            raise ReachedError

    with devices.running_errors(model, SIDE), watch_kernels(look):
        try:
            model(**inputs)
        except ReachedError:
            return reached_at[0].transpose(1, 2).flatten(2)
    raise ModelError(f"no layer of the stream {stream} attends to the picture")


def find_beside(
    model: Any,
    made_of: Callable[[Sequence[Any]], Any],
    embed: Callable[[Any], Any],
    read: PicturesRead,
    length: int,
) -> Sight | None:
    """How a text reads pictures whose parts have no position in its sequence; None: not found."""
    try:
        cells, keys = _key_cells(model, made_of, read.pictures, CROSS)
        return Sight(read.places, place_by_probes(_at(read, cells), cells), CROSS, keys)
    except (ModelError, AttentionError):
        pass  # its picture may still be read by queries
    grey = [Image.new("RGB", one.size, "grey") for one in read.pictures]
    try:
        places = changed_by(embed, [made_of(read.pictures), made_of(grey)])
    except ModelError:
        return None
    if not len(places):
        return None
    text = _text_stream(model, made_of(read.pictures), length)
    for stream in STREAMS:
        try:
            cells, keys = _key_cells(model, made_of, read.pictures, stream, len(places))
            sheets = place_by_probes(_at(read, cells), cells)
            return Sight(places, sheets, stream, keys, text, queries=True)
        except (ModelError, AttentionError):
            continue
    return Sight(places, (), text=text, queries=True)


def _text_stream(model: Any, inputs: Mapping[str, Any], length: int) -> str:
    """The stream of the layers that attend to the whole sequence."""
    paths, found = {id(part): name for name, part in model.named_modules()}, list[str]()

    def look(call: AttentionCall) -> None:
        if call.query.shape[2] == call.key.shape[2] == length:
            found.append(stream_of(paths.get(id(call.module), "")))

    with devices.running_errors(model, SIDE), watch_kernels(look):
        model(**inputs)
    return next(iter(found), "self")


def _key_cells(
    model: Any,
    made_of: Callable[[Sequence[Any]], Any],
    pictures: Sequence[Any],
    stream: str,
    queries: int = 0,
) -> tuple[Cells, int]:
    """The parts of pictures that keys of a stream are made of, and how many keys there are."""
    keys = int(states_of(model, made_of(pictures), stream, queries).shape[1])
    embed = partial(states_of, model, stream=stream, queries=queries)
    return find_cells(model, made_of, pictures, embed), keys


def _at(read: PicturesRead, cells: Cells) -> PicturesRead:
    return replace(read, places=cells.places)


def changed_by(embed: Callable[[Any], Any], inputs: Sequence[Any]) -> Any:
    """The positions of a sequence that differ between inputs of two pictures."""
    one, other = (embed(each)[0].detach() for each in inputs)
    return np.flatnonzero((one != other).any(dim=-1).cpu().numpy())
