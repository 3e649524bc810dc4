"""One pass of a model over a batch, and what each layer of it attends to.

Weights are read from the kernel that the model runs with. Models that compute attention by hand run
again eagerly and hand their matrices over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.hugging_face.border import running
from attnviz.hugging_face.devices import BYTES, check_fit
from attnviz.hugging_face.extent import heads_of
from attnviz.hugging_face.interface import Call
from attnviz.hugging_face.layers import attending, read_batch, refuse_shape
from attnviz.hugging_face.readings import Reading, Wish, read_calls
from attnviz.hugging_face.streams import layer_names, stream_of, take
from attnviz.hugging_face.twin import eager_twin, handed_over

if TYPE_CHECKING:
    from numpy.typing import NDArray

Sides = Mapping[str, tuple[int, int]]
"""How many queries and keys each stream has; in a batch those of its longest texts."""


def probe_layers(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Sides,
    wishes: Mapping[str, Wish],
    *,
    batch: int = 1,
    calls: int | None = None,
) -> dict[str, dict[str, Reading]]:
    """Each stream's layers by name, of those whose kernel could be watched.

    Args:
        model: a transformers model on its device, or the encoder of one.
        inputs: tensors by name.
        sides: of each stream wanted.
        wishes: what to read of each.
        batch: how many texts there are.
        calls: how many layers there are to read, after which the pass ends; None: it runs through.

    Raises:
        AttentionError: a kernel that sees something else than these tokens.
        ModelError: the model fails.
    """
    import torch

    kind = model.config.model_type

    def wish_for(path: str, call: Call) -> Wish | None:
        stream = take(stream_of(path), sides)
        if stream is None:
            return None
        seen, heads, queries, _ = call.query.shape
        keys = call.key.shape[2]
        if (seen, queries, keys) != (batch, *sides[stream]):
            raise refuse_shape(path, kind, (seen, heads, queries, keys), sides[stream], batch)
        return wishes[stream]

    devices = [model.device] if model.device.type == "cuda" else []
    # A model that draws by chance (ViLT its patches) must draw the same if it has to run again.
    with running(model), torch.random.fork_rng(devices):
        readings = read_calls(model, inputs, wish_for, calls)
    found = dict[str, dict[str, Reading]]()
    for stream in sides:
        own = [reading for reading in readings if take(stream_of(reading.path), sides) == stream]
        names = layer_names([reading.path for reading in own], attending(model.config))
        if own:
            found[stream] = dict(zip(names, own, strict=True))
    return found


def hand_over_layers(
    model: Any, inputs: Mapping[str, Any], sides: Sides, *, batch: int = 1
) -> dict[str, dict[str, NDArray[np.float32]]]:
    """Each stream's layers by name, shape (batch, heads, queries, keys), as a model gives them out.

    Raises:
        AttentionError: it gives out none, or something else.
        ModelError: the model fails, or whole matrices of all layers would not fit into memory.
    """
    import torch

    check_memory(model, sides, batch)
    with running(model), torch.no_grad():
        given = handed_over(eager_twin(model), inputs, list(sides))
    return {
        stream: read_batch(given[stream], model.config, side, batch)
        for stream, side in sides.items()
    }


def check_memory(model: Any, sides: Sides, batch: int = 1) -> None:
    """Refuse a text whose whole matrices would not fit, where a model hands over only such.

    A matrix exists twice for a while: as the model holds it, and as float32 for the map.

    Raises:
        ModelError: less memory is free than that.
    """
    dtype = str(model.dtype).removeprefix("torch.")
    cells = sum(
        heads_of(model.config, stream) * queries * keys for stream, (queries, keys) in sides.items()
    )
    heads = sum(heads_of(model.config, stream) for stream in sides)
    check_fit(
        batch * cells * (BYTES.get(dtype, 4) + 4),
        model.device,
        f"'{model.config.model_type}' computes attention by hand and hands over whole matrices "
        f"only: {heads} heads × {max(max(side) for side in sides.values()):,} tokens²",
        "give a shorter text",
    )
