"""Choose which part of a text's attention to read, and how finely, before the model runs.

A map of every token grows with tokens²; beyond a size it is pooled to blocks of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from attnviz.core.attention_map import Token
from attnviz.core.errors import ModelError, UnfitTextError
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.load.devices import format_bytes, free_bytes
from attnviz.models.hugging_face.load.family import parts_of

DEFAULT_SIZE = 1024  # most queries and keys of a map by default
MAP_BYTES = 2**30  # most bytes of a long text's maps by default
SIZES = (512, 256, 128, 64)  # tried in turn if a map would not fit; smaller maps show nothing
CELL = 8  # bytes of a weight: it exists once as it is read, and once stacked with other layers


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a text's attention to read, and how finely."""

    max_size: int | None = None  # most queries and keys; None: 1,024, or fewer that fit
    rows: tuple[int, int] | None = None  # first and last query of exact rows
    window: tuple[int, int] | None = None  # first and last token of queries and keys
    links: int = 20  # of each head, beside a pooled map
    keep_qk: bool = False  # whether to keep queries and keys beside the weights
    channels: str = "mean"  # of layers that mix by channel: "mean", "all" or "3,17"
    indexer: bool = False  # whether to add what an indexer chooses keys by

    @property
    def is_default(self) -> bool:
        return self.max_size is None and self.rows is None and self.window is None


ALL_TOKENS = Region()


@dataclass(frozen=True, slots=True)
class PooledGrid:
    """What to read of one stream: blocks of queries by blocks of keys."""

    queries: TokenBlocks
    keys: TokenBlocks

    @property
    def cells(self) -> int:
        return self.queries.blocks * self.keys.blocks

    @property
    def is_pooled(self) -> bool:
        """Whether a cell stands for more than one weight."""
        return self.queries.length > 1 or self.keys.length > 1


def choose_grids(
    model: Any, sides: Mapping[str, tuple[int, int]], region: Region
) -> dict[str, PooledGrid]:
    """The block sizes of each stream with which all of it fits into memory."""
    heads = {stream: heads_of(model.config, stream) for stream in sides}
    free = free_bytes(model.device)

    def bytes_of(most: int | None) -> int:
        grids = grids_of(sides, region, most)
        return sum(CELL * heads[stream] * grid.cells for stream, grid in grids.items())

    most = region.max_size or DEFAULT_SIZE
    long = max(max(side) for side in sides.values()) > most
    if region.max_size is None:
        # A short text is pooled only if it must be; a long one also takes half of what is free.
        budget = min(MAP_BYTES, free // 2) if long else free
        most = next((size for size in (most, *SIZES) if bytes_of(size) <= budget), SIZES[-1])
    if bytes_of(most) > free:
        fits = next((size for size in SIZES if bytes_of(size) <= free and size < most), None)
        option = f"--max-size {fits} would fit" if fits else "free some, or give a shorter text"
        largest = max(grids_of(sides, region, most).values(), key=lambda grid: grid.cells)
        raise ModelError(
            f"attention of {max(max(side) for side in sides.values()):,} tokens "
            f"({sum(heads.values()):,} heads × {largest.queries.blocks:,} × "
            f"{largest.keys.blocks:,}) would take about {format_bytes(bytes_of(most))}, and "
            f"{format_bytes(free)} is free: {option}"
        )
    return grids_of(sides, region, most)


def fits_whole(model: Any, sides: Mapping[str, tuple[int, int]]) -> bool:
    """Whether every weight of a text is read at once, where no picture asks for less."""
    if max(max(side) for side in sides.values()) > DEFAULT_SIZE:
        return False
    cells = sum(heads_of(model.config, name) * rows * keys for name, (rows, keys) in sides.items())
    return CELL * cells <= free_bytes(model.device)


def grids_of(
    sides: Mapping[str, tuple[int, int]], region: Region, most: int | None
) -> dict[str, PooledGrid]:
    """The grid of each stream, at most `most` blocks along a side; None: single tokens."""
    grids = {}
    for stream, (queries, keys) in sides.items():
        if region.window is not None:
            first, last = check_part(region.window, min(queries, keys), "--window")
            part = split_blocks(first, last + 1, most or last + 1)
            grids[stream] = PooledGrid(part, part)
        elif region.rows is not None:
            first, last = check_part(region.rows, queries, "--rows")
            grids[stream] = PooledGrid(TokenBlocks(first, last + 1), each_token(keys))
        else:
            sizes = (split_blocks(0, length, most or length) for length in (queries, keys))
            grids[stream] = PooledGrid(*sizes)
    return grids


def check_part(part: tuple[int, int], length: int, option: str) -> tuple[int, int]:
    """The part, if the text has it."""
    if not 0 <= part[0] <= part[1] < length:
        raise UnfitTextError(
            f"{option} {part[0]}-{part[1]} does not lie in this text: it has {length:,} tokens, "
            f"0 to {length - 1}"
        )
    return part


def heads_of(config: Any, stream: str) -> int:
    """How many heads a stream has in all its layers, by the configuration."""
    return prod(shape_of(config, stream))


def shape_of(config: Any, stream: str) -> tuple[int, int]:
    """How many layers a stream has, and heads in each, by the configuration."""
    side = "encoder" if stream == "encoder" else "decoder"
    config = parts_of(config)[0 if side == "encoder" else -1].get_text_config()
    layers = [f"{side}_layers", f"num_{side}_layers", "num_hidden_layers"]
    heads = [f"{side}_attention_heads", "num_attention_heads"]
    return _first_number(config, layers), _first_number(config, heads)


def _first_number(config: Any, names: list[str]) -> int:
    values = (getattr(config, name, None) for name in names)
    return next((number for number in values if isinstance(number, int) and number), 1)


def region_note(grid: PooledGrid, side: tuple[int, int]) -> str:
    """A sentence on the part of a stream that was pooled or left out, or ""."""
    queries, keys = grid.queries, grid.keys
    is_partial = queries.stop - queries.start < side[0]
    what = f"{side[0]:,} tokens"
    if is_partial:
        what = f"tokens {queries.start} to {queries.stop - 1} of {what}"
    if grid.is_pooled:
        sizes = " × ".join(map(str, dict.fromkeys((queries.length, keys.length))))
        return (
            f"{what}: the maps show {queries.blocks:,} × {keys.blocks:,} blocks of {sizes} "
            "tokens, and rows keep their sum; --rows A-B shows the exact rows of these tokens, "
            "--window A-B or a larger --max-size shows smaller blocks"
        )
    if not is_partial:
        return ""
    if keys.stop - keys.start < side[1]:
        return f"only {what} attend, and only to each other: rows sum to what stays among them"
    return f"only {what} attend, to all of them"


@dataclass(frozen=True, slots=True)
class TokenBlocks:
    """The tokens from `start` up to `stop`, in blocks of `length`; the last may be shorter."""

    start: int
    stop: int
    length: int = 1

    @property
    def blocks(self) -> int:
        return -(-(self.stop - self.start) // self.length)

    def block_of(self, position: Any) -> Any:
        """The number of the block that holds a position, or each of an array of positions."""
        return (position - self.start) // self.length

    def size_of(self, block: int) -> int:
        return min(self.length, self.stop - self.start - block * self.length)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first token of each block, and one past its last."""
        return [
            (first, min(first + self.length, self.stop))
            for first in range(self.start, self.stop, self.length)
        ]

    def tokens(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        """A token for each block, such as "12–15 the … of"; single tokens stay as they are."""
        if self.length == 1:
            return tokens[self.start : self.stop]
        return tuple(_block_token(tokens[first:stop], first) for first, stop in self.spans)


@dataclass(frozen=True, slots=True)
class TokenParts(TokenBlocks):
    """Neighbouring parts of any length; `length` is that of the longest."""

    ends: tuple[int, ...] = ()  # one past the last token of each

    @property
    def blocks(self) -> int:
        return len(self.ends)

    def block_of(self, position: Any) -> Any:
        import torch

        where = torch.as_tensor(position)
        return torch.bucketize(where, torch.tensor(self.ends, device=where.device), right=True)

    def size_of(self, block: int) -> int:
        return self.ends[block] - (self.ends[block - 1] if block else self.start)

    @property
    def spans(self) -> list[tuple[int, int]]:
        return [*zip((self.start, *self.ends), self.ends, strict=False)]


def parts_between(edges: Sequence[int]) -> TokenParts:
    """The parts between neighbouring edges, of which each is larger than the one before."""
    longest = max(stop - first for first, stop in pairwise(edges))
    return TokenParts(edges[0], edges[-1], longest, tuple(edges[1:]))


def each_token(length: int) -> TokenBlocks:
    """Every token by itself."""
    return TokenBlocks(0, length)


def split_blocks(start: int, stop: int, most: int) -> TokenBlocks:
    """The tokens in blocks of equal length, as short as `most` blocks allow."""
    return TokenBlocks(start, stop, -(-(stop - start) // most))


def _block_token(tokens: tuple[Token, ...], first: int) -> Token:
    last = first + len(tokens) - 1
    words = tokens[0].text if len(tokens) == 1 else f"{tokens[0].text} … {tokens[-1].text}"
    place = f"{first}" if len(tokens) == 1 else f"{first}–{last}"
    # Special tokens cover nothing, at 0: a block covers what its words cover.
    covering = [token for token in tokens if token.end > token.start] or list(tokens)
    return Token(
        f"{place} {words}",
        min(token.start for token in covering),
        max(token.end for token in covering),
        all(token.special for token in tokens),
    )
