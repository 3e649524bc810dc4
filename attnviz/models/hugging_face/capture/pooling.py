"""An axis of tokens in blocks, so that a map of bounded size stands for a text of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.models.hugging_face.capture.extent import Axis, PooledGrid
from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.hugging_face.capture.probe import exact_rows, key_masses

if TYPE_CHECKING:
    from numpy.typing import NDArray


# <pooling> Weights over blocks of tokens: the sum over a block's keys, the mean over its queries.
#
# So each row of a pooled map sums to what the rows of its block sum to on average.


def read_frame(
    call: Call, frame: PooledGrid, also: Callable[[int, Any], None] | None = None
) -> Any:
    """One call's attention as a frame wants it, read from its kernel.

    Args:
        call: a kernel's call.
        frame: queries and keys in blocks.
        also: gets each query's masses too, with the number of the first block they are of.

    Returns:
        a float32 tensor on the CPU, shape (batch, heads, query blocks, key blocks).
    """
    import torch

    batch, heads, length, _ = call.query.shape
    queries, keys = frame.queries, frame.keys
    few = queries.length == keys.length == 1 and 4 * queries.blocks * heads < length
    if few and batch == 1:
        positions = torch.arange(queries.start, queries.stop, device=call.query.device)
        rows = exact_rows(call, positions.expand(heads, -1))
        return rows[None, :, :, keys.start : keys.stop].cpu()
    weights = torch.empty((batch, heads, queries.blocks, keys.blocks))
    for first, masses in key_masses(call, keys):
        if also:
            also(first, masses)
        means = mean_queries(masses, queries)
        weights[..., first : first + means.shape[-1]] = means.transpose(1, 2).cpu()
    return weights


def mean_queries(masses: Any, queries: Axis) -> Any:
    """The mean over each block of queries, in float32.

    Args:
        masses: shape (batch, queries, heads, …).
        queries: the queries in blocks.

    Returns:
        shape (batch, query blocks, heads, …).
    """
    import torch

    rows = masses[:, queries.start : queries.stop]
    if queries.length == 1:
        return rows.float()
    even = rows.shape[1] // queries.length * queries.length
    blocks = rows[:, :even].unflatten(1, (-1, queries.length))
    means = blocks.mean(2, dtype=torch.float32)
    if even == rows.shape[1]:
        return means
    rest = rows[:, even:].mean(1, keepdim=True, dtype=torch.float32)
    return torch.cat([means, rest], 1)


def pool_array(weights: NDArray[np.float32], frame: PooledGrid) -> NDArray[np.float32]:
    """Weights that are at hand in full, as a frame wants them.

    Args:
        weights: shape (heads, queries, keys).
        frame: what to make of them.

    Returns:
        shape (heads, query blocks, key blocks).
    """
    queries, keys = frame.queries, frame.keys
    part = weights[:, queries.start : queries.stop, keys.start : keys.stop]
    if not frame.is_pooled:
        return np.ascontiguousarray(part)
    sums = np.add.reduceat(part, np.arange(0, part.shape[2], keys.length), axis=2)
    sums = np.add.reduceat(sums, np.arange(0, part.shape[1], queries.length), axis=1)
    counts = np.array([stop - first for first, stop in queries.spans], dtype=np.float32)
    return np.asarray(sums / counts[:, None], dtype=np.float32)
