"""A pass with transformers' own eager attention, whose weights stay tensors, for lenses.

It holds all matrices at once, layers × heads × queries × keys, so memory is estimated first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture.capture import (
    EAGER_ROUTE,
    as_map,
    group_layers,
    with_routes,
)
from attnviz.models.hugging_face.capture.kernel import (
    can_be_eager,
    eager_copy,
    output_attentions,
)
from attnviz.models.hugging_face.capture.passes import read_layers
from attnviz.models.hugging_face.capture.probe import dtype_of
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.devices import BYTES, check_fit
from attnviz.models.hugging_face.load.family import check_family
from attnviz.models.hugging_face.load.model_errors import smaller_input_hint
from attnviz.models.hugging_face.loaded_model import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class EagerInputs:
    """A model and its inputs for an eager pass."""

    part: Any  # the model, or its encoder alone, attending eagerly
    inputs: Mapping[str, Any]  # tensors, a batch of one
    encoding: EncodedQuery
    what: str = "text"  # or "picture"

    @property
    def kind(self) -> str:
        return str(self.part.config.model_type)


def eager_inputs(
    source: LoadedModel, encoding: EncodedQuery, *, is_copied: bool = False
) -> EagerInputs:
    """A query for the model or an encoder; `is_copied`: the caller makes an eager copy."""
    alone = list(encoding.axes) == ["encoder"]
    part = source.model.get_encoder() if alone else source.model
    inputs = source.tensors(encoding.inputs, part)
    own = is_copied and can_be_eager(part)
    return EagerInputs(part if own else eager_copy(part), inputs, encoding)


def check_eager(eager: EagerInputs, copies: int) -> None:
    """Refuse inputs whose matrices would not fit, or that no attention weights relate."""
    sides = eager.encoding.sides.values()
    longest = max(map(max, sides))
    check_family(eager.part.config, longest)
    config = eager.part.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", None) or 1
    heads = getattr(config, "num_attention_heads", None) or 1
    cells = sum(queries * keys for queries, keys in sides)
    check_fit(
        layers * heads * cells * copies * BYTES.get(dtype_of(eager.part), 4),
        eager.part.device,
        f"this lens over {longest:,} tokens ({layers} layers × {heads} heads × tokens², {copies} "
        "times)",
        f"{smaller_input_hint(eager.what)}, or use --lens raw",
    )


def run_eager(eager: EagerInputs) -> tuple[Any, Attention, list[tuple[str, Tensor]]]:
    """The model's output, its maps, and each layer's tensor with its stream.

    Layers have shape (1, heads, queries, keys) and are checked to be weights of these tokens.
    """
    encoding, inputs = eager.encoding, {**eager.inputs, "use_cache": False}
    output, tensors = output_attentions(eager.part, inputs, list(encoding.axes))
    maps: list[AttentionMap] = []
    attending: list[tuple[str, Tensor]] = []
    for stream, axes in encoding.axes.items():
        layers = list(tensors[stream] or ())
        plain = [None if layer is None else layer.detach() for layer in layers]
        arrays = read_layers(plain, eager.part, encoding.sides[stream], stream)
        maps += [as_map(item, encoding.tokens, *axes) for item in group_layers(stream, arrays)]
        attending += [(stream, layer) for layer in layers if layer is not None]
    provenance = with_routes(encoding.attention.provenance, [EAGER_ROUTE])
    return output, replace(encoding.attention, maps=tuple(maps), provenance=provenance), attending


def stack_like(attention: Attention, layers: Iterable[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Arrays of single layers, stacked like the layers of the maps."""
    rest = iter(layers)
    return tuple(np.stack([next(rest) for _ in item.layers]) for item in attention.maps)


def layer_gradients(score: Tensor, weights: list[Tensor], kind: str) -> list[NDArray[Any]]:
    """∂score/∂weights of each layer, shape (heads, queries, keys)."""
    import torch

    grown = all(layer.requires_grad for layer in weights)
    slopes = torch.autograd.grad(score, weights, allow_unused=True) if grown else (None,)
    if any(slope is None for slope in slopes):
        raise AttentionError(
            f"architecture '{kind}' gives out copies of its weights, which no gradient reaches: "
            "use --lens rollout, flow or norm"
        )
    return [slope[0].float().cpu().numpy() for slope in slopes if slope is not None]
