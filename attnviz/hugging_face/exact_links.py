"""The strongest single links of a head whose map is pooled, found without its whole matrix.

No weight in a block is larger than the block's mass. So the rows whose largest block has the most
mass are read exactly first, and once the weakest of the links found is stronger than any block of
the rows still unread, nothing can be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.hugging_face.blocks import Axis
from attnviz.hugging_face.interface import Call
from attnviz.hugging_face.probe import exact_rows, key_masses

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS = 6
"""How often rows are read exactly before an even head is given up; each costs about three runs of
the kernel."""

CELLS = 2**25
"""How many exact weights are at hand at once."""


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
        missing: no link that is not among them is stronger than this; at most the weakest of
            them where the list is complete.
    """

    cells: tuple[Cell, ...]
    missing: float

    @property
    def is_complete(self) -> bool:
        """True where no stronger link can have been missed."""
        return not self.cells or self.missing <= self.cells[-1].weight + 1e-6


class Bounds:
    """For each head and query the largest mass that any block of keys gets."""

    def __init__(self, call: Call, keys: Axis, hidden: Hidden) -> None:
        import torch

        self.call, self.keys, self.hidden = call, keys, hidden
        _, heads, queries, _ = call.query.shape
        self.highest = torch.zeros((heads, queries), device=call.query.device)
        counted = [key for key in hidden.keys if keys.start <= key < keys.stop]
        self.apart = [(key, next(key_masses(call, Axis(key, key + 1)))[1]) for key in counted]

    def add(self, first: int, masses: Any) -> None:
        """Count some more blocks, shape (1, queries, heads, blocks), from number `first` on."""
        masses = masses.clone() if self.apart else masses
        for key, mass in self.apart:
            block = (key - self.keys.start) // self.keys.length - first
            if 0 <= block < masses.shape[-1]:
                masses[..., block] -= mass[..., 0]
        highest = masses[0].amax(-1).T.float()
        self.highest = self.highest.maximum(highest)


def strongest(call: Call, bounds: Bounds, count: int) -> list[Strongest]:
    """Each head's strongest links.

    Args:
        call: a kernel's call with a batch of one.
        bounds: with every block of its keys added.
        count: how many links a head.
    """
    import torch

    hidden, highest = bounds.hidden, bounds.highest.clone()
    heads, queries = highest.shape
    keys = call.key.shape[2]
    highest[:, list(hidden.queries)] = 0
    at_once = max(min(queries, 4 * call.value.shape[-1], CELLS // (heads * keys)), 1)
    best = torch.full((heads, count), -1.0, device=highest.device)
    places = torch.zeros((heads, count), dtype=torch.long, device=highest.device)
    for _ in range(ROUNDS):
        top = highest.topk(at_once, dim=1)
        if bool((top.values[:, 0] <= best[:, -1].clamp(min=0)).all()):
            break
        rows = exact_rows(call, top.indices)
        hide(rows, top.indices, hidden)
        rows = rows[..., bounds.keys.start : bounds.keys.stop]
        numbers = (
            top.indices[..., None] * keys
            + torch.arange(bounds.keys.start, bounds.keys.stop, device=rows.device)
        ).flatten(1)
        found = torch.cat([best, rows.flatten(1)], 1).topk(count, dim=1)
        places = torch.cat([places, numbers], 1).gather(1, found.indices)
        best = found.values
        highest.scatter_(1, top.indices, 0)
    return [
        Strongest(
            tuple(
                Cell(place // keys, place % keys, weight)
                for weight, place in zip(*pair, strict=True)
                if weight > 0
            ),
            missing,
        )
        for *pair, missing in zip(
            best.tolist(), places.tolist(), highest.amax(1).tolist(), strict=True
        )
    ]


def hide(rows: Any, queries: Any, hidden: Hidden) -> None:
    """Put the cells that do not count below all others.

    Args:
        rows: shape (heads, rows, keys), changed in place.
        queries: which queries they are of, shape (heads, rows).
        hidden: what does not count.
    """
    import torch

    rows[..., list(hidden.keys)] = -1
    for query in hidden.queries:
        rows[queries == query] = -1
    if hidden.itself:
        rows.scatter_(
            2, queries[..., None], torch.full_like(queries[..., None], -1, dtype=rows.dtype)
        )


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
