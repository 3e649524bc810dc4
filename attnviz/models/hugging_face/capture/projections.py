"""Keep the queries and keys of a kernel's call beside its weights.

They are taken after rotary embedding and normalisation, so the softmax of their scaled products is
the weight, unless the model adds other terms to the scores.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Projections
from attnviz.core.errors import AttentionError, UsageError
from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.hugging_face.capture.region import PooledGrid


@dataclass(frozen=True, slots=True, eq=False)
class CapturedProjections:
    """One call's queries and keys."""

    query: NDArray[np.float32]  # (heads, queries, head size)
    key: NDArray[np.float32]  # (heads, keys, head size)
    scale: float  # of the products
    extra_terms: tuple[str, ...] = ()  # other terms of the scores


def check_grids(grids: Mapping[str, PooledGrid], sides: Mapping[str, tuple[int, int]]) -> None:
    """Refuse to keep queries and keys of blocks of tokens or of a part of the keys."""
    for stream, grid in grids.items():
        if grid.is_pooled or grid.keys.blocks < sides[stream][1]:
            raise UsageError(
                "--keep-qk needs every key by itself, and a part of a text or blocks of its tokens "
                "were to be shown: leave --window out, or give a larger --max-size or fewer tokens"
            )


def project_call(call: Call, grid: PooledGrid) -> CapturedProjections:
    """A grid's queries and all keys of a call with a batch of one."""
    query, key = call.query[0], call.key[0]
    key = key.repeat_interleave(len(query) // len(key), dim=0)
    scale = call.options.get("scaling")
    query = query[:, grid.queries.start : grid.queries.stop]
    return CapturedProjections(
        query.float().cpu().numpy(),
        key.float().cpu().numpy(),
        query.shape[-1] ** -0.5 if scale is None else float(scale),
        tuple(extra_terms(call)),
    )


def extra_terms(call: Call) -> Iterator[str]:
    """The names of terms that a call adds to scaled products, a mask and a softmax."""
    import torch

    mask, bias = call.mask, call.options.get("position_bias")
    if mask is not None and mask.dtype != torch.bool:
        # A mask hides by adding the smallest number, sometimes twice.
        seen = mask[mask > torch.finfo(mask.dtype).min / 2]
        if seen.any():
            yield "a bias in the mask"
    if bias is not None and bias.any():
        yield "a position bias"
    if call.options.get("softcap") is not None:
        yield f"a soft cap of {call.options['softcap']:g}"
    if call.options.get("s_aux") is not None:
        yield "a sink"


def stack_projections(layers: Mapping[str, CapturedProjections], kind: str) -> Projections:
    """A stream's queries and keys, layer by layer."""
    found = list(layers.values())
    if len({(item.query.shape, item.key.shape, item.scale) for item in found}) > 1:
        raise AttentionError(
            f"the layers of architecture '{kind}' differ in heads, head size or scale, and "
            "--keep-qk shows one of each: leave it out"
        )
    query = np.stack([item.query for item in found])
    key = np.stack([item.key for item in found])
    heads = tuple(map(str, range(query.shape[1])))
    more = " and ".join(dict.fromkeys(name for item in found for name in item.extra_terms))
    return Projections(query, key, found[0].scale, tuple(layers), heads, more)
