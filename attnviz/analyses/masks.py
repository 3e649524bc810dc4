"""A map prepared for its measures: what each row may see, and uniform attention to compare with.

Chance is not the same for all maps: in a causal one the second token gives the first half of its
attention without meaning anything by it. So the mask is inferred from the map, and every measure is
also taken of uniform attention under that mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import entropy, folds, kv_groups
from attnviz.analyses.words import Partition, merge_words, word_partition
from attnviz.core.attention_map import IMPLIED, Attention, AttentionMap, known_mean, stream_of_call
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import begins_causal, first_is_sink, has_kinds, split_sentences

CAUSAL_STREAMS = ("causal", "decoder")

Numbers = NDArray[np.float64]
NO_SCORES: Mapping[str, Any] = MappingProxyType({})


class MeasuredMap:
    """A map whose heads are measured, together with a head of uniform attention.

    Attributes:
        item: the map.
        texts: those of its rows and its columns, where they are known.
        visible: True where a query may see a key, shape (layers or 1, queries, keys).
        uniform: uniform attention, shape (layers or 1, 1, queries, keys): one more head.
        rows: rows that see at least one key, shape (layers or 1, queries).
        output_start: the position of the first token that the model wrote; None: it wrote none.
        group_sizes: by layer, how many heads share each head of keys and values, where known.
        scores: where they are known, measures of scores before the softmax by name ("score-max"),
            shape (layers, heads).
    """

    def __init__(
        self,
        item: AttentionMap,
        texts: tuple[str, str] = ("", ""),
        output_start: int | None = None,
        scores: Mapping[str, Numbers] = NO_SCORES,
    ) -> None:
        self.item, self.texts, self.output_start, self.scores = item, texts, output_start, scores
        self.group_sizes: Mapping[str, int] = {}
        self.visible = visible_keys(item)
        self.uniform = uniform_attention(self.visible)[:, None]
        self.rows: NDArray[np.bool_] = np.any(self.visible, axis=-1)

    @classmethod
    def of(cls, attention: Attention, item: AttentionMap) -> MeasuredMap:
        """A map with its attention's facts about the text."""
        start = output_start(attention, item)
        subject = cls(item, attention.texts_of(item), start, known_scores(attention, item))
        subject.group_sizes = kv_groups.sizes_of(attention, item)
        return subject

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many keys each row sees, shape (layers or 1, queries)."""
        return np.asarray(self.visible.sum(axis=-1))

    @cached_property
    def seen_by(self) -> NDArray[np.int64]:
        """How many rows see each key, shape (layers or 1, keys)."""
        return np.asarray(self.visible.sum(axis=-2))

    def fold(self, name: str, make: Callable[[], folds.Fold]) -> tuple[Any, Any]:
        """What a fold says of the heads and of uniform attention."""
        results = []
        for weights in (self.item.weights, self.uniform):
            fold = make()
            for block in folds.blocks_of(weights):
                fold.add(fold.join([fold.part(block)]))
            results.append(fold.end())
        return results[0], results[1]

    def by_row(
        self, name: str, of_block: Callable[[folds.RowBlock], Numbers], several: int = 0
    ) -> tuple[Numbers, Numbers]:
        """A number for each row of the heads and of uniform attention, (layers, heads, queries)."""
        return self.fold(name, lambda: folds.RowFold(of_block, several))

    def on(self, name: str, targets: folds.Targets) -> tuple[Numbers, Numbers]:
        """What each row gives to its targets."""
        return self.by_row(name, lambda block: folds.sums_on(block, [targets])[0])

    def totals_on(
        self, name: str, targets: folds.Targets
    ) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """What all rows give to their targets, (layers, heads), and how many rows see one."""
        heads, uniform = self.fold(name, lambda: folds.TotalFold([targets]))
        return heads[0][0], uniform[0][0], uniform[1][0][:, 0]

    @cached_property
    def entropies(self) -> tuple[Numbers, Numbers]:
        """Row entropies in nats, shape (…, queries); NaN where a row attends to nothing."""
        return self.by_row("entropies", lambda block: block.entropies)

    @cached_property
    def row_sums(self) -> tuple[Numbers, Numbers]:
        """What each row sums to, shape (…, queries)."""
        return self.by_row("sums", lambda block: block.sums)

    @cached_property
    def offsets(self) -> tuple[Numbers, Numbers]:
        """See `folds.offsets`."""
        return self.by_row("offsets", folds.offsets, 2)

    @cached_property
    def columns(self) -> tuple[tuple[Numbers, ...], tuple[Numbers, ...]]:
        """What each key gets, and each sentence from far ones: see `ColumnFold`."""
        return self.fold("columns", partial(column_fold, self.item, self.texts[0]))

    @cached_property
    def partition(self) -> Partition:
        """The words of the keys' text."""
        return word_partition(self.item.key_tokens, self.texts[1])

    @cached_property
    def words(self) -> MeasuredMap:
        """The same map with pieces merged into words; unchanged if sums over keys are no shares."""
        if self.sums.max() > 1 + 1e-3:
            return self
        by_word = merge_words(self.item, *self.texts)
        if by_word.weights is not self.item.weights:
            return MeasuredMap(by_word, self.texts)
        same = copy(self)  # each token is a word: what rows see is known
        same.item = by_word
        return same

    @cached_property
    def sums(self) -> Numbers:
        """What each row of each head sums to, shape (layers, heads, queries)."""
        return self.row_sums[0]

    @property
    def begins_causal(self) -> bool:
        """Whether a causal text begins with a token that stands for text."""
        return begins_causal(self.item)

    @cached_property
    def first_is_sink(self) -> bool:
        """Whether the first token is a sink though it stands for text."""
        return first_is_sink(self.item)

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Rows that are no padding, shape (queries,)."""
        return ~padding(self.item)

    def measure(
        self,
        name: str,
        unit: str,
        ends: tuple[str, str],
        formula: Callable[[NDArray[np.floating]], Numbers],
        top: float = 1.0,
    ) -> HeadMeasure:
        """The measure that a formula gives for the heads and for uniform attention.

        It makes (layers, heads) of weights (layers, heads, queries, keys). `ends` say what its
        lowest and its highest value mean, `top` what the highest can be.
        """
        values = formula(self.item.weights), formula(self.uniform)
        return self.compare(name, unit, ends, values, top)

    def compare(
        self,
        name: str,
        unit: str,
        ends: tuple[str, str],
        values: tuple[Numbers, Numbers],
        top: float = 1.0,
    ) -> HeadMeasure:
        """One measure for the heads and for uniform attention."""
        heads, uniform = values
        return HeadMeasure(name, unit, *ends, heads, np.broadcast_to(uniform, heads.shape), top)

    def mean(self, per_row: Numbers, rows: NDArray[np.bool_]) -> Numbers:
        """The mean of (layers, heads, queries) over some rows; NaN where no row counts.

        A row that attends to nothing (NaN) is left out.
        """
        return known_mean(np.where(rows[:, None], per_row, np.nan))

    def share_on(
        self, name: str, targets: folds.Targets | NDArray[np.bool_], ends: tuple[str, str]
    ) -> HeadMeasure | None:
        """The share that goes to targets, over the rows that can see one of them.

        So a diagonal below the main one is divided by N − 1 without a special case. None where no
        row can see a target. Targets are keys by a rule (`OnKeys`, `OnOne`, `OnAlike`), or a matrix
        (queries, keys), which no long text has.
        """
        targets = folds.OnCells(targets) if isinstance(targets, np.ndarray) else targets
        *sides, counts = self.totals_on(name, targets)
        if not counts.any():
            return None
        heads, uniform = (
            np.asarray(np.where(counts, own.T / np.maximum(counts, 1), np.nan).T) for own in sides
        )
        return self.compare(name, "share", ends, (heads, uniform))


def output_start(attention: Attention, item: Any) -> int | None:
    """The position of the first token that the model wrote; None: it wrote none."""
    parts = attention.parts
    if parts is None or parts.kind != "prompt and output":
        return None
    starts = [token.start >= parts.start and not token.special for token in item.key_tokens]
    return starts.index(True) if any(starts) else None


APART = 4
"""Sentences from which on attention to one counts: nearer ones are read anyway."""


def column_fold(item: Any, text: str) -> folds.ColumnFold:
    """What the keys of a map get, and the sentences of its text."""
    sentences = split_sentences(text) if within_one_text(item) else ()
    starts = [sentence.start for sentence in sentences]
    sides = []
    for tokens in (item.query_tokens, item.key_tokens):
        places = np.searchsorted(starts, [token.start for token in tokens], side="right") - 1
        inside = [not token.special and token.end > token.start for token in tokens]
        sides.append(np.where(inside, places, -1))
    sizes = np.bincount(sides[1][sides[1] >= 0], minlength=len(starts))
    return folds.ColumnFold(sides[0], sides[1], np.maximum(sizes, 1), APART)


def known_scores(attention: Attention, item: AttentionMap) -> dict[str, Numbers]:
    """Measures of a map's scores, (layers, heads): as read, else computed from queries and keys."""
    stream = attention.projections.get(item.stream)
    if not attention.scores and stream is not None and (own := stream.of(item)) is not None:
        return entropy.projected_scores(own, item, visible_keys(item))
    heads = [
        [attention.scores.get((item.stream, layer, head), NO_SCORES) for head in item.heads]
        for layer in item.layers
    ]
    names = dict.fromkeys(name for layer in heads for own in layer for name in own)
    return {
        name: np.array([[own.get(name, np.nan) for own in layer] for layer in heads], dtype=float)
        for name in names
    }


def without_implied(attention: Attention) -> Attention:
    """The attention layers alone, of a model that also has layers without attention."""
    maps = tuple(item for item in attention.maps if item.stream != IMPLIED)
    if not maps or len(maps) == len(attention.maps):
        return attention
    note = (
        f"stream '{IMPLIED}' is left out: the measures need shares, and its numbers can be negative"
    )
    provenance = attention.provenance
    notes = (*(one for one in provenance.notes if not one.startswith(f"stream '{IMPLIED}'")), note)
    return replace(attention, maps=maps, provenance=replace(provenance, notes=notes))


def refuse_implied(attention: Attention, what: str) -> None:
    """Refuse a model without any attention for what needs shares, with a UsageError."""
    if attention.main.stream == IMPLIED:
        raise UsageError(
            f"{what} needs shares of attention, and stream '{IMPLIED}' holds a signed matrix: use "
            "--lens raw"
        )


def check_measurable(item: AttentionMap) -> None:
    """Refuse maps whose measures would not be true."""
    if item.values == "signed":
        raise UsageError(
            f"the measures need shares, and the numbers of stream '{item.stream}' can be negative"
        )
    if item.is_pooled:
        rows, columns = item.blocks
        raise InputError(
            f"this text's map shows blocks of {rows} × {columns} tokens, but heads are measured "
            f"on single tokens: --max-size {item.unpooled_size} would do, or give a shorter text"
        )


def within_one_text(item: Any) -> bool:
    """True if queries and keys are the same tokens, so that a distance between them exists."""
    return item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens)


def may_be_sink(item: Any) -> bool:
    """Whether the first token is a sink if only enough attention goes there."""
    return within_one_text(item) and not item.key_tokens[0].special


def uniform_attention(visible: NDArray[np.bool_]) -> Numbers:
    """Uniform attention over visible keys, (…, queries, keys); a row that sees none stays 0."""
    return np.asarray(visible / np.maximum(visible.sum(axis=-1, keepdims=True), 1))


def visible_keys(item: AttentionMap) -> NDArray[np.bool_]:
    """True where a query may see a key, (layers, queries, keys); one layer where they agree.

    Within one text a map is causal where nothing lies above the diagonal and either its stream says
    so or everything below it is seen: a sharp head of an encoder is not taken for a mask. Padded
    positions, whose rows and columns are empty in every head, are hidden. A layer whose heads all
    see everything up to the same distance, and nothing beyond, has a sliding window. Of keys that
    are not all tokens those are seen that some head of the layer gives any weight.
    """
    cells: NDArray[np.bool_] = item.weights.max(axis=1) > 0
    if has_kinds(item):
        return cells[:1] if (cells == cells[:1]).all() else cells
    visible = np.ones_like(cells)
    if within_one_text(item):
        visible &= _triangle(item, np.any(cells, axis=0))
        for layer, of_layer in enumerate(cells):
            positions = np.arange(len(of_layer))
            apart = np.abs(np.subtract.outer(positions, positions))
            band = apart <= apart[of_layer].max(initial=0)
            # Bands narrower than 3 are what sharp heads look like, not what models are built with.
            fills = bool((of_layer == (band & visible[layer])).all()) and band[0].sum() >= 3
            visible[layer] &= band if fills else np.ones_like(of_layer)
        visible &= ~padding(item)
    # A row that attends to nothing in any head has nothing to see.
    visible &= cells.any(axis=-1, keepdims=True)
    return visible[:1] if (visible == visible[:1]).all() else visible


def padding(item: AttentionMap) -> NDArray[np.bool_]:
    """Positions of a text whose rows and columns are empty in every head, shape (queries,)."""
    if not within_one_text(item):
        return np.zeros(len(item.query_tokens), dtype=bool)
    cells: NDArray[np.bool_] = item.weights.max(axis=(0, 1)) > 0
    return np.asarray(~(np.any(cells, axis=0) | np.any(cells, axis=1)))


def _triangle(item: AttentionMap, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
    lower = np.tri(len(cells), dtype=bool)
    rows = cells.any(axis=-1)
    by_name = stream_of_call(item.stream)[1] in CAUSAL_STREAMS
    causal = not (cells & ~lower).any() and (by_name or (cells | ~lower)[rows][:, rows].all())
    return lower if causal else np.ones_like(cells)


def row_shares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows divided by their sums; a row of zeros stays 0."""
    totals = rows.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, totals, out=np.zeros(rows.shape), where=totals != 0))


def map_shares(weights: NDArray[np.floating]) -> NDArray[np.float32]:
    """`row_shares` of a map as float32: head by head, so that little more than it is held."""
    shares = np.empty(weights.shape, dtype=np.float32)
    for place in np.ndindex(weights.shape[:-2]):
        shares[place] = row_shares(weights[place].astype(np.float64))
    return shares
