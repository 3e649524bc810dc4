"""A map made ready for its measures: its mask, an even look to compare with, its row entropies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy
from attnviz.analyses.mask import evenly, visible_keys
from attnviz.attention_map import AttentionMap
from attnviz.errors import InputError, UsageError
from attnviz.measures import HeadMeasure

Numbers = NDArray[np.float64]


class Subject:
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
        self.uniform = evenly(self.visible)[:, None]
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
