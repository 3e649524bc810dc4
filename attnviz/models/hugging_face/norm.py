"""What each head of a transformers model makes of each key: its value through its own slice of W_O.

Every attention function is handed the values, and what it gives back goes into the output
projection: so both are seen in passing, whatever the family calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import AttentionError
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.models.hugging_face.capture.kernel import Call, match_stream, stream_of, watch_kernels
from attnviz.models.hugging_face.eager import EagerInputs, as_attention, check_eager, run_eager
from attnviz.models.hugging_face.load.errors import running

if TYPE_CHECKING:
    from torch import Tensor

COPIES = 3
"""How often a matrix exists: as the model holds it, as it is checked, and as the map's."""


@dataclass(slots=True, eq=False)
class Values:
    """One layer's values in passing.

    Attributes:
        stream: whose they are.
        value: shape (1, heads or groups of them, keys, value size).
        joined: what attention gave, heads side by side, shape (1, queries, heads × value size).
        projection: W_O, shape (heads × value size, size), once it is seen.
    """

    stream: str
    value: Tensor
    joined: Tensor
    projection: Tensor | None = None


def value_vectors(eager: EagerInputs) -> ValueVectors:
    """What each head makes of each token of a text or a picture, from one watched pass.

    Raises:
        AttentionError: the architecture keeps its values to itself.
        ModelError: the matrices would not fit into memory.
    """
    import torch

    check_eager(eager, COPIES)
    with running(eager.part, eager.what), torch.no_grad(), record_values(eager) as seen:
        _, layers = run_eager(eager)
    attention = as_attention(eager, layers)
    flat = [
        (stream, layer) for stream, found in layers.items() for layer in found if layer is not None
    ]
    # Calls come as the model makes them; layers stream by stream.
    seen.sort(key=lambda item: list(eager.encoded.axes).index(item.stream))
    if [item.stream for item in seen] != [stream for stream, _ in flat]:
        raise AttentionError(
            f"architecture '{eager.kind}' keeps its values to itself, and norms need them: use "
            "--lens rollout or flow"
        )
    for item, (_, layer) in zip(seen, flat, strict=True):
        check_linear(item, layer, eager.kind)
    projected = all(item.projection is not None for item in seen)
    products = [
        products_of(item, layer.shape[1], projected)
        for item, (_, layer) in zip(seen, flat, strict=True)
    ]
    rest = iter(products)
    stacked = tuple(np.stack([next(rest) for _ in item.layers]) for item in attention.maps)
    return ValueVectors(attention, stacked, projected)


def products_of(item: Values, heads: int, projected: bool) -> NDArray[np.float64]:
    """One layer's inner products; heads that share values each get them."""
    value = item.value[0].double().cpu().numpy()
    value = value.repeat(heads // len(value), axis=0)
    matrix = item.projection if projected else None
    return inner_products(value, None if matrix is None else matrix.double().cpu().numpy())


@contextmanager
def record_values(eager: EagerInputs) -> Iterator[list[Values]]:
    """Record what each attention of one pass adds up, and the projection that the sum goes into."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    paths = {id(module): name for name, module in eager.part.named_modules()}
    seen: list[Values] = []

    def look(call: Call) -> None:
        path = paths.get(id(call.module))
        stream = None if path is None else match_stream(stream_of(path), eager.encoded.axes)
        if stream is not None:
            seen.append(Values(stream, call.value, call.output.flatten(2)))

    def project(module: Any, inputs: tuple[Any, ...]) -> None:
        if seen and seen[-1].projection is None and inputs:
            seen[-1].projection = projection_of(module, inputs[0], seen[-1].joined)

    handle = register_module_forward_pre_hook(project)
    try:
        with watch_kernels(look):
            yield seen
    finally:
        handle.remove()


def check_linear(item: Values, weights: Tensor, kind: str) -> None:
    """Refuse attention whose output is not its weights times its values."""
    shared = item.value.repeat_interleave(weights.shape[1] // item.value.shape[1], dim=1)
    expected = (weights @ shared).transpose(1, 2).flatten(2)
    off = float((expected - item.joined).abs().max())
    if not off <= 0.05 * float(item.joined.abs().max()):
        raise AttentionError(
            f"architecture '{kind}' does more than add up values by its weights: use --lens "
            "rollout or flow"
        )


def projection_of(module: Any, inputs: Any, joined: Tensor) -> Tensor | None:
    """The matrix of a linear map that is handed just what attention gave, else None."""
    import torch
    from transformers.pytorch_utils import Conv1D

    if not isinstance(module, torch.nn.Linear | Conv1D) or not isinstance(inputs, torch.Tensor):
        return None
    if inputs.shape != joined.shape or not torch.equal(inputs, joined):
        return None
    weight: Tensor = module.weight.detach()
    return weight.T if isinstance(module, torch.nn.Linear) else weight
