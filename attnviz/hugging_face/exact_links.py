"""The strongest single links of a head whose map is pooled, found without its whole matrix.

No weight in a block of keys is larger than the most mass that any query gives the block. So the
blocks that may hold most are read key by key first, and once the weakest link found is about as
strong as anything that a block still unread can hold, nothing that matters is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.hugging_face.blocks import Axis
from attnviz.hugging_face.extent import Frame
from attnviz.hugging_face.interface import Call
from attnviz.hugging_face.probe import key_masses

if TYPE_CHECKING:
    from numpy.typing import NDArray

CALLS = 16
"""How often a layer's kernel is asked for single keys before a head whose blocks could all hold a
strong link is left as it is; as often as for the map itself, if that is more."""

SLACK = 0.01
"""Links that are stronger than the weakest one listed by no more than this may be missing."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Positions that would drown all other links, and are left out.

    Attributes:
        queries: who does not count as attending.
        keys: who does not count as attended to.
        itself: True where queries and keys are the same tokens, and one's own does not count.
    """

    queries: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    itself: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One exact weight."""

    query: int
    key: int
    weight: float


@dataclass(frozen=True, slots=True)
class Strongest:
    """A head's strongest links, strongest first.

    Attributes:
        cells: exact weights.
        missing: no link that is not among them is stronger than this.
    """

    cells: tuple[Cell, ...]
    missing: float

    @property
    def is_complete(self) -> bool:
        """True where no link that is clearly stronger than the weakest of them is missing."""
        return self.missing <= (self.cells[-1].weight if self.cells else 0.0) + SLACK


class Bounds:
    """For each head and block of keys the most mass that any query gives it."""

    def __init__(self, call: Call, frame: Frame, hidden: Hidden) -> None:
        self.call, self.frame, self.hidden = call, frame, hidden
        keys = frame.keys
        counted = [key for key in hidden.keys if keys.start <= key < keys.stop]
        self.apart = [(key, next(key_masses(call, Axis(key, key + 1)))[1]) for key in counted]
        heads = call.query.shape[1]
        self.highest = call.query.new_zeros((heads, keys.blocks))

    def add(self, first: int, masses: Any) -> None:
        """Count some more blocks, shape (1, queries, heads, blocks), from number `first` on."""
        queries, keys = self.frame.queries, self.frame.keys
        counted = masses[0, queries.start : queries.stop].clone()
        for key, mass in self.apart:
            block = (key - keys.start) // keys.length - first
            if 0 <= block < counted.shape[-1]:
                counted[..., block] -= mass[0, queries.start : queries.stop, :, 0]
        counted[[query - queries.start for query in self.hidden.queries
                 if queries.start <= query < queries.stop]] = 0  # fmt: skip
        self.highest[:, first : first + counted.shape[-1]] = counted.amax(0)


def strongest(bounds: Bounds, count: int) -> list[Strongest]:
    """Each head's strongest links.

    Args:
        bounds: of a call with a batch of one, with every block of its keys added.
        count: how many links a head.
    """
    call, keys, highest = bounds.call, bounds.frame.keys, bounds.highest.float()
    heads, (groups, size) = len(highest), call.value.shape[1::2]
    best: list[list[Cell]] = [[] for _ in range(heads)]
    blocks, parts = max(size // keys.length, 1), -(-keys.length // size)
    for _ in range(max(max(CALLS, keys.blocks // size) // parts, 1)):
        weakest = [cells[-1].weight if len(cells) == count else 0.0 for cells in best]
        wanted = highest.where(highest > highest.new_tensor(weakest)[:, None] + SLACK, 0.0)
        chosen = wanted.view(groups, heads // groups, -1).amax(1).topk(min(blocks, keys.blocks), 1)
        if not bool(chosen.values.any()):
            break
        for part in range(parts):
            unread = chosen.indices.masked_fill(chosen.values == 0, -1)
            positions = keys_of(unread, keys, part, size)
            for head, cells in enumerate(single_keys(bounds, positions, count)):
                merged = sorted([*best[head], *cells], key=lambda cell: -cell.weight)
                best[head] = merged[:count]
        for head in range(heads):
            highest[head, chosen.indices[head // (heads // groups)]] = 0
    missing = highest.amax(1).tolist()
    return [Strongest(tuple(best[head]), missing[head]) for head in range(heads)]


def keys_of(blocks: Any, keys: Axis, part: int, size: int) -> Any:
    """The keys in some blocks, as many as values are wide.

    Args:
        blocks: their numbers, shape (groups, blocks); −1 for none.
        keys: what the numbers count.
        part: of blocks longer than `size` the how-manieth stretch.
        size: how many keys at most.

    Returns:
        positions, shape (groups, keys); −1 for none.
    """
    import torch

    inside = part * size + torch.arange(min(keys.length, size), device=blocks.device)
    positions = (keys.start + blocks[..., None] * keys.length + inside).flatten(1)
    past = (inside >= keys.length) | (blocks[..., None] < 0)
    return positions.masked_fill(past.flatten(1) | (positions >= keys.stop), -1)


def single_keys(bounds: Bounds, positions: Any, count: int) -> list[list[Cell]]:
    """Each head's strongest links to some keys.

    Args:
        bounds: whose call is asked again.
        positions: of the keys, for each group of heads that share their values; −1 for none.
        count: how many links a head.
    """
    import torch

    call, hidden, queries = bounds.call, bounds.hidden, bounds.frame.queries
    groups, columns = positions.shape
    value = torch.zeros_like(call.value)
    group, column = torch.arange(groups, device=value.device)[:, None], torch.arange(columns)
    value[0, group, positions.clamp(min=0), column.to(value.device)] = 1
    weights = call.mix(value)[0, :, :, :columns].clone()
    weights[[*range(queries.start), *hidden.queries]] = -1
    weights[queries.stop :] = -1
    found = []
    for head in range(weights.shape[1]):
        places = positions[head // (weights.shape[1] // groups)]
        own = weights[:, head]
        own[:, (places < 0) | torch.isin(places, places.new_tensor(hidden.keys))] = -1
        if hidden.itself:
            inside = (places >= 0).nonzero()[:, 0]
            own[places[inside], inside] = -1
        top = own.flatten().topk(min(count, own.numel()))
        cells = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        keys = places.tolist()
        found.append(
            [
                Cell(place // columns, keys[place % columns], weight)
                for place, weight in cells
                if weight > 0
            ]
        )
    return found


def strongest_in(weights: NDArray[np.float32], hidden: Hidden, count: int) -> list[Strongest]:
    """Each head's strongest links where the whole matrices are at hand.

    Args:
        weights: shape (heads, queries, keys).
        hidden: what does not count.
        count: how many links a head.
    """
    found = []
    for head in weights:
        allowed = head.copy()
        allowed[list(hidden.queries)] = -1
        allowed[:, list(hidden.keys)] = -1
        if hidden.itself:
            np.fill_diagonal(allowed, -1)
        flat = allowed.ravel()
        places = np.argpartition(flat, -min(count, flat.size))[-min(count, flat.size) :]
        places = places[np.argsort(-flat[places], kind="stable")]
        cells = tuple(
            Cell(int(place) // head.shape[1], int(place) % head.shape[1], float(flat[place]))
            for place in places
            if flat[place] > 0
        )
        found.append(Strongest(cells, 0.0))
    return found
