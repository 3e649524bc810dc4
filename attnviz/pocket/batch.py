"""Several texts as one batch for the pocket model, and each text's own part of what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.pocket.model import Sizes, embed
from attnviz.pocket.tokenizer import PAD
from attnviz.pocket.weights import StoredWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray


def embed_many(
    weights: StoredWeights, sizes: Sizes, rows: Sequence[Sequence[int]]
) -> tuple[Array, Array | None]:
    """Texts by their pieces' numbers as what the model's layers take, padded behind.

    Returns:
        shape (texts, positions, size); and True where there is no padding, shape (texts, 1, 1,
        positions), None where there is none anywhere.
    """
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), PAD)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    waves = weights.convert(sinusoidal_positions(ids.shape[1], sizes.size))
    inputs = embed(weights.rows("embedding.weight", ids), waves)
    if lengths.min() == lengths.max():
        return inputs, None
    mask = np.arange(ids.shape[1]) < lengths[:, None, None, None]
    return inputs, weights.place(mask)


def own_shares(
    shares: Sequence[Array], sides: Sequence[tuple[int, int]]
) -> list[NDArray[np.float32]]:
    """Each text's weights of shape (layers, heads, queries, keys), from those of each layer.

    Args:
        shares: for each layer shape (texts, heads, queries, keys).
        sides: each text's queries and keys.
    """
    layers = [to_numpy(share) for share in shares]
    return [
        np.stack([layer[number, :, :queries, :keys] for layer in layers])
        for number, (queries, keys) in enumerate(sides)
    ]


def to_numpy(array: Array) -> Any:
    """The numbers as float32 in numpy."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32, copy=False)
    return array.detach().float().cpu().numpy()
