"""A model and a batch of texts become each text's own attention weights, padding left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.hugging_face.blocks import whole
from attnviz.hugging_face.capture import HANDED_OVER, Captured, group, without_cache
from attnviz.hugging_face.extent import Frame
from attnviz.hugging_face.layers import check_rows, highest
from attnviz.hugging_face.passes import Sides, hand_over_layers, probe_layers
from attnviz.hugging_face.readings import Wish
from attnviz.hugging_face.refusals import check_family

if TYPE_CHECKING:
    from numpy.typing import NDArray


def capture_many(
    model: Any, inputs: Mapping[str, Any], sides: Sequence[Sides], calls: int | None = None
) -> list[list[Captured]]:
    """Every weight of each text of a batch, from one forward pass.

    Args:
        model: a transformers model on its device, or the encoder of one.
        inputs: tensors by name, padded behind each text, on the model's device.
        sides: how many queries and keys each stream of each text has, the shortest text first.
        calls: how many layers there are to read, after which the pass ends; None: it runs through;
            0: none can be read, and the model is to hand them over.

    Returns:
        for each text what `capture` gives of it alone.

    Raises:
        AttentionError: the architecture has no attention weights, or gives out something else.
        ModelError: the model fails, or the weights would not fit into memory.
    """
    longest = {
        stream: (max(side[stream][0] for side in sides), max(side[stream][1] for side in sides))
        for stream in sides[0]
    }
    check_family(model.config, max(max(side) for side in longest.values()))
    layers, route = all_layers(model, without_cache(model, inputs), longest, sides, calls)
    kind, most = model.config.model_type, highest(model)
    found = []
    for number, side in enumerate(sides):
        items = list[Captured]()
        for stream, (queries, keys) in side.items():
            own = {
                name: array[number, :, :queries, :keys] for name, array in layers[stream].items()
            }
            for item in group(stream, own):
                check_rows(item.weights, ", ".join(item.layers), kind, most)
                items.append(replace(item, queries=whole(queries), keys=whole(keys), route=route))
        found.append(items)
    return found


def all_layers(
    model: Any,
    inputs: Mapping[str, Any],
    longest: Sides,
    sides: Sequence[Sides],
    calls: int | None,
) -> tuple[dict[str, dict[str, NDArray[Any]]], str]:
    """Each stream's layers by name, shape (batch, heads, queries, keys), and how they were had."""
    wishes = {
        stream: Wish(Frame(whole(queries), whole(keys)), first=sides[0][stream][0], given=True)
        for stream, (queries, keys) in longest.items()
    }
    probed = {}
    if calls != 0:
        probed = probe_layers(model, inputs, longest, wishes, batch=len(sides), calls=calls)
    if set(probed) == set(longest):
        how = next(iter(next(iter(probed.values())).values())).how
        return {
            stream: {name: reading.weights for name, reading in layers.items()}
            for stream, layers in probed.items()
        }, f"{model.config._attn_implementation}, {how}"
    return hand_over_layers(model, inputs, longest, batch=len(sides)), HANDED_OVER
