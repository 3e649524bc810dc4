"""Attention weights read from any kernel, without knowing how it works.

Every attention kernel is linear in its values, `output = weights @ value`. Called again with
indicators for values it gives the weights themselves: with the indicator of one key its column,
with that of a block of keys their mass. Whatever the kernel does about causality, padding, windows,
grouped heads, position bias, soft caps or sinks is in the answer, and memory grows with queries ×
value size instead of queries × keys.

The transpose answers for rows: the derivative of one query's output with respect to the values is
that query's row of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnviz.hugging_face.blocks import Axis
from attnviz.hugging_face.interface import Call


def key_masses(call: Call, keys: Axis) -> Iterator[tuple[int, Any]]:
    """For each query the attention on each block of keys.

    Args:
        call: a kernel's call.
        keys: the keys in blocks.

    Yields:
        the first block's number, and masses of shape (batch, queries, heads, blocks); as many
        blocks at a time as the values are wide, because fast kernels want queries, keys and values
        of equal size.
    """
    import torch

    value = call.value
    size = value.shape[-1]
    positions = torch.arange(value.shape[-2], device=value.device)
    blocks = torch.div(positions - keys.start, keys.length, rounding_mode="floor")
    blocks[positions >= keys.stop] = -1
    for first in range(0, keys.blocks, size):
        columns = torch.arange(first, first + size, device=value.device)
        indicator = (blocks[:, None] == columns).to(value.dtype)
        masses = call.mix(indicator.expand(value.shape))
        yield first, masses[..., : min(size, keys.blocks - first)]


def key_columns(call: Call, keys: Sequence[int]) -> Any:
    """For each query the attention on some single keys, shape (queries, heads, keys).

    Args:
        call: a kernel's call with a batch of one.
        keys: positions.
    """
    import torch

    value = call.value
    size = value.shape[-1]
    found = [value.new_empty((call.query.shape[2], call.query.shape[1], 0))]
    for first in range(0, len(keys), size):
        some = keys[first : first + size]
        indicator = value.new_zeros(value.shape[-2:])
        indicator[list(some), list(range(len(some)))] = 1
        found.append(call.mix(indicator.expand(value.shape))[0, ..., : len(some)])
    return torch.cat(found, -1)


def exact_rows(call: Call, queries: Any) -> Any:
    """Whole rows of weights, for queries of each head's own choice.

    Args:
        call: a kernel's call with a batch of one.
        queries: positions, shape (heads, rows).

    Returns:
        shape (heads, rows, keys).
    """
    import torch

    _, groups, keys, size = call.value.shape
    heads, rows = queries.shape
    members = heads // groups
    group = torch.arange(groups, device=queries.device)[:, None]
    weights = torch.empty((heads, rows, keys), device=queries.device)
    with torch.enable_grad():
        value = call.value.detach().clone().requires_grad_()
        output = call.mix(value)
    # Heads that share their values share the gradient too, so each gets channels of its own.
    for first in range(0, rows * members, size):
        stop = min(first + size, rows * members)
        pairs = torch.arange(first, stop, device=queries.device)
        row, head, channel = pairs // members, group * members + pairs % members, pairs - first
        wanted = torch.zeros_like(output)
        wanted[0, queries[head, row], head, channel] = 1
        (gradient,) = torch.autograd.grad(output, value, wanted, retain_graph=True)
        weights[head, row] = gradient[0, group, :, channel].float()
    return weights
