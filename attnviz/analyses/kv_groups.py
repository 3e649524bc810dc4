"""Query heads that share keys and values (Shazeer 2019; Ainslie 2023): a map for each group.

The heads that share a head of keys and values follow one another: of n that share each, the heads
0 to n − 1 share the first. What a key–value head does is the mean of theirs; a key that this mean
gives much is one that its group would miss.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np

from attnviz.core.attention_map import IMPLIED, Attention, AttentionMap, stream_of_call
from attnviz.core.errors import UsageError
from attnviz.core.measures import HeadMeasure

LIKENESS = "kv-likeness"  # the measure of how alike the heads of a group look
STEP = "key–value heads"  # how the step of a provenance begins


def sizes_of(attention: Attention, item: AttentionMap) -> dict[str, int]:
    """By layer of a map, how many query heads share each head of keys and values; empty: unknown.

    A stream of one call of a module has the sizes of the stream of all.
    """
    sizes = attention.group_sizes.get(stream_of_call(item.stream)[1], {})
    return {layer: sizes[layer] for layer in item.layers if layer in sizes}


def groups_of(item: AttentionMap, sizes: Mapping[str, int]) -> list[dict[int, list[int]]]:
    """For each layer of a map, the places of the heads that share each head of keys and values.

    A head that shares with no other here, and one of no number, has no group.
    """
    groups = list[dict[int, list[int]]]()
    for layer, name in enumerate(item.layers):
        own = dict[int, list[int]]()
        for place in range(len(item.heads)):
            at, head = item.place(layer, place)
            size = sizes.get(at if at in sizes else name, 1)
            if size > 1 and head.isdecimal():
                own.setdefault(int(head) // size, []).append(place)
        groups.append({group: places for group, places in own.items() if len(places) > 1})
    return groups


def mean_of_groups(attention: Attention) -> Attention:
    """The attention with a head for each head of keys and values: the mean of those that share it.

    Neighbouring layers with as many of them make a map. What was measured of single query heads
    (effects, scores, exact links) goes.

    Raises:
        UsageError: no heads of these maps share keys and values, or not all of a group are here.
    """
    # What stands beside attention has no keys and values.
    maps = [item for item in attention.maps if item.stream != IMPLIED]
    sizes = {id(item): sizes_of(attention, item) for item in maps}
    if all(size == 1 for own in sizes.values() for size in own.values()):
        raise UsageError(_refusal(attention, is_known=any(sizes.values())))
    means = tuple(mean for item in maps for mean in _means(item, sizes[id(item)]))
    largest = sorted({size for own in sizes.values() for size in own.values()} - {1})
    many = " or ".join(map(str, largest))
    note = (
        f"heads are counted as key–value heads, each the mean of the {many} query heads that share "
        f"it: head 0 is the mean of 0 to {largest[0] - 1}"
    )
    step = f"{STEP} (each the mean of {many} query heads)"
    result = attention.with_maps(means, step, notes=(note,))
    return replace(
        result,
        group_sizes={},
        focus={},
        effects={},
        scores={},
        projections={},
        measured=(),
        idle=(),
        decisive=(),
    )


def _refusal(attention: Attention, *, is_known: bool) -> str:
    model = attention.provenance.title
    if any(step.startswith(STEP) for step in attention.provenance.steps):
        return "--kv has been applied to these maps already: their heads are key–value heads"
    if is_known:
        return f"--kv has nothing to join: each head of '{model}' has keys and values of its own"
    return f"--kv has nothing to join: nothing says that heads of '{model}' share keys and values"


def _means(item: AttentionMap, sizes: Mapping[str, int]) -> Iterator[AttentionMap]:
    layers = [(layer, sizes.get(layer, 1)) for layer in item.layers]
    for size, run in groupby(layers, key=lambda one: one[1]):
        names = tuple(layer for layer, _ in run)
        part = item.part(names)
        whole = [str(head) for head in range(len(item.heads))]
        if list(item.heads) != whole or len(whole) % size:
            raise UsageError(
                f"--kv joins all query heads of a layer, and stream '{item.stream}' has the heads "
                f"{', '.join(item.heads[:8])}: {size} share each head of keys and values"
            )
        own_layers, own_heads, *cells = part.weights.shape
        apart = part.weights.reshape(own_layers, own_heads // size, size, *cells)
        weights = np.asarray(apart.mean(axis=2, dtype=np.float64), dtype=np.float32)
        heads = tuple(map(str, range(weights.shape[1])))
        yield part.with_weights(weights, layers=names, heads=heads)


STANDS_OUT = 0.1  # how much more alike the rest of a group is than with the head that stands out


def likeness_of(item: AttentionMap, measure: HeadMeasure | None) -> dict[tuple[str, str], float]:
    """The measure by layer and head; empty where heads share nothing."""
    values = np.zeros((0, 0)) if measure is None else measure.values
    return {item.place(*at): float(values[at]) for at in np.ndindex(values.shape)}


def groups_in_words(values: Mapping[tuple[str, str], float], sizes: Mapping[str, int]) -> str:
    """One line: how many heads share keys and values, how alike they look, and which stands out.

    By each head's likeness to the others of its group. A head stands out where these are more alike
    by `STANDS_OUT` without it.
    """
    members = dict[tuple[str, int], dict[str, float]]()
    for (layer, head), value in values.items():
        if sizes.get(layer, 1) > 1 and head.isdecimal() and not math.isnan(value):
            members.setdefault((layer, int(head) // sizes[layer]), {})[head] = value
    groups = list[tuple[float, str, float, str]]()  # likeness, name, how far a head stands out
    for (layer, _), own in members.items():
        count, likeness, heads = len(own), sum(own.values()) / len(own), sorted(own, key=int)
        gap, odd, name = 0.0, "", f"{layer}.{heads[0]}–{heads[-1]}"
        if count > 2:
            # The mean over the pairs without a head, from each head's mean over its own pairs.
            head = min(own, key=lambda head: own[head])
            others = (count * likeness - 2 * own[head]) / (count - 2)
            if others - likeness >= STANDS_OUT:
                gap, odd = others - own[head], f"; {layer}.{head} stands out of {name} "
                odd += f"({_two(own[head])}, the others {_two(others)})"
        if count > 1:
            groups.append((likeness, name, gap, odd))
    if not groups:
        return ""
    groups.sort(key=lambda one: -one[0])
    many = " or ".join(map(str, sorted({sizes[name.rpartition(".")[0]] for _, name, *_ in groups})))
    mean = sum(likeness for likeness, *_ in groups) / len(groups)
    line = f"every {many} query heads share keys and values, and look {_two(mean)} alike"
    if len(groups) > 1:
        (most, first, *_), (least, last, *_) = groups[0], groups[-1]
        line += f" (most {first} {_two(most)}, least {last} {_two(least)})"
    return line + max(groups, key=lambda one: one[2])[3]


def _two(value: float) -> str:
    text = f"{value:.2f}"
    return text if text == "1.00" else text.removeprefix("0")
