"""Maps of a picture whose attention was traced, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import (
    AVERAGE,
    check_patch,
    mark_tokens,
    parse_patch,
    patch_name,
    patch_tokens,
)
from attnviz.features.windows.layers import (
    LayerReader,
    NotOverPatches,
    PlacedLayer,
    Side,
    read_layers,
)
from attnviz.features.windows.places import PixelPlaces

SIDE = "picture"
Box = tuple[float, float, float, float]  # left, top, right, bottom in the picture's pixels
WORDS = (("cls", "CLS"), ("class", "CLS"), ("dist", "DIST"), ("reg", "REG"), ("det", "DET"))
"""Parts of the names of parameters, and the tokens that they hold."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPicture:
    """A picture's attention, read by tracing."""

    maps: tuple[AttentionMap, ...]
    notes: tuple[str, ...]
    grid: tuple[int, int]  # rows and columns of the first layer's patches
    box: Box  # what they cover

    def fill(self, attention: Attention, size: tuple[int, int]) -> Attention:
        """An attention without maps, with these; the picture has that width and height."""
        settings = {"patches": f"{self.grid[0]} × {self.grid[1]}"}
        box, beyond = _inside(self.box, size, self.grid)
        notes = self.notes
        if beyond > BEYOND:
            notes += (
                f"patches at the border lie up to {beyond:.2g} of a patch beyond the picture, and "
                "are drawn inside it",
            )
        result = attention.with_maps(self.maps, notes=notes, settings=settings)
        return replace(result, seen=box)


BEYOND, NEAR = 0.1, 0.01  # of a patch, which is said; of a side, which is rounded


def _inside(box: Box, size: tuple[int, int], grid: tuple[int, int]) -> tuple[Box, float]:
    """A box without what lies outside a picture, and how many patches that was."""
    left, top, right, bottom = box
    patches = (right - left) / grid[1], (bottom - top) / grid[0]
    ends, beyond = list[float](), 0.0
    for first, last, side, patch in zip((left, top), (right, bottom), size, patches, strict=True):
        beyond = max(beyond, -first / patch, (last - side) / patch)
        near = NEAR * side
        ends += [0.0 if first < near else first, float(side) if last > side - near else last]
    return (ends[0], ends[2], ends[1], ends[3]), beyond


def read_picture(
    module: Any,
    inputs: dict[str, Any],
    places: dict[str, PixelPlaces],
    *,
    name: str,
    patch: str | None,
    whole: bool = False,
    what: str = SIDE,
) -> PlacedPicture:
    """A picture's attention over its patches, wherever a model moves them.

    Args:
        module: the model, or the part of it that reads pictures.
        inputs: its inputs by name.
        places: of the inputs that were made of the picture, their places.
        name: the model's, for errors.
        patch: the patch that asks, "all", or None.
        whole: whether a lens needs the rows of every patch.
        what: the side of queries and keys.

    Returns:
        The map of all patches where every layer has the same ones; else one row of each layer: that
        of the patch that covers the one that asks, of a class token, or the mean of all patches.

    Raises:
        AttentionError: no attention lies over patches.
        UsageError: the picture has no such patch, or `patch` is "all" and layers differ.
    """
    at = None if patch in (None, "all") else parse_patch(str(patch))
    reader, tracing = read_layers(module, inputs, places, at)
    if not reader.layers:
        said = "; ".join(reader.skipped) or "no softmax times values was seen"
        raise NotOverPatches(
            f"'{name}' ({type(module).__name__}) has no attention between patches: {said}"
        )
    names = [_special_name(*one) for one in tracing.specials]
    first = reader.layers[0].queries.grid
    if at is not None:
        check_patch(str(patch), *first.shape)
    notes = tuple(_notes(reader, what))
    maps = _whole_map(reader.layers, names)
    if maps is None:
        if patch == "all":
            windows = any(one.windows > 1 for one in reader.layers)
            why = "attends in windows" if windows else "has other patches in each stage"
            raise UsageError(f"'{name}' {why}: choose one --patch, or none for the mean")
        if whole:
            raise AttentionError(
                f"'{name}' has no row of every patch over every other one, which this lens needs: "
                "use --lens raw"
            )
        maps = _row_maps(reader.layers, names, at)
    maps = tuple(replace(item, query_side=what, key_side=what) for item in maps)
    return PlacedPicture(maps, notes, first.shape, first.box())


def _special_name(origin: str, number: int, count: int) -> str:
    last = origin.rpartition(".")[2].lower()
    word = next((name for part, name in WORDS if part in last), "")
    if not word:
        stem = last.removesuffix("s").removesuffix("_token").removesuffix("_embedding")
        word = stem.upper() or "TOKEN"
    return f"[{word}]" if count == 1 else f"[{word} {number}]"


def _tokens(side: Side, names: Sequence[str]) -> tuple[Token, ...]:
    special = mark_tokens(names[one - 1] for one in side.names)
    return *special, *patch_tokens(*side.grid.shape)


def _whole_map(
    layers: Sequence[PlacedLayer], names: Sequence[str]
) -> tuple[AttentionMap, ...] | None:
    tokens = {_tokens(side, names) for one in layers for side in (one.queries, one.keys)}
    wholes = [one.whole for one in layers if one.whole is not None]
    if len(tokens) > 1 or len(wholes) < len(layers) or len({one.heads for one in layers}) > 1:
        return None
    (own,) = tokens
    numbers = tuple(map(str, range(len(layers))))
    return (_map(numbers, np.stack(wholes), own, own),)


def _row_maps(
    layers: Sequence[PlacedLayer], names: Sequence[str], at: tuple[int, int] | None
) -> tuple[AttentionMap, ...]:
    specials = [one.queries.names for one in layers]
    firsts = {names[own[0] - 1] if own else "" for own in specials}
    query, mean = AVERAGE, True
    if at is not None:
        query, mean = Token(patch_name(*at)), False
    elif len(firsts) == 1 and (first := next(iter(firsts))):
        query, mean = Token(first, special=True), False
    rows = [
        (str(number), _tokens(one.keys, names), row)
        for number, one in enumerate(layers)
        if (row := one.mean if mean else one.asked) is not None
    ]
    maps = []
    for (keys, _), run in groupby(rows, key=lambda one: (one[1], one[2].shape)):
        stage = list(run)
        weights = np.stack([row for *_, row in stage])
        numbers = tuple(number for number, *_ in stage)
        maps.append(_map(numbers, weights[:, :, None], (query,), keys))
    return tuple(maps)


def _map(
    layers: tuple[str, ...], weights: Any, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> AttentionMap:
    return AttentionMap("self", queries, keys, weights, layers=layers)


def _notes(reader: LayerReader, what: str) -> Iterator[str]:
    """What windows, padding, pooling and merging do to the maps."""
    said: dict[str, list[int]] = {}
    first = reader.layers[0].queries.grid.shape
    for number, one in enumerate(reader.layers):
        for note in _notes_of(one, first):
            said.setdefault(note, []).append(number)
    for note, numbers in said.items():
        yield f"{_span(numbers)}: {note}"
    padding = [one.padded for one in reader.layers if one.padded >= 0.0005]
    if padding:
        yield (
            f"up to {max(padding):.1%} of a layer's weights fall on padding beside the {what}: "
            "rows sum to what stays"
        )
    for why, count in reader.skipped.items():
        calls = "call is" if count == 1 else "calls are"
        yield f"{count} further attention {calls} left out: {why}"


def _notes_of(one: PlacedLayer, first: tuple[int, int]) -> Iterator[str]:
    queries, keys = one.queries.grid.shape, one.keys.grid.shape
    if one.copies:
        yield (
            f"each special token is repeated {one.copies} times: its row is the mean of its rows, "
            "and weights on it are added"
        )
    if one.windows > 1:
        down, across, apart = _window(one.keys)
        kind = f"windows of {down} × {across}" if not apart else f"{one.windows} sets of patches"
        shift = ", shifted" if _is_shifted(one.keys, (down, across)) and not apart else ""
        yield (
            f"each patch looks inside its own of {one.windows} {kind}{shift}; other links do not "
            "exist and are 0"
        )
    if queries != first:
        size, times = f"{queries[0]} × {queries[1]}", _times(first, queries)
        yield f"each of {size} patches covers {times} of the first layer's"
    if keys != queries:
        coarse = keys[0] * keys[1] < queries[0] * queries[1]
        if coarse:
            yield f"a key covers {_times(queries, keys)} patches"
        else:
            yield f"queries are pooled over {_times(keys, queries)} patches"


def _times(fine: tuple[int, int], coarse: tuple[int, int]) -> str:
    return " × ".join(f"{a / b:.3g}" for a, b in zip(fine, coarse, strict=True))


def _window(keys: Side) -> tuple[int, int, bool]:
    """Rows and columns of the largest window, and whether patches lie apart in every one."""
    columns = keys.grid.shape[1]
    largest, apart = (0, 0), True
    for patches in np.unique(keys.patches, axis=0):
        inside = patches[patches >= 0]
        if not len(inside):
            continue
        rows, across = np.unique(inside // columns), np.unique(inside % columns)
        largest = max(largest, (len(rows), len(across)))
        apart &= bool(len(rows) > 1 and (np.diff(rows) > 1).all())
    return *largest, apart


def _is_shifted(keys: Side, window: tuple[int, int]) -> bool:
    """Whether the first patch's window reaches beyond the picture's other side, or is cut."""
    columns = keys.grid.shape[1]
    own = keys.patches[(keys.patches == 0).any(1)][0]
    inside = own[own >= 0]
    rows = np.unique(inside // columns)
    return bool(len(rows) != rows[-1] + 1 or len(rows) < min(window[0], keys.grid.shape[0]))


def _span(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    first, last, step = numbers[0], numbers[-1], numbers[1] - numbers[0]
    if list(numbers) == list(range(first, last + 1, step)):
        if step == 1:
            return f"layers {first} to {last}"
        if len(numbers) > 3:
            return f"layers {first}, {numbers[1]}, … {last}"
    return f"layers {', '.join(map(str, numbers))}"
