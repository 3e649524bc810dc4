"""Pictures outside of a text's sequence: keys of cross-attention, and queries without a place.

A text attends to a picture's patches by layers of their own (Mllama, Idefics), or to a number of
queries that have gathered from all of them (Idefics 2, Aria). The keys of such a call are probed as
embeddings of a sequence are. Codes of a codebook (Emu 3, Chameleon) have no gradient: they are
words of the vocabulary, in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError, ModelError
from attnviz.core.records import dataclass, replace
from attnviz.features.picture_text.layouts import PicturesRead, Sheet, place_by_probes
from attnviz.features.picture_text.probe import Cells, ReachedError, find_cells
from attnviz.features.vision.pictures import SIDE, seen_box
from attnviz.models.hugging_face.capture.kernel import stream_of, watch_kernels
from attnviz.models.hugging_face.load import devices

CROSS = "cross"
STREAMS = ("queries", CROSS)
"""Streams in which queries of a picture may gather from its patches."""


@dataclass(frozen=True, slots=True, eq=False)
class PictureSight:
    """How a text reads pictures, and where in them.

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
        is_it = many == queries if queries else stream == CROSS
        if is_it and keys != many and stream_of(paths.get(id(call.module), "")) == stream:
            reached_at.append(call.key)
            raise ReachedError

    with devices.running_errors(model, SIDE), watch_kernels(look):
        try:
            model(**inputs)
        except ReachedError:
            return reached_at[0].transpose(1, 2).flatten(2)
    raise ModelError(f"no layer of the stream {stream} attends to the picture")


Making = Callable[[Sequence[Any]], Any]


def find_outside_sequence(
    model: Any, made_of: Making, embed: Callable[[Any], Any], read: PicturesRead, length: int
) -> PictureSight | None:
    """How a text reads pictures whose parts have no position in its sequence; None: unknown.

    Args:
        model: the model, on its device.
        made_of: the model's inputs of pictures, with the prompt.
        embed: the sequence of embeddings that inputs become.
        read: the pictures, and the places of their tokens.
        length: how many tokens the prompt has.
    """

    def states() -> PictureSight:
        cells, keys = _key_cells(model, made_of, read.pictures, CROSS)
        return PictureSight(read.places, place_by_probes(_at(read, cells), cells), CROSS, keys)

    def codes() -> PictureSight:
        if not are_words(model, embed(made_of(read.pictures))[0].detach()[read.places]):
            raise ModelError("its pictures are no words")
        return PictureSight(read.places, place_codes(read))

    def queries() -> PictureSight:
        grey = [Image.new("RGB", one.size, "grey") for one in read.pictures]
        places = changed_by(embed, [made_of(read.pictures), made_of(grey)])
        if not len(places):
            raise ModelError("its sequence does not tell pictures from each other")
        text = _text_stream(model, made_of(read.pictures), length)
        for stream in STREAMS:
            try:
                cells, keys = _key_cells(model, made_of, read.pictures, stream, len(places))
                sheets = place_by_probes(_at(read, cells), cells)
                return PictureSight(places, sheets, stream, keys, text, queries=True)
            except (ModelError, AttentionError):
                continue
        return PictureSight(places, (), text=text, queries=True)

    for way in (states, codes, queries):
        try:
            return way()
        except (ModelError, AttentionError):
            continue
    return None


def _key_cells(
    model: Any, made_of: Making, pictures: Sequence[Any], stream: str, queries: int = 0
) -> tuple[Cells, int]:
    """The parts of pictures that keys of a stream are made of, and how many keys there are."""
    keys = int(states_of(model, made_of(pictures), stream, queries).shape[1])
    embed = partial(states_of, model, stream=stream, queries=queries)
    return find_cells(model, made_of, pictures, embed), keys


def _at(read: PicturesRead, cells: Cells) -> PicturesRead:
    return replace(read, places=cells.places)


def _text_stream(model: Any, inputs: Mapping[str, Any], length: int) -> str:
    """The stream of the layers that attend to the whole sequence."""
    paths, streams = {id(part): name for name, part in model.named_modules()}, list[str]()

    def look(call: AttentionCall) -> None:
        if call.query.shape[2] == call.key.shape[2] == length:
            streams.append(stream_of(paths.get(id(call.module), "")))

    with devices.running_errors(model, SIDE), watch_kernels(look):
        model(**inputs)
    return next(iter(streams), "self")


def changed_by(embed: Callable[[Any], Any], inputs: Sequence[Any]) -> Any:
    """The positions of a sequence that differ between inputs of two pictures."""
    one, other = (embed(each)[0].detach() for each in inputs)
    return np.flatnonzero((one != other).any(dim=-1).cpu().numpy())


def are_words(model: Any, embeddings: Any) -> bool:
    """Whether all of these are vectors of the vocabulary."""
    words = model.get_input_embeddings().weight.detach()
    rows = (words[words[:, 0] == one[0]] for one in embeddings)
    return len(embeddings) > 0 and all(
        bool((some == one).all(dim=-1).any()) for some, one in zip(rows, embeddings, strict=True)
    )


def place_codes(read: PicturesRead) -> list[Sheet]:
    """Each picture in codes of a codebook, row by row; a token may end a row."""
    sizes = read.inputs.get("image_sizes")
    shapes = [read.inputs["pixel_values"].shape[-2:]] * len(read.pictures)
    if sizes is not None:
        shapes = [(int(high), int(wide)) for high, wide in sizes]
    for side in range(1, min(shapes[0]) + 1):
        for ends in (0, 1):
            grids = [(high // side, wide // side + ends) for high, wide in shapes]
            whole = all(high % side == wide % side == 0 for high, wide in shapes)
            if whole and sum(rows * columns for rows, columns in grids) == len(read.places):
                return [*_code_sheets(read, grids, ends)]
    raise read.misfit("rows of codes")


def _code_sheets(
    read: PicturesRead, grids: Sequence[tuple[int, int]], ends: int
) -> Iterator[Sheet]:
    parts = read.split_places([rows * columns for rows, columns in grids], "rows of codes")
    for number, (own, (rows, columns)) in enumerate(zip(parts, grids, strict=True)):
        cells = own.reshape(rows, columns)
        box = seen_box(read.processor.image_processor, read.pictures[number], None)
        breaks = {int(place): "[newline]" for place in cells[:, columns - ends :].flat}
        yield Sheet(read.picture_name(number), number, cells[:, : columns - ends], box, breaks)
