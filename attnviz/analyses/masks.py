"""Entropy of attention rows (Shannon 1948), in nats."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import HeadMeasure

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOW, HIGH = "every query looks at one key", "an even look at all keys"


def row_entropy(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """−Σ a ln a of each row, 0 ln 0 being 0; 0: one key has it all, ln(keys): an even look at all.

    Args:
        weights: shape (…, queries, keys), values from 0 up.

    Returns:
        float64 of shape (…, queries), from 0 to ln(keys).
    """
    entropies = np.empty(weights.shape[:-1])
    for place in np.ndindex(weights.shape[:-2]):
        matrix = weights[place]
        # Head by head it stays in the processor's cache. The smallest number stands in for 0,
        # whose logarithm, times 0, is 0.
        terms = np.maximum(matrix, np.finfo(matrix.dtype).tiny)
        np.log(terms, out=terms)
        terms *= matrix
        entropies[place] = terms.sum(axis=-1, dtype=np.float64)
    return np.maximum(-entropies, 0.0)


def mean_entropy(
    weights: NDArray[np.floating], entropies: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean of each head's row entropies; rows that attend to nothing are left out.

    Args:
        weights: shape (layers, heads, queries, keys).
        entropies: of its rows, shape (layers, heads, queries).
    """
    attending = weights.any(axis=-1)
    counted = np.maximum(attending.sum(axis=-1), 1)
    means: NDArray[np.float64] = np.where(attending, entropies, 0).sum(axis=-1) / counted
    return means


def entropy(item: AttentionMap) -> HeadMeasure:
    """Mean entropy of each head's rows, in nats; rows that attend to nothing are left out."""
    return HeadMeasure(
        "entropy", "nats", LOW, HIGH, mean_entropy(item.weights, row_entropy(item.weights))
    )


# <mask> What each row may see, inferred from a map, and the even look under that mask to compare
# with.
#
# Chance is not the same for all maps: in a causal one the second token looks at the first with a
# half of its attention without meaning anything by it.

CAUSAL_STREAMS = ("causal", "decoder")
NARROWEST_WINDOW = 3
"""Narrower bands are what sharp heads look like, not what models are built with."""


def within_one_text(item: AttentionMap) -> bool:
    """True where queries and keys are the same tokens, so that a diagonal means something."""
    return item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens)


def visible_keys(item: AttentionMap) -> NDArray[np.bool_]:
    """True where a query may see a key.

    Within one text a map is causal where nothing lies above the diagonal and either its stream says
    so or everything below it is seen: a sharp head of an encoder is not taken for a mask. Padded
    positions, whose rows and columns are empty in every head, are hidden. A layer whose heads all
    see everything up to the same distance, and nothing beyond, has a sliding window.

    Returns:
        Shape (layers, queries, keys), or (1, queries, keys) where the layers agree.
    """
    seen: NDArray[np.bool_] = item.weights.max(axis=1) > 0
    visible = np.ones_like(seen)
    if within_one_text(item):
        visible &= _triangle(item, np.any(seen, axis=0))
        for layer, of_layer in enumerate(seen):
            visible[layer] &= _window(of_layer, visible[layer])
        empty = ~(np.any(seen, axis=(0, 1)) | np.any(seen, axis=(0, 2)))
        visible &= ~empty
    # A row that attends to nothing in any head has nothing to see.
    visible &= seen.any(axis=-1, keepdims=True)
    return visible[:1] if (visible == visible[:1]).all() else visible


def uniform_attention(visible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Uniform attention over the visible keys; a row that sees none stays 0.

    Args:
        visible: shape (…, queries, keys).

    Returns:
        The same shape; rows sum to 1 or 0.
    """
    weights: NDArray[np.float64] = visible / np.maximum(visible.sum(axis=-1, keepdims=True), 1)
    return weights


def _triangle(item: AttentionMap, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    lower = np.tri(len(seen), dtype=bool)
    rows = seen.any(axis=-1)
    said = item.stream in CAUSAL_STREAMS
    causal = not (seen & ~lower).any() and (said or (seen | ~lower)[rows][:, rows].all())
    return lower if causal else np.ones_like(seen)


def _window(seen: NDArray[np.bool_], visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A band around the diagonal where one is seen from end to end, else everything."""
    positions = np.arange(len(seen))
    apart = np.abs(np.subtract.outer(positions, positions))
    band = apart <= apart[seen].max(initial=0)
    whole = bool((seen == (band & visible)).all())
    return band if whole and band[0].sum() >= NARROWEST_WINDOW else np.ones_like(seen)


# <subject> A map made ready for its measures: its mask, an even look to compare with, its row
# entropies.

Numbers = NDArray[np.float64]


class MeasuredMap:
    """A map whose heads are measured, together with a head that looks evenly at what it may see.

    Attributes:
        item: the map.
        visible: True where a query may see a key, shape (layers or 1, queries, keys).
        uniform: the even look, shape (layers or 1, 1, queries, keys): one more head.
        rows: rows that see at least one key, shape (layers or 1, queries).
    """

    def __init__(self, item: AttentionMap) -> None:
        self.item = item
        self.visible = visible_keys(item)
        self.uniform = uniform_attention(self.visible)[:, None]
        self.rows: NDArray[np.bool_] = np.any(self.visible, axis=-1)

    @cached_property
    def entropies(self) -> tuple[Numbers, Numbers]:
        """Row entropies in nats of the heads and of the even look, shape (…, queries)."""
        return row_entropy(self.item.weights), row_entropy(self.uniform)

    def measure(
        self,
        name: str,
        unit: str,
        ends: tuple[str, str],
        formula: Callable[[NDArray[np.floating]], Numbers],
        top: float = 1.0,
    ) -> HeadMeasure:
        """The same formula on the heads and on the even look.

        Args:
            name: of the measure.
            unit: of its values.
            ends: what its lowest and its highest value mean.
            formula: weights of shape (layers, heads, queries, keys) to values of (layers, heads).
            top: its largest possible value.
        """
        return self.compare(
            name, unit, ends, (formula(self.item.weights), formula(self.uniform)), top
        )

    def compare(
        self,
        name: str,
        unit: str,
        ends: tuple[str, str],
        values: tuple[Numbers, Numbers],
        top: float = 1.0,
    ) -> HeadMeasure:
        """A measure of values that are already worked out for the heads and for the even look."""
        found, even = values
        return HeadMeasure(name, unit, *ends, found, np.broadcast_to(even, found.shape), top)

    def mean(self, per_row: Numbers, rows: NDArray[np.bool_]) -> Numbers:
        """The mean over some rows.

        Args:
            per_row: shape (layers, heads, queries).
            rows: which rows count, shape (layers or 1, queries).

        Returns:
            Shape (layers, heads), NaN where no row counts.
        """
        counts = rows.sum(axis=-1)[:, None]
        sums = np.where(rows[:, None], per_row, 0.0).sum(axis=-1)
        means: Numbers = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        return means

    def share_on(
        self, name: str, targets: NDArray[np.bool_], ends: tuple[str, str]
    ) -> HeadMeasure | None:
        """The share that goes to some keys, averaged over the rows that can see one of them.

        So a diagonal below the main one is divided by N − 1 without a special case.

        Args:
            name: of the measure.
            targets: True for a query's targets, shape (queries, keys).
            ends: what 0 and 1 mean.

        Returns:
            None where no row can see a target.
        """
        counts = (self.visible & targets).any(axis=-1).sum(axis=-1)[:, None]
        if not counts.any():
            return None
        queries, keys = np.nonzero(targets)

        def held(weights: NDArray[np.floating]) -> Numbers:
            sums = weights[:, :, queries, keys].sum(axis=-1, dtype=np.float64)
            shares: Numbers = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
            return shares

        return self.measure(name, "share", ends, held)


def check_measurable(item: AttentionMap) -> None:
    """Refuse maps of which the measures would not be true.

    Raises:
        UsageError: a map of signed values, of which no share can be taken.
        InputError: a map of blocks, in which single tokens cannot be told apart.
    """
    if item.values == "signed":
        raise UsageError(f"stream '{item.stream}' holds signed values: measures are of shares")
    if item.is_pooled:
        rows, columns = item.blocks
        raise InputError(
            f"this text's map shows blocks of {rows} × {columns} tokens, but heads are measured "
            f"on single tokens: --max-size {item.unpooled_size} would do, or give a shorter text"
        )
