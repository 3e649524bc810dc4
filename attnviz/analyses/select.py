"""Layers, heads and streams by name, their mean or maximum, and the strongest links of a map."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import options, registry, tokens
from attnviz.core.attention_map import (
    SEVERAL,
    Attention,
    AttentionMap,
    Link,
    MeasuredLink,
    known_mean,
)
from attnviz.core.errors import UsageError, choose, is_number
from attnviz.core.options.option import names_in

_HEADS = re.compile(r"\s*\d{1,9}\.\d{1,9}\s*(?:,\s*\d{1,9}\.\d{1,9}\s*)*")
"""Heads with their layers: "2.3" or "2.3,1.4"."""


def check_selection(layer: str | None, head: str | None, *, rows: bool = False) -> None:
    """Refuse layers and heads that could not be right for any model.

    Both are "0", "2,5", "0-3", "last", "all", or these joined by commas. A head is also "2.3",
    head 3 of layer 2, or such names joined by commas; of those that get `rows` each layer has the
    same heads.
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
    if rows and _differ(named_heads(head)):
        sides = zip(*named_heads(head), strict=True)
        layers, every = (",".join(sorted({*side}, key=int)) for side in sides)
        raise UsageError(
            f"--head {head} chooses different heads of layers {layers}, and a table has the same "
            f"of each: give --layer {layers} --head {every}"
        )


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
    """The chosen layers and heads in streams that have them; a UsageError if none has.

    Different heads of several layers stand side by side in a layer SEVERAL, by their whole names.
    """
    heads, spelt, maps = named_heads(head), f"head {head}", attention.maps
    if stream is not None:
        streams = dict.fromkeys(item.stream for item in maps)
        # "step 3" is enough for "step 3 of 8 · self" where no other stream begins so.
        longer = [name for name in streams if name.startswith((f"{stream} of ", f"{stream} · "))]
        stream = longer[0] if len(longer) == 1 else choose(stream, streams, "stream")
        maps = tuple(item for item in maps if item.stream == stream)
    steps = [] if stream is None else [f"stream {stream}"]
    if heads and any(item.layers == (SEVERAL,) for item in maps):
        layer, head = None, None  # they were chosen before: a choice of these
    elif heads:
        layer, head = (",".join(dict.fromkeys(side)) for side in zip(*heads, strict=True))
    for what, selection in (("layer", layer), ("head", head)):
        if selection is not None:
            _refuse_missing(maps, what, selection, attention.provenance.model)
            parts = (_narrow(item, what, selection) for item in maps)
            maps = tuple(item for item in parts if item is not None)
            steps.append(f"{what} {selection}")
    if heads:
        own = [[one for one in heads if one in _places(item)] for item in maps]
        if absent := [one for one in heads if not any(one in some for some in own)]:
            raise UsageError(f"head {'.'.join(absent[0])} does not exist in any stream")
        pairs = zip(maps, own, strict=True)
        maps = tuple(_side_by_side(item, some) for item, some in pairs if some)
        if head is None or _differ(heads):
            steps = [step for step in steps if step.startswith("stream ")] + [spelt]
    names = {(item.stream, *item.place(*at)) for item in maps for at in _places(item).values()}

    def there(one: MeasuredLink) -> MeasuredLink | None:
        return one if (one.stream, one.link.layer, one.link.head) in names else None

    return attention.with_maps(maps, *steps).with_links(there)


def named_heads(selection: str | None) -> list[tuple[str, str]]:
    """The layer and the head of each of "2.3,1.4"; none where heads are chosen otherwise."""
    if selection is None or not _HEADS.fullmatch(selection):
        return []
    names = (name.strip().split(".") for name in selection.split(","))
    return list(dict.fromkeys((str(int(layer)), str(int(head))) for layer, head in names))


def shows_layers(layer: str | None, head: str | None) -> bool:
    """Whether each layer is chosen: by number, or by heads that are those of every layer."""
    return layer is not None or (head is not None and not named_heads(head))


def _differ(heads: Sequence[tuple[str, str]]) -> bool:
    """Whether layers have different heads of these."""
    layers, numbers = ({one[at] for one in heads} for at in (0, 1))
    return len(heads) < len(layers) * len(numbers)


def _places(item: AttentionMap) -> dict[tuple[str, str], tuple[int, int]]:
    """The layer and head of each matrix of a map, by the numbers by which they are chosen."""
    layers, heads = _numbers(item.layers), _numbers(item.heads)
    if item.layers == (SEVERAL,):
        return {item.place(0, head): (0, head) for head in range(len(heads))}
    cells = np.ndindex(len(layers), len(heads))
    return {(layers[layer], heads[head]): (layer, head) for layer, head in cells}


def _side_by_side(item: AttentionMap, heads: Sequence[tuple[str, str]]) -> AttentionMap:
    """Some heads of a map: its part where they fill one, else one layer of them."""
    places = _places(item)
    rows, columns = map(list, zip(*(places[one] for one in heads), strict=True))
    if len({*rows}) * len({*columns}) == len(heads):
        own = [item.layers[row] for row in sorted({*rows})]
        return item.part(own, [item.heads[column] for column in sorted({*columns})])
    names = {one: ".".join(one) for one in map(item.place, rows, columns)}
    links = tuple(
        replace(link, layer=SEVERAL, head=names[link.layer, link.head])
        for link in item.links
        if (link.layer, link.head) in names
    )
    return item.with_weights(
        item.weights[rows, columns][None],
        layers=(SEVERAL,),
        heads=tuple(names.values()),
        links=links,
    )


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
    are_numbers = any(is_number(name) or registry.is_reduced(name) for name in names)
    return names if are_numbers else [str(place) for place in range(len(names))]


def _narrow(item: AttentionMap, what: str, selection: str) -> AttentionMap | None:
    names = _names(item, what)
    places = positions(selection, _numbers(names))
    if not places:
        return None
    return item.part(**{f"{what}s": tuple(names[place] for place in places)})


def parse_reduction(text: str) -> tuple[str, str]:
    """What a reduction does, and over what: "mean" or "mean:heads".

    Raises:
        UsageError: it is none of them.
    """
    how, _, over = choose(text, names_in(options.Reduction), "reduction").partition(":")
    return how, over or "both"


def reduce_map(item: AttentionMap, how: str, over: str) -> AttentionMap:
    """The map with its "heads", its "layers" or "both" taken together, named after the reduction.

    "none" changes nothing; "mean" keeps each row's sum; after "max" a row may sum to more than 1.
    Cells without a value are left out.
    """
    if how == "none":
        return item
    axes = {"heads": (1,), "layers": (0,), "both": (0, 1)}[over]
    if item.layers == (SEVERAL,):  # whose heads differ in their layers
        axes = (0, 1)
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
    cells = tokens.word_cells(item)
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
    return Link(*ends, weight, *item.place(layer, head), query, key)
