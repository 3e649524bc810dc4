"""Layers, heads and streams by name, their mean or maximum, and the strongest links of a map."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Link, MeasuredLink, known_mean
from attnviz.core.errors import UsageError, choose, is_number
from attnviz.core.options import Over, Reduce, names_in
from attnviz.core.registry import is_reduced
from attnviz.core.tokens import word_cells

_HEADS = re.compile(r"\s*\d{1,9}\.\d{1,9}\s*(?:,\s*\d{1,9}\.\d{1,9}\s*)*")
"""Heads with their layers: "2.3" or "2.3,2.4"."""


def check_selection(layer: str | None, head: str | None) -> None:
    """Refuse layers and heads that could not be right for any model.

    Both are "0", "2,5", "0-3", "last", "all", or these joined by commas. A head is also "2.3",
    head 3 of layer 2, or such names joined by commas.
    """
    if layer is not None:
        if _HEADS.fullmatch(layer):
            raise UsageError(f"--layer '{layer}' names a head: write --head {layer}")
        _check_names(layer, "layer")
    if head is None or not _HEADS.fullmatch(head):
        if head is not None:
            _check_names(head, "head")
    elif layer is not None:
        raise UsageError(f"--head {head} names its layer: leave --layer {layer} out")
    else:
        _split_heads(head)


def _check_names(selection: str, what: str) -> None:
    for part in selection.split(","):
        low, dash, high = part.strip().partition("-")
        fits = is_number(low) and (not dash or (is_number(high) and int(low) <= int(high)))
        if not fits and part.strip() not in ("last", "all", "mean", "max"):
            more = ", or layer and head as 2.3" if what == "head" else ""
            raise UsageError(
                f"--{what} '{selection}' names no {what}: write 0, 2,5 or 0-3, last or all{more}"
            )


def positions(selection: str, names: Sequence[str]) -> list[int]:
    """The places of the selected names, in the order of the axis; unknown ones are left out."""
    choice: set[str] = set()
    for low, high in _parts(selection):
        if low == "all":
            choice.update(names)
        elif low == "last":
            choice.add(names[-1])
        elif low != high:
            inside = (name for name in names if is_number(name))
            choice.update(name for name in inside if int(low) <= int(name) <= int(high))
        else:
            choice.add(low)
    return [place for place, name in enumerate(names) if name in choice]


def missing(selection: str, names: set[str]) -> list[str]:
    """The names that a selection spells out and that do not exist."""
    spelt = dict.fromkeys(name for part in _parts(selection) for name in part)
    return [name for name in spelt if name not in names and name not in ("all", "last")]


def _parts(selection: str) -> list[tuple[str, str]]:
    """The ends of each part of a selection, equal but for ranges, numbers without leading zeros."""
    parts = []
    for part in selection.split(","):
        low, dash, high = part.strip().partition("-")
        ends = (low, high if dash else low)
        first, last = (str(int(name)) if is_number(name) else name for name in ends)
        parts.append((first, last))
    return parts


def select(
    attention: Attention, stream: str | None, layer: str | None, head: str | None
) -> Attention:
    """The chosen layers and heads in streams that have them; a UsageError if none has."""
    if head is not None and _HEADS.fullmatch(head):
        layer, head = _split_heads(head)
    maps = attention.maps
    if stream is not None:
        choose(stream, dict.fromkeys(item.stream for item in maps), "stream")
        maps = tuple(item for item in maps if item.stream == stream)
    steps = [] if stream is None else [f"stream {stream}"]
    for what, selection in (("layer", layer), ("head", head)):
        if selection is not None:
            _refuse_missing(maps, what, selection, attention.provenance.model)
            parts = (_narrow(item, what, selection) for item in maps)
            maps = tuple(item for item in parts if item is not None)
            steps.append(f"{what} {selection}")
    by_stream = {item.stream: item for item in maps}

    def there(one: MeasuredLink) -> MeasuredLink | None:
        item, link = by_stream.get(one.stream), one.link
        return one if item and link.layer in item.layers and link.head in item.heads else None

    return attention.with_maps(maps, *steps).with_links(there)


def _split_heads(selection: str) -> tuple[str, str]:
    """The layers and the heads of "2.3,2.4"; a UsageError where layers differ in their heads."""
    heads_of: dict[str, set[str]] = {}
    for layer, head in (name.strip().split(".") for name in selection.split(",")):
        heads_of.setdefault(layer, set()).add(head)
    first, *others = heads_of.values()
    if any(heads != first for heads in others):
        layers, every = ",".join(heads_of), ",".join(sorted(set.union(first, *others), key=int))
        raise UsageError(
            f"--head {selection} chooses different heads of layers {layers}, and a map holds the "
            f"same of each: give --layer {layers} --head {every}, or ask for one after the other"
        )
    return ",".join(heads_of), ",".join(first)


def _refuse_missing(maps: Sequence[AttentionMap], what: str, selection: str, model: str) -> None:
    names = list(dict.fromkeys(name for item in maps for name in _names(item, what)))
    absent = missing(selection, {one for item in maps for one in _numbers(_names(item, what))})
    if absent:
        have = f"{model} ({maps[0].stream}) has {_count(names, what)}"
        raise UsageError(f"{what} {absent[0]} does not exist: {have}")


def _count(names: Sequence[str], what: str) -> str:
    """What there is, such as "1 layer, 0", "12 layers, 0 to 11" or "2 heads, 2, 5"."""
    first = int(names[0]) if is_number(names[0]) else 0
    if len(names) > 2 and list(names) == [str(first + place) for place in range(len(names))]:
        return f"{len(names)} {what}s, {names[0]} to {names[-1]}"
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''}, {', '.join(names)}"


def _names(item: AttentionMap, what: str) -> tuple[str, ...]:
    return item.layers if what == "layer" else item.heads


def _numbers(names: tuple[str, ...]) -> Sequence[str]:
    """The number by which each one is chosen: its name, or its place where names are paths."""
    are_numbers = any(is_number(name) or is_reduced(name) for name in names)
    return names if are_numbers else [str(place) for place in range(len(names))]


def _narrow(item: AttentionMap, what: str, selection: str) -> AttentionMap | None:
    names = _names(item, what)
    places = positions(selection, _numbers(names))
    if not places:
        return None
    own = tuple(names[place] for place in places)
    return item.part(**{f"{what}s": own})


def check_reduction(how: str, over: str) -> None:
    """Refuse unknown names with a UsageError."""
    choose(how, names_in(Reduce), "reduction")
    choose(over, names_in(Over), "axis to reduce over")


def reduce_map(item: AttentionMap, how: str, over: str) -> AttentionMap:
    """The map with its "heads", its "layers" or "both" taken together, named after the reduction.

    "none" changes nothing; "mean" keeps each row's sum; after "max" a row may sum to more than 1.
    Cells without a value are left out.
    """
    if how == "none":
        return item
    axes = {"heads": (1,), "layers": (0,), "both": (0, 1)}[over]
    if how == "max":  # leaves out what has no value
        weights = np.fmax.reduce(item.weights, axis=axes, keepdims=True)
    elif item.values == "signed":
        weights = known_mean(item.weights, axes, keepdims=True)
    else:
        weights = item.weights.mean(axis=axes, keepdims=True)
    return item.with_weights(
        weights,
        layers=(how,) if 0 in axes and len(item.layers) > 1 else item.layers,
        heads=(how,) if 1 in axes and len(item.heads) > 1 else item.heads,
        links=item.links,
    )


def reduce_attention(attention: Attention, how: str, over: str) -> Attention:
    """Every map of a text reduced, and the provenance saying so."""
    if how == "none":
        return attention
    axes = "heads and layers" if over == "both" else over
    maps = tuple(reduce_map(item, how, over) for item in attention.maps)
    return attention.with_maps(maps, f"{how} over {axes}")


def strongest_links(item: AttentionMap, count: int, *, between_words: bool = True) -> list[Link]:
    """The cells of largest size over all layers and heads, largest first; ties in map order.

    All cells are searched, since a mean over heads hides a strong link of two tokens.
    """
    # A map of blocks has the strongest links of its single cells beside it.
    if item.is_pooled and item.links:
        return sorted(item.links, key=lambda link: -abs(link.weight))[:count]
    mask = cells_between_words(item) if between_words else None
    queries, keys = item.weights.shape[2:]
    largest = np.stack([_sizes(layer, mask).max(axis=-1) for layer in item.weights])
    # The strongest cells lie in the rows with the largest maxima: sort these rows only.
    rows = np.argsort(-largest, axis=None, kind="stable")[:count]
    strong_rows = item.weights.reshape(-1, keys)[rows]
    size = _sizes(strong_rows, None if mask is None else mask[rows % queries]).ravel()
    flat = (rows[:, None] * keys + np.arange(keys)).ravel()
    order = np.lexsort((flat, -size))[:count]
    shape = item.weights.shape
    places = [flat[place] for place in order if size[place] >= 0]
    return [link_at(item, np.unravel_index(place, shape)) for place in places]


def cells_between_words(item: AttentionMap) -> NDArray[np.bool_] | None:
    """True for links between different words, (queries, keys); None if the map has none."""
    cells = word_cells(item)
    if item.query_side == item.key_side and cells.shape[0] == cells.shape[1]:
        cells = cells & ~np.eye(len(cells), dtype=bool)
    return cells if cells.any() else None


def _sizes(weights: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """Absolute weights; -1 for cells that are not allowed or NaN."""
    sizes: NDArray[np.float32] = np.nan_to_num(np.abs(weights), nan=-1)
    return sizes if mask is None else np.where(mask, sizes, np.float32(-1))


def sharpest(item: AttentionMap) -> Link | None:
    """The strongest link between different words, if any."""
    links = strongest_links(item, 1)
    return links[0] if links else None


def link_at(item: AttentionMap, cell: Sequence[Any], weight: float | None = None) -> Link:
    """The link at (layer, head, query, key), with the map's weight or another."""
    layer, head, query, key = map(int, cell)
    ends = item.query_tokens[query].text, item.key_tokens[key].text
    weight = float(item.weights[layer, head, query, key]) if weight is None else weight
    return Link(*ends, weight, item.layers[layer], item.heads[head], query, key)
