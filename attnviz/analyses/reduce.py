"""Many heads or layers as one: their mean or their maximum."""

from __future__ import annotations

from dataclasses import replace

from attnviz.attention_map import Attention, AttentionMap
from attnviz.errors import choose

WAYS = ("none", "mean", "max")
OVER = ("both", "heads", "layers")


def check_reduction(how: str, over: str) -> None:
    """Refuse unknown names.

    Raises:
        UsageError: with what was probably meant.
    """
    choose(how, WAYS, "reduction")
    choose(over, OVER, "axis to reduce over")


def reduce_map(item: AttentionMap, how: str, over: str) -> AttentionMap:
    """The map with its heads, its layers or both taken together.

    Args:
        item: any map.
        how: "none" changes nothing; "mean" keeps each row's sum; after "max" a row may sum to more
            than 1.
        over: "heads", "layers" or "both".

    Returns:
        A map with one head, one layer, or one of each, named after the reduction.
    """
    if how == "none":
        return item
    axes = {"heads": (1,), "layers": (0,), "both": (0, 1)}[over]
    combine = item.weights.mean if how == "mean" else item.weights.max
    return item.with_weights(
        combine(axis=axes, keepdims=True),
        layers=_names(item.layers, how, 0 in axes),
        heads=_names(item.heads, how, 1 in axes),
        links=item.links,
    )


def _names(names: tuple[str, ...], how: str, reduced: bool) -> tuple[str, ...]:
    return (how,) if reduced and len(names) > 1 else names


def reduce_attention(attention: Attention, how: str, over: str) -> Attention:
    """Every map of a text reduced, and the provenance saying so."""
    if how == "none":
        return attention
    axes = "heads and layers" if over == "both" else over
    provenance = attention.provenance
    return replace(
        attention,
        maps=tuple(reduce_map(item, how, over) for item in attention.maps),
        provenance=replace(provenance, steps=(*provenance.steps, f"{how} over {axes}")),
    )
