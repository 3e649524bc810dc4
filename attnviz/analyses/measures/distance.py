"""What position says of where heads attend: how far, and how much it leaves unexplained.

Distances, in tokens or in patches, include special tokens: a sink is part of what a head does.
A head that always attends to the token before, or to one key, is alike for every text:
`informative` measures what is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from attnviz.analyses.folds import ROWS, OnKeys, RowBlock, extents
from attnviz.analyses.masks import MeasuredMap, Numbers, may_be_sink, within_one_text
from attnviz.analyses.words import word_partition
from attnviz.core.attention_map import AttentionMap, Token, known_mean
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import text_places, without_first

_PATCH = re.compile(r"(\d+),(\d+)")
FAR = 64
"""Tokens beyond which attention is called distant."""
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


def distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a token and the tokens it attends to, in tokens.

    Mean over the rows i of Σ_j a_ij |i − j| / Σ_j a_ij.
    """
    return _weigh_offsets(subject, "distance", ("only itself", "only the far end"), 1)


def offset(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean signed distance, negative towards the past.

    Mean over the rows i of Σ_j a_ij (j − i) / Σ_j a_ij.
    """
    return _weigh_offsets(subject, "offset", ("only the past", "only what follows"), 0)


def distant(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes further than 64 tokens, to text behind the first token.

    Sinks are left out: special tokens and the first token. None where no row sees so far.
    """
    item = subject.item
    if not within_one_text(item) or patch_places(item.key_tokens) is not None:
        return None
    text = np.array([not token.special for token in item.key_tokens])
    text[0] = False
    ends = ("only near tokens and sinks", "only far text")
    return subject.share_on("distant", OnKeys(text, FAR), ends)


def _weigh_offsets(
    subject: MeasuredMap, name: str, ends: tuple[str, str], which: int
) -> HeadMeasure | None:
    length = len(subject.item.key_tokens)
    in_line = within_one_text(subject.item) and patch_places(subject.item.key_tokens) is None
    if not in_line or length < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = zip(subject.offsets, subject.row_sums, strict=True)
        heads, uniform = (subject.mean(apart[which] / sums, subject.rows) for apart, sums in pairs)
    return subject.compare(name, "tokens", ends, (heads, uniform), top=length - 1)


def patch_distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a patch of a picture and those it attends to, in patches.

    Mean over the patches of Σ_j a_ij times the distance of patches i and j (Dosovitskiy 2020, fig.
    7). The class token has no place: its row and column are left out, and what is left of each row
    is made to sum to 1 again. Times the side of a patch it is a distance in pixels.
    """
    item = subject.item
    places = patch_places(item.key_tokens)
    if places is None or not within_one_text(item):
        return None
    patches = text_places(item.key_tokens)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        between = weights[:, :, patches][:, :, :, patches].astype(np.float64)
        sums = between.sum(axis=-1)
        ways = np.einsum("lhij,ij->lhi", between, apart)
        # A patch that attends to nothing but the class token has no distance.
        attending = sums > 0
        return known_mean(np.where(attending, ways / np.where(attending, sums, 1.0), np.nan))

    ends = ("only itself", "only the far corner")
    return subject.measure("patch-distance", "patches", ends, formula, top=float(apart.max()))


def patch_places(tokens: Sequence[Token]) -> NDArray[np.float64] | None:
    """Row and column of each patch, shape (patches, 2); None where the tokens are no picture's.

    A picture's tokens are named "row,column", row by row without a gap; special ones may stand
    among them.
    """
    matches = [_PATCH.fullmatch(token.text) for token in tokens if not token.special]
    places = [(int(match[1]), int(match[2])) for match in matches if match]
    if len(places) < max(len(matches), 2):
        return None
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    grid = [(row, column) for row in range(rows) for column in range(columns)]
    return np.array(places, dtype=np.float64) if places == grid else None


def informative(subject: MeasuredMap) -> HeadMeasure | None:
    """How much of where a head looks neither distance nor popular keys explain, in nats.

    The sum of the gains above 0.02 (see `WordLinks`) over the number of words.
    """
    if isinstance(subject.item, AttentionMap):
        links = WordLinks(subject)
        if links.count < LEAST_WORDS:
            return None
        heads, uniform = links.says(links.item.weights), links.says(links.uniform)
        most = links.visible.sum(axis=-1).max()
    else:
        fold = word_fold(subject)
        drop = subject.first_is_sink
        if fold is None or fold.count(drop=drop) < LEAST_WORDS:
            return None
        heads, (uniform, most) = subject.fold("words", lambda: fold)
    ends = ("distance and popular keys explain all", "neither of them explains any word's look")
    # The table is no worse than an even look, and what a row loses is less than a nat.
    top = float(np.log(most)) + 1
    return subject.compare("informative", "nats", ends, (heads, uniform), top)


def word_fold(subject: MeasuredMap) -> WordFold | None:
    """The fold over the words of a text; None where words are no runs of tokens."""
    item = subject.item
    if not within_one_text(item):
        return None
    words = word_partition(item.key_tokens, subject.texts[1])
    groups = np.array(words.groups)
    if (np.diff(groups, prepend=-1) > 1).any() or (np.diff(groups) < 0).any():
        return None
    text = np.array([not token.special for token in words.tokens])
    names = np.array([any(map(str.isalnum, token.text)) for token in words.tokens])
    return WordFold(groups, text, text & names, may_be_sink(item))


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
        shape = weights.shape[:2]
        if (
            len(self.visible) == 1
        ):  # all layers at once: of short texts a call takes longer than its numbers
            weights = weights.reshape(1, -1, *weights.shape[2:])
        sums = np.zeros(weights.shape[:2])
        step = max(AT_ONCE // self._links.size, 1)
        for layer, heads in enumerate(weights):
            for first in range(0, len(heads), step):
                part = slice(first, first + step)
                gains = self._gains(heads[part], layer)
                gains *= gains > LEAST_GAIN
                sums[layer, part] = gains.sum(axis=(1, 2), dtype=np.float64)
        return sums.reshape(shape) / max(self.count, 1)

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
        gains = self._gains(self.item.weights[layer, head][None], layer)[0]
        keys, rows = gains.argmax(axis=1), np.arange(len(gains))
        largest, shares = gains[rows, keys], self.shares(layer, head)[rows, keys]
        clear = (largest > CLEAR_GAIN) & (shares > CLEAR_SHARE)
        order = np.argsort(-largest, kind="stable")
        return [(int(row), int(keys[row])) for row in order if clear[row]]

    def shares(self, layer: int, head: int) -> NDArray[np.float32]:
        """A head's weights without special tokens, each row made to sum to 1."""
        weights = np.where(self._cells, self.item.weights[layer, head], 0)
        mass = weights.sum(axis=-1, keepdims=True)
        return np.asarray(weights / np.where(mass > 0, mass, 1), dtype=np.float32)

    def row_gains(self, layer: int, head: int) -> NDArray[np.float32]:
        """The largest gain of each row."""
        return np.asarray(self._gains(self.item.weights[layer, head][None], layer)[0].max(axis=1))

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


@dataclass
class WordFold:
    """What a head says, as `WordLinks` does, of a text whose weights come in blocks of rows.

    A row's tokens are joined into words as they come. Only links that can have a gain of
    `LEAST_GAIN` are kept, at most 400 of a row, and compared with the table once it is known.

    Whether the first token is a sink is known at the end, so that all is summed with it and, if it
    may be one, without it. The table without it differs in its first column alone, and in what
    each row is divided by.
    """

    groups: NDArray[np.intp]  # the word of each token, in order
    text: NDArray[np.bool_]  # whether a word is no special token
    names: NDArray[np.bool_]  # whether it has a letter or a digit
    may_drop: bool = False  # whether the first token may be a sink
    open_row: Any = None  # number and row of a last word that the next block may continue
    sums: Any = None  # with and without it: by distance and by key, (heads, …)
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # what was found of whole rows

    def __post_init__(self) -> None:
        self.starts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        self.lengths = np.bincount(self.groups)
        self.size = size_of(np.arange(len(self.text)))

    def count(self, *, drop: bool = False) -> int:
        """The words among the rows."""
        return int((self._text(drop=drop) & self.names).sum())

    def _text(self, *, drop: bool) -> NDArray[np.bool_]:
        """The words that are no special tokens; with `drop` not a first one of a single token."""
        text = self.text.copy()
        text[0] &= not drop or self.lengths[0] > 1
        return text

    def part(self, block: RowBlock) -> Any:
        """What is found of a block's rows; of words of several tokens their rows over words."""
        weights, words = block.weights, self.groups[block.rows]
        if len(self.starts) == len(self.groups):
            return self._read(words, weights, weights[..., 0])
        share = (words == np.arange(words[0], words[-1] + 1)[:, None]) / self.lengths[words]
        weights = share.astype(weights.dtype) @ weights
        starts = self.starts[self.starts < weights.shape[-1]]
        first = weights[..., :1].copy()
        rows = np.concatenate([np.add.reduceat(weights, starts, axis=-1), first], axis=-1)
        return np.arange(words[0], words[-1] + 1), rows

    def add(self, part: Any) -> None:
        if len(part) > 2:
            self._keep(part)
            return
        numbers, rows = part
        if self.open_row is not None:
            before, row = self.open_row
            if before == numbers[0]:
                rows[:, 0, : row.shape[-1] - 1] += row[:, :-1]
                rows[:, 0, -1] += row[:, -1]
            else:
                self._close(np.array([before]), row[:, None])
        self.open_row = int(numbers[-1]), rows[:, -1].copy()
        self._close(numbers[:-1], rows[:, :-1])

    def _close(self, numbers: NDArray[np.intp], rows: Any) -> None:
        """Add whole rows over words, with the first token's column as the last."""
        if len(numbers):
            self._keep(self._read(numbers, rows[..., :-1], rows[..., -1]))

    def _read(self, numbers: NDArray[Any], weights: Any, first: Any) -> tuple[Any, ...]:
        """What is found of whole rows, (heads, rows, keys), and the first token's column."""
        heads, rows, keys = weights.shape
        text = self.text[:keys]
        masses = [weights @ text.astype(weights.dtype)]
        if self.may_drop:
            rest = self._text(drop=True)[:keys].astype(weights.dtype)
            column = np.zeros_like(first) if self.lengths[0] == 1 else first
            masses.append(weights @ rest - column)
        mass = np.stack(masses) * self.text[numbers]
        attending = mass >= LEAST_MASS
        by = np.divide(1, mass, out=np.zeros_like(mass), where=attending)
        # Between rows lie zeros, so that a view of them has a distance as each of its columns.
        space = np.zeros((rows + 1) * (keys + rows), weights.dtype)
        shares = space[rows:][: rows * (keys + rows)].reshape(rows, -1)[:, :keys]
        step = space.itemsize
        apart = np.lib.stride_tricks.as_strided(
            space[1:], (rows, keys + rows - 1), ((keys + rows + 1) * step, step), writeable=False
        )
        sums_apart = np.empty((len(by), heads, keys + rows - 1))
        sums_of_keys = np.empty((len(by), heads, keys))
        links = []
        may_link = self.names[numbers].any() and bool(self.names[:keys].any())
        for head in range(heads):
            np.multiply(weights[head], by[0, head][:, None], out=shares)
            if not text.all():
                shares[:, ~text] = 0
            ratio = mass[0, head] * by[:, head]  # of rows without the first token to those with it
            sums_apart[:, head], sums_of_keys[:, head] = ratio @ apart, ratio @ shares
            if len(by) > 1:
                off = first[head] * by[1, head] * text[0]
                sums_of_keys[1, head, 0] -= off.sum()
                np.subtract.at(sums_apart[1, head], rows - 1 - np.arange(rows), off)
            most = STRONG / np.maximum(ratio.max(axis=0), 1)
            if may_link and (cells := np.flatnonzero(shares > most[:, None])).size:
                at, to = np.divmod(cells, keys)
                row = numbers[at]
                link = self.names[row] & self.names[to] & (row != to)
                at, to, row = at[link], to[link], row[link]
                values = [shares[at, to]]
                if len(by) > 1:
                    own = values[0] * ratio[1, at]
                    values.append(own - np.where(to == 0, first[head, at] * by[1, head, at], 0))
                places = (
                    np.full(len(at), head, np.uint16),
                    row.astype(np.int32),
                    to.astype(np.int32),
                )
                links.append((*places, np.stack(values)))
        whole = tuple(np.concatenate(one, axis=-1) for one in zip(*links, strict=True))
        sight = extents(weights, numbers)[0]
        return numbers, (sums_apart, sums_of_keys), attending, sight, whole

    def _keep(self, part: tuple[Any, ...]) -> None:
        numbers, (apart, keys), *others = part
        if self.sums is None:
            self.sums = (
                np.zeros((*apart.shape[:2], self.size)),
                np.zeros((*keys.shape[:2], len(self.text))),
            )
        # Distances 0 and up lie at the beginning, those below 0 at the end.
        below = int(numbers[-1])
        ahead = max(apart.shape[-1] - below, 0)
        self.sums[0][..., self.size - below :][..., : apart.shape[-1]] += apart[..., :below]
        self.sums[0][..., :ahead] += apart[..., below:]
        self.sums[1][..., : keys.shape[-1]] += keys
        self.rows.append(tuple(others))

    def end(self, *, drop: bool = False) -> Numbers:
        """The measure of each head, (heads,); with `drop` without the first token."""
        if self.open_row is not None:
            number, row = self.open_row
            self._close(np.array([number]), row[:, None])
            self.open_row = None
        attending = np.concatenate([one[0][int(drop)] for one in self.rows], axis=-1)
        sums, visible = [one[int(drop)] for one in self.sums], self._visible(drop=drop)
        places = np.arange(len(self.text))
        table = fit_table((sums[0], sums[1]), attending.astype(np.float64), visible, places)
        values = np.zeros(len(attending))
        if links := [one[2] for one in self.rows if one[2]]:
            heads, rows, keys, shares = (
                np.concatenate(x, axis=-1) for x in zip(*links, strict=True)
            )
            for head in range(len(values)):
                own = (heads == head) & (shares[int(drop)] > STRONG)
                at, to, share = rows[own], keys[own], shares[int(drop), own]
                gains = gains_of(share, table.at(head, at, to))
                values[head] = gains[gains > LEAST_GAIN].sum(dtype=np.float64)
        return np.asarray(values / max(self.count(drop=drop), 1))

    def _visible(self, *, drop: bool) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The distances that lie between words that rows see, and the words that are visible."""
        text = self._text(drop=drop)
        words = np.zeros(self.size)
        words[: len(text)] = text
        spectrum = np.fft.rfft(words)
        pairs = np.fft.irfft(spectrum.conj() * spectrum, self.size) > 0.5
        before, ahead = self.reach
        pairs[ahead + 1 : self.size - before] = False
        return pairs, text & (self.sums[1][0].sum(axis=0) > 0)

    @property
    def reach(self) -> tuple[int, int]:
        """How many words back and ahead rows see at most, in a window of that size or the text."""
        first, last, count = np.concatenate([one[1] for one in self.rows], axis=-1)
        rows, most = np.arange(len(count)), len(self.text) - 1
        some = count > 0
        causal = not (last > rows)[some].any()
        far = int(np.maximum(rows - first, last - rows)[some].max(initial=0))
        high = rows if causal else np.minimum(rows + far, most)
        fills = (count == high - np.maximum(rows - far, 0) + 1).all() and far >= 2
        far = far if fills else most
        return far, 0 if causal else far

    def even(self, *, causal: bool, drop: bool) -> tuple[Numbers, int]:
        """The measure of uniform attention, (1,), and the most words that a row sees."""
        fold, most = WordFold(self.groups, self.text, self.names, self.may_drop), 0
        before, _ = self.reach
        keys = np.arange(len(self.text), dtype=np.int32)
        for first in range(0, len(keys), ROWS):
            rows = keys[first : first + ROWS, None]
            stop = int(rows[-1, 0]) + 1 if causal else len(keys)
            apart = rows - keys[:stop]
            visible = apart >= 0 if causal else np.ones(apart.shape, dtype=bool)
            if before < len(keys) - 1:
                visible &= np.abs(apart) <= before
            counts = visible.sum(axis=-1, keepdims=True)
            most = max(most, int(counts.max()))
            even = np.divide(visible, counts, dtype=np.float32)[None]
            # Without the first of several tokens its word is seen as before.
            column = even[..., 0] if self.lengths[0] == 1 else np.zeros_like(even[..., 0])
            fold._keep(fold._read(rows[:, 0], even, column))
        return fold.end(drop=drop), most - int(drop and self.lengths[0] == 1)


def _places(item: AttentionMap) -> NDArray[np.int64]:
    """Each token's place, so that any two of one distance differ by one number."""
    places = np.arange(len(item.key_tokens))
    patches = patch_places(item.key_tokens)
    if patches is not None:  # of a picture, the distance in rows and in columns
        steps = patches.astype(int) @ (2 * int(patches[:, 1].max()) + 1, 1)
        places[text_places(item.key_tokens)] = steps
    return places
