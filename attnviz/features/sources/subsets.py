"""Which parts of a context an answer was made from: leaving them out, and estimates beside.

Leaving a part out hides its tokens in every layer while positions stay. With fewer runs than parts,
halves are left out first and the half with the larger effect is divided (AttriBoT, Liu 2024).
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.core.effects import Experiment, Intervention, TokenAt

Numbers = NDArray[np.float64]

Group = tuple[int, ...]
LeaveOut = Callable[[Sequence[Group]], "Numbers"]
"""Groups of parts to log p of each sentence without them, shape (groups, sentences)."""
RIDGE = 1e-6


class HiddenParts:
    """An answer's log p with some parts of its context hidden.

    Attributes:
        places: the positions of each part's tokens on the `side` of the keys.
        sentences: the sentence of each output of the answer, by the output's number.
        runs: how many changed runs there were.
    """

    def __init__(
        self,
        experiment: Experiment,
        side: str,
        places: Sequence[Sequence[int]],
        sentences: Mapping[int, int],
    ) -> None:
        self.experiment, self.side, self.places = experiment, side, places
        self.sentences, self.runs = sentences, 0

    def score(self, groups: Sequence[Group]) -> Numbers:
        """Log p of each sentence without each group of parts, (groups, sentences)."""
        self.runs += len(groups)
        changes = [
            Intervention(
                tokens=tuple(TokenAt(self.side, at) for part in group for at in self.places[part])
            )
            for group in groups
        ]
        return np.array([self.of_sentences(rows) for rows in self.experiment.run(changes)])

    def of_sentences(self, rows: NDArray[np.floating]) -> Numbers:
        """The sums over each sentence of its outputs' log p (outputs, choices)."""
        sums = np.zeros(max(self.sentences.values()) + 1)
        for output, sentence in self.sentences.items():
            sums[sentence] += float(rows[output][self.experiment.outputs[output].number])
        return sums


def leave_out_parts(
    count: int, leave_out: LeaveOut, full: Numbers, budget: int
) -> dict[Group, Numbers]:
    """The effect of each part on each sentence, or of groups where the budget ends first."""
    if count <= budget:
        groups: list[Group] = [(part,) for part in range(count)]
        return dict(zip(groups, full - leave_out(groups), strict=True))
    effects: dict[Group, Numbers] = {}
    waiting: list[tuple[float, Group]] = [(0.0, tuple(range(count)))]
    while waiting and budget > 1:
        _, group = heapq.heappop(waiting)
        effects.pop(group, None)
        middle = len(group) // 2
        halves = [group[:middle], group[middle:]]
        budget -= 2
        for half, loss in zip(halves, full - leave_out(halves), strict=True):
            effects[half] = loss
            if len(half) > 1:
                heapq.heappush(waiting, (-float(loss.sum()), half))
    return effects


def attention_to(
    item: AttentionMap, rows: Sequence[int], places: Sequence[Sequence[int]]
) -> Numbers:
    """The attention of some rows to each part, their mean, shape (parts, layers, heads)."""
    means = item.weights[:, :, list(rows)].mean(axis=2, dtype=np.float64)
    return np.array([means[:, :, list(own)].sum(axis=-1) for own in places])


def fit_heads(
    shares: Numbers, leave_out: LeaveOut, full: float, draws: int, seed: int = 0
) -> Numbers:
    """Each part's score by a linear combination of heads, fitted on random subsets (AT2, 2025).

    `shares` is the attention to each part, (parts, heads). The loss of log p where a random half of
    the parts is left out is fitted as a sum over these parts and over heads.
    """
    generator = np.random.default_rng(seed)
    off = generator.random((draws, len(shares))) < 0.5
    groups = [tuple(np.flatnonzero(row).tolist()) for row in off]
    losses = full - leave_out(groups).sum(axis=1)
    finite = np.isfinite(losses)
    features = off[finite] @ shares
    gram = features.T @ features
    gram[np.diag_indices_from(gram)] += RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12)
    return np.asarray(shares @ np.linalg.solve(gram, features.T @ losses[finite]))


def effects_of_parts(
    effects: Mapping[Group, Numbers], count: int
) -> list[tuple[float, Numbers, Group]]:
    """The effect of each part, with its group; NaN if it was left out only with others."""
    rows = []
    for part in range(count):
        group = next(own for own in effects if part in own)
        loss = effects[group]
        alone = len(group) == 1
        own = loss if alone else np.full(len(loss), math.nan)
        rows.append((float(own.sum()), own, group))
    return rows
