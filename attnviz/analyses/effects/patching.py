"""Activation patching: which heads and positions make two inputs have different answers.

What heads put out for the first input is put into the run of the second (Vig 2020, Meng 2022), and
the difference of the two answers' log p is measured, from 0 (the second's) to 1 (the first's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnviz.analyses.effects.ablation import each_part, token_label
from attnviz.core.answers import ContrastReport, Restored
from attnviz.core.effects import Experiment, HeadAt, HeadOutputs, Intervention
from attnviz.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

BY_ROW = 3
"""Heads that are put in row by row."""
ALIKE = 0.1
"""Nats by which the answers have to differ."""


class PatchedRuns:
    """Two inputs of one model, the second run with parts of the first's run.

    Raises:
        UsageError: the inputs differ in length, or have one answer.
    """

    def __init__(self, first: Experiment, second: Experiment) -> None:
        counts = [
            [len(item.query_tokens) for item in one.attention.maps] for one in (first, second)
        ]
        if counts[0] != counts[1]:
            raise UsageError(
                f"--contrast needs texts of as many tokens: these have {counts[0][0]} and "
                f"{counts[1][0]}"
            )
        self.first, self.second, self.runs = first, second, 2
        self.clean, self.own = first.head_outputs(), second.head_outputs()
        ((before, *_),), ((after, *_),) = (one.run([Intervention()]) for one in (first, second))
        self.numbers = first.outputs[0].number, int(after.argmax())
        if self.numbers[0] == self.numbers[1]:
            name = first.spell(self.numbers[0])
            raise UsageError(f"both texts have the answer '{name}': nothing is to be restored")
        self.scores = self._score(before), self._score(after)
        if self.scores[0] - self.scores[1] < ALIKE:
            raise UsageError("the first text does not make its answer likelier than the second")

    def _score(self, scores: NDArray[np.floating]) -> float:
        return float(scores[self.numbers[0]] - scores[self.numbers[1]])

    def restore(self, heads: Sequence[tuple[HeadAt, ...]], outputs: HeadOutputs) -> list[float]:
        """How far each group of heads, with these outputs, restores the first answer."""
        self.runs += len(heads)
        changes = [Intervention(heads=group) for group in heads]
        low, span = self.scores[1], self.scores[0] - self.scores[1]
        return [(self._score(row[0]) - low) / span for row in self.second.run(changes, outputs)]

    def at_row(self, row: int) -> HeadOutputs:
        """The second input's outputs with the first's at one row."""
        found = dict[tuple[str, str], "NDArray[np.floating]"]()
        for place, own in self.own.items():
            found[place] = own
            if row < own.shape[1]:
                found[place] = own.copy()
                found[place][:, row] = self.clean[place][:, row]
        return found


def contrast_inputs(
    first: Experiment, second: Experiment, texts: tuple[str, str]
) -> ContrastReport:
    """Which heads and positions of the first input restore its answer in the second."""
    patches = PatchedRuns(first, second)
    attention = first.attention
    every = [change.heads[0] for _, change in each_part(attention, "heads")]
    shares = patches.restore([(at,) for at in every], patches.clean)
    ranked = sorted(zip(every, shares, strict=True), key=lambda one: -one[1])
    top = [at for at, _ in ranked[:BY_ROW]]
    groups: Mapping[tuple[str, str], list[HeadAt]] = {
        (item.stream, layer): [at for at in every if (at.stream, at.layer) == (item.stream, layer)]
        for item in attention.maps
        for layer in item.layers
    }
    rows, layers = list[Restored](), list[Restored]()
    for row in range(max(len(item.query_tokens) for item in attention.maps)):
        outputs = patches.at_row(row)
        some = [at for at in top if row < len(attention.map_of(at.stream).query_tokens)]
        whole = [own for place, own in groups.items() if row < patches.own[place].shape[1]]
        found = patches.restore([*((at,) for at in some), *map(tuple, whole)], outputs)
        rows += _restored(first, [((at,), at.head) for at in some], row, found)
        layers += _restored(first, [(tuple(own), None) for own in whole], row, found[len(some) :])
    order = list(groups)
    return ContrastReport(
        caption=f"{attention.provenance.title} · from one text's answer to the other's",
        texts=texts,
        answers=(first.spell(patches.numbers[0]), first.spell(patches.numbers[1])),
        scores=patches.scores,
        heads=tuple(Restored(at.stream, at.layer, at.head, None, "", n) for at, n in ranked),
        rows=tuple(sorted(rows, key=lambda one: -one.share)),
        layers=tuple(sorted(layers, key=lambda one: order.index((one.stream, one.layer)))),
        runs=patches.runs,
        notes=attention.provenance.notes,
        provenance=attention.provenance,
    )


def _restored(
    first: Experiment,
    groups: Sequence[tuple[tuple[HeadAt, ...], int | None]],
    row: int,
    shares: Sequence[float],
) -> Iterator[Restored]:
    """The shares of groups of heads at a row, with its token."""
    for (heads, head), share in zip(groups, shares, strict=False):
        at = heads[0]
        token = token_label(first.attention.map_of(at.stream).query_tokens, row)
        yield Restored(at.stream, at.layer, head, row, token, share)
