"""What position says of where heads attend: how far, and how much it leaves unexplained.

Distances, in tokens or in patches, include special tokens: a sink is part of what a head does.
A head that always attends to the token before, or to one key, is alike for every text:
`informative` measures what is left.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.core.attention_map import AttentionMap
from attnviz.core.records import dataclass
from attnviz.core.tokens import patch_places, text_places, without_first

LEAST_WORDS = 5
"""Of fewer words distances and keys explain nearly any map."""
LEAST_MASS = 0.05
"""Of a row, that words must hold: what is left of less is rounding, made large."""
LEAST_GAIN = 0.02
"""Nats of a link that count: many small ones are noise."""
CLEAR_GAIN, CLEAR_SHARE = 0.1, 0.2
"""Nats and weight from which on a link is worth a reader's look."""
STEPS, PSEUDO_COUNT, NEAR_0 = 30, 0.02, 1e-6
"""Of the fit: its steps, what each sum gets beside its own, and what every share gets."""
STRONG = 0.0025
"""The share below which no link can have a gain of `LEAST_GAIN`: a ln(a / `NEAR_0`) is less."""
AT_ONCE = 2**22
"""Cells computed at once: many heads of a short text, one of a long one."""


class WordLinks:
    """Links between words, and how much more a head gives them than a table of two effects does.

    Special tokens are left out, and a first token that is a sink (see `attnviz.core.tokens`); what
    is left of each row, if it is a twentieth or more, is made to sum to 1: a. The table b,
    proportional to exp(distance[j - i] + key[j]) over what row i may see, has the sums of a over
    each row, distance and key (iterative proportional fitting, Deming and Stephan 1940). The gain
    of a link is a ln(a / b), in nats. In a picture a distance has rows and columns; between two
    texts there is none.

    Attributes:
        item: the map over words; visible, uniform: as of a `MeasuredMap`.
        count: words among the rows; a word has a letter or a digit.
    """

    def __init__(self, subject: MeasuredMap) -> None:
        if subject.first_is_sink:
            subject = MeasuredMap(without_first(subject.item), subject.texts)
        words = subject.words
        self.item, self.visible, self.uniform = words.item, words.visible, words.uniform
        sides = self.item.query_tokens, self.item.key_tokens
        rows, keys = (np.array([not token.special for token in side]) for side in sides)
        names = [np.array([any(map(str.isalnum, token.text)) for token in side]) for side in sides]
        self._cells = rows[:, None] & keys
        self._links = self._cells & names[0][:, None] & names[1]
        self._places = _places(self.item) if within_one_text(self.item) else None
        if self._places is not None:
            np.fill_diagonal(self._links, val=False)
        self.count = int((rows & names[0] & words.rows.any(axis=0)).sum())

    def says(self, weights: NDArray[np.floating]) -> Numbers:
        """The measure of weights (layers, heads, queries, keys), shape (layers, heads)."""
        return (self.peaks if weights is self.item.weights else self._read(weights))[0]

    @cached_property
    def peaks(self) -> tuple[Numbers, NDArray[np.intp], NDArray[np.float32]]:
        """The measure of each head, and the key and the size of each of its rows' largest gain."""
        return self._read(self.item.weights)

    def _read(self, weights: NDArray[np.floating]) -> tuple[Numbers, Any, Any]:
        shape = weights.shape[:3]
        if len(self.visible) == 1:  # of short texts a call takes longer than its numbers
            weights = weights.reshape(1, -1, *weights.shape[2:])
        sums, keys = np.zeros(weights.shape[:2]), np.zeros(weights.shape[:3], dtype=np.intp)
        largest = np.zeros(weights.shape[:3], dtype=np.float32)
        step = max(AT_ONCE // self._links.size, 1)
        for layer, heads in enumerate(weights):
            for first in range(0, len(heads), step):
                part = slice(first, first + step)
                gains = self._gains(heads[part], layer)
                keys[layer, part], largest[layer, part] = gains.argmax(axis=2), gains.max(axis=2)
                gains *= gains > LEAST_GAIN
                sums[layer, part] = gains.sum(axis=(1, 2), dtype=np.float64)
        values = sums.reshape(shape[:2]) / max(self.count, 1)
        return values, keys.reshape(shape), largest.reshape(shape)

    def place(self, layer: int, head: int) -> tuple[int, int]:
        """The query and the key of a head's link with the largest gain.

        Links between different words come first.
        """
        weights = self.item.weights[layer, head]
        gains = self._gains(weights[None], layer)[0]
        queries, keys = (
            np.array([token.text.lower() for token in tokens])
            for tokens in (self.item.query_tokens, self.item.key_tokens)
        )
        differing = np.where(queries[:, None] == keys, 0, gains)
        cells = differing if differing.max() > LEAST_GAIN else gains
        query, key = map(int, np.unravel_index(cells.argmax(), cells.shape))
        return query, key

    def clear(self, layer: int, head: int) -> list[tuple[int, int]]:
        """The query and key of each row's largest gain, where it is clear; the largest first."""
        keys, largest = (own[layer, head] for own in self.peaks[1:])
        order = np.argsort(-largest, kind="stable")
        order = order[largest[order] > CLEAR_GAIN]
        shares = self.shares(layer, head, order)[np.arange(len(order)), keys[order]]
        return [(int(row), int(keys[row])) for row in order[shares > CLEAR_SHARE]]

    def shares(self, layer: int, head: int, rows: Any = slice(None)) -> NDArray[np.float32]:
        """A head's weights without special tokens, each row, or each of some, made to sum to 1."""
        weights = np.where(self._cells[rows], self.item.weights[layer, head, rows], 0)
        mass = weights.sum(axis=-1, keepdims=True)
        return np.asarray(weights / np.where(mass > 0, mass, 1), dtype=np.float32)

    def link(self, layer: int, head: int) -> tuple[str, str, float]:
        """The names of that link's query and key, and its weight."""
        query, key = self.place(layer, head)
        ends = self.item.query_tokens[query].text, self.item.key_tokens[key].text
        # An address can have hundreds of characters.
        first, last = (end if len(end) <= 24 else f"{end[:23]}…" for end in ends)
        return first, last, float(self.item.weights[layer, head, query, key])

    def _gains(self, weights: NDArray[np.floating], layer: int) -> NDArray[np.float32]:
        """The gains of some heads (heads, queries, keys) of a layer; 0 where there is no link."""
        visible = self.visible[min(layer, len(self.visible) - 1)] & self._cells
        shares = np.multiply(weights, visible, dtype=np.float32)
        mass = shares.sum(axis=-1, keepdims=True)
        shares /= np.where(mass >= LEAST_MASS, mass, np.inf)
        if self._places is None:
            table = (
                shares.sum(axis=1, keepdims=True)
                / np.maximum((mass >= LEAST_MASS).sum(axis=1), 1)[:, None]
            )
        else:
            table = _fit(shares, visible, self._places)
        gains: NDArray[np.float32] = gains_of(shares, table)
        gains *= self._links
        return gains


@dataclass(frozen=True, slots=True, eq=False)
class PositionTable:
    """The effects of distance and key of some heads: a cell is rows · distances · keys."""

    rows: Numbers  # (heads, queries)
    distances: Numbers  # (heads, size), by the distance modulo size
    keys: Numbers  # (heads, keys)

    def of_heads(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cells (heads, queries, keys) between places."""
        distances, count = self.distances.astype(np.float32), len(places)
        rows, keys = self.rows[..., None].astype(np.float32), self.keys[:, None].astype(np.float32)
        if _in_line(places):  # a row's distances are those of the row before, moved by one
            line = np.concatenate([distances[:, 1 - count :], distances[:, :count]], axis=-1)
            table = sliding_window_view(line[:, -2 * count + 1 :], count, axis=-1)[:, ::-1] * rows
        else:
            table = distances.take(_apart(places, distances.shape[1]), axis=1)
            table *= rows
        table *= keys
        return table

    def at(self, head: int, queries: Any, keys: Any) -> NDArray[np.float32]:
        """Some cells of one head."""
        apart = self.distances[head].astype(np.float32)[keys - queries]
        sides = self.rows[head, queries].astype(np.float32), self.keys[head, keys]
        return np.asarray(apart * sides[0] * sides[1].astype(np.float32))


def size_of(places: NDArray[np.int64]) -> int:
    """A modulus that keeps all distances of places apart."""
    least = int(2 * places.max() + 2)
    half = 1 << max(least.bit_length() - 4, 0)
    # Transforms of such sizes are fast.
    return min(part * half for part in (8, 9, 10, 12, 15, 16) if part * half >= least)


def _in_line(places: NDArray[np.int64]) -> bool:
    return len(places) > 1 and bool((places == np.arange(len(places))).all())


def _apart(places: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return (places - places[:, None]) % size


def _sums_apart(cells: NDArray[Any], size: int) -> Numbers:
    """The sums over the diagonals of squares, (heads, size), by the distance modulo size."""
    count = cells.shape[-1]
    sums = np.zeros((len(cells), 2 * count - 1))
    for row in range(count):
        sums[:, count - 1 - row : 2 * count - 1 - row] += cells[:, row]
    apart = np.zeros((len(cells), size))
    apart[:, :count], apart[:, size - count + 1 :] = sums[:, count - 1 :], sums[:, : count - 1]
    return apart


def _fit(
    shares: NDArray[np.float32], visible: NDArray[np.bool_], places: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The table of distances and keys with the sums of shares, (heads, queries, keys) like them."""
    size = size_of(places)
    if _in_line(places):
        sums_apart = _sums_apart(shares, size)
        visible_sides = _sums_apart(visible[None], size)[0] > 0
    else:
        apart = _apart(places, size)
        own = apart + size * np.arange(len(shares))[:, None, None]
        sums = np.bincount(own.ravel(), shares.ravel(), len(shares) * size)
        sums_apart = np.asarray(sums.reshape(-1, size), dtype=np.float64)
        visible_sides = np.zeros(size, dtype=bool)
        visible_sides[apart[visible]] = True
    sums_of_keys = shares.sum(axis=1, dtype=np.float64)
    attending = np.asarray(shares.sum(axis=-1) > 0, np.float64)
    keys = np.asarray(visible.any(axis=0))
    table = fit_table((sums_apart, sums_of_keys), attending, (visible_sides, keys), places)
    return table.of_heads(places)


def fit_table(
    totals: tuple[Numbers, Numbers],
    attending: Numbers,
    visible_sides: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    places: NDArray[np.int64],
) -> PositionTable:
    """The table of heads with these sums of shares, over distances and over keys.

    `attending` is 1 for each row that has shares (heads, queries); `visible_sides` are the
    distances and the keys that any row sees. Each sum is a correlation, which a Fourier transform
    takes without a table at each step.
    """
    (sums_apart, sums_of_keys), size = totals, totals[0].shape[1]
    distances: Numbers = np.zeros(sums_apart.shape)
    keys: Numbers = np.zeros(sums_of_keys.shape)
    distances[:, visible_sides[0]] = keys[:, visible_sides[1]] = 1

    at: Any = slice(len(places)) if _in_line(places) else places

    def spread(values: Numbers) -> NDArray[np.complex128]:
        if isinstance(at, slice):
            return np.fft.rfft(values, size)
        whole = np.zeros_like(sums_apart)
        whole[:, at] = values
        return np.fft.rfft(whole)

    def back(spectrum: NDArray[np.complex128]) -> Numbers:
        return np.asarray(np.fft.irfft(spectrum, size))

    of_keys, of_distances = spread(keys), np.fft.rfft(distances)
    aims = sums_apart + PSEUDO_COUNT, sums_of_keys + PSEUDO_COUNT
    for step in range(STEPS + 1):
        sums = back(of_distances.conj() * of_keys)[:, at]
        rows = attending / np.where(sums > 0, sums, 1)
        if step == STEPS:
            break
        of_rows = spread(rows)
        sums = np.maximum(back(of_rows.conj() * of_keys), 0)
        sums *= distances
        distances *= aims[0] / np.add(sums, PSEUDO_COUNT, out=sums)
        of_distances = np.fft.rfft(distances)
        sums = np.maximum(back(of_rows * of_distances)[:, at], 0)
        sums *= keys
        keys *= aims[1] / np.add(sums, PSEUDO_COUNT, out=sums)
        of_keys = spread(keys)
    return PositionTable(rows, distances, keys)


def gains_of(shares: Any, table: Any) -> Any:
    """The gains of shares a over a table b, a ln(a / b), in nats."""
    gains = shares + np.float32(NEAR_0)
    gains /= np.add(table, NEAR_0, out=table)
    np.log(gains, out=gains)
    gains *= shares
    return gains


def _places(item: AttentionMap) -> NDArray[np.int64]:
    """Each token's place, so that any two of one distance differ by one number."""
    places = np.arange(len(item.key_tokens))
    patches = patch_places(item.key_tokens)
    if patches is not None:  # of a picture, the distance in rows and in columns
        steps = patches.astype(int) @ (2 * int(patches[:, 1].max()) + 1, 1)
        places[text_places(item.key_tokens)] = steps
    return places
