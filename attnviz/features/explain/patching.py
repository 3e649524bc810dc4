"""Activation patching: which heads and positions make two inputs have different answers.

What heads put out for the first input is put into the run of the second (Vig 2020, Meng 2022), and
the difference of the two answers' log p is measured, from 0 (the second's) to 1 (the first's).

Estimates beside it are the gradient of that share by a head's output in the second run, times what
is put in (attribution patching, Nanda 2023). Queries and keys are not linearised, as in AtP*'s
correction for saturated attention (Kramár 2024): the weights of both runs are exact.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.effects import Experiment, HeadAt, HeadOutputs, Intervention, every_head
from attnviz.core.errors import AttnvizError, UsageError, first_line
from attnviz.core.tokens import token_label
from attnviz.features.explain.report import ContrastReport, Restored
from attnviz.features.measures.intervals import rank_correlation

BY_ROW = 3  # heads that are put in row by row
ALIKE = 0.1  # nats by which the answers have to differ
MEASURED = 256  # heads that are measured; of more, those with the largest estimates
LINKS = 10  # links that are measured: those with the largest estimates


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
        """How far each group of heads restores the first answer if it puts out these values."""
        self.runs += len(heads)
        changes = [Intervention(heads=group) for group in heads]
        low, span = self.scores[1], self.scores[0] - self.scores[1]
        return [(self._score(row[0]) - low) / span for row in self.second.run(changes, outputs)]

    def at_row(self, row: int) -> HeadOutputs:
        """The second input's head outputs, with the first input's at one row."""
        outputs = dict[tuple[str, str], "NDArray[np.floating]"]()
        for place, own in self.own.items():
            outputs[place] = own
            if row < own.shape[1]:
                outputs[place] = own.copy()
                outputs[place][:, row] = self.clean[place][:, row]
        return outputs

    def slopes(self) -> HeadOutputs:
        """The gradient of the share by each head's output in the second run."""
        second, gradients = self.second, list[HeadOutputs]()
        output, span = second.outputs[0], self.scores[0] - self.scores[1]
        try:
            for number in self.numbers:
                second.outputs = (replace(output, number=number),)
                gradients.append(second.output_gradients())
        finally:
            second.outputs = (output,)
        self.runs += 2
        return {place: (gradients[0][place] - gradients[1][place]) / span for place in gradients[0]}


class Estimates:
    """First-order shares of every head, row and link."""

    def __init__(self, patches: PatchedRuns) -> None:
        slopes = patches.slopes()
        self.rows = {
            place: (slope * (patches.clean[place] - patches.own[place])).sum(-1)
            for place, slope in slopes.items()
        }
        values = [one.head_values() for one in (patches.first, patches.second)]
        self.links = list[tuple[float, HeadAt, int, int, "NDArray[np.floating]"]]()
        for maps in zip(patches.first.attention.maps, patches.second.attention.maps, strict=True):
            for number, layer in enumerate(maps[0].layers):
                place = maps[0].stream, layer
                new, old = (own.weights[number].astype(np.float64) for own in maps)
                fresh, stale = (one[place] for one in values)
                # Link (i, j) changes row i of the output by A'ᵢⱼ v'ⱼ − Aᵢⱼ vⱼ.
                shares = new * (slopes[place] @ fresh.mT) - old * (slopes[place] @ stale.mT)
                for flat in np.argsort(-np.abs(shares), axis=None)[:LINKS]:
                    head, query, key = (int(n) for n in np.unravel_index(flat, shares.shape))
                    at = HeadAt(*place, head)
                    change = new[head, query, key] * fresh[head, key]
                    change = change - old[head, query, key] * stale[head, key]
                    share = float(shares[head, query, key])
                    self.links.append((share, at, query, key, change))
        self.links = sorted(self.links, key=lambda one: -abs(one[0]))[:LINKS]

    def of(self, heads: Sequence[HeadAt], row: int | None = None) -> float:
        """The estimated share of some heads together, at every row or at one."""
        by_row = (self.rows[at.stream, at.layer][at.head] for at in heads)
        return float(sum(one.sum() if row is None else one[row] for one in by_row))


def contrast_inputs(
    first: Experiment, second: Experiment, texts: tuple[str, str]
) -> ContrastReport:
    """Which heads and positions of the first input restore its answer in the second."""
    patches = PatchedRuns(first, second)
    attention = first.attention
    every = every_head(attention)
    tries, notes, guess = every, [*attention.provenance.notes], None
    try:
        guess = Estimates(patches)
    except AttnvizError as error:
        notes.append(f"estimates are left out: {first_line(error)}")
    if guess is not None and len(every) > MEASURED:
        size = {at: abs(guess.of([at])) for at in every}
        tries = sorted(every, key=lambda at: -size[at])[:MEASURED]
        notes.append(
            f"of {len(every):,} heads the {MEASURED} with the largest estimates are measured"
        )
    shares = patches.restore([(at,) for at in tries], patches.clean)
    order_of_heads = sorted(zip(tries, shares, strict=True), key=lambda one: -one[1])
    top = [at for at, _ in order_of_heads[:BY_ROW]]
    heads = [
        Restored(at.stream, at.layer, at.head, None, "", share, _estimate(guess, [at]))
        for at, share in order_of_heads
    ]
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
        at_row = patches.restore([*((at,) for at in some), *map(tuple, whole)], outputs)
        rows += _shares_at(patches, [((at,), at.head) for at in some], row, at_row, guess)
        parts = [(tuple(own), None) for own in whole]
        layers += _shares_at(patches, parts, row, at_row[len(some) :], guess)
    order = list(groups)
    return ContrastReport(
        caption=f"{attention.provenance.title} · from one text's answer to the other's",
        texts=texts,
        answers=(first.spell(patches.numbers[0]), first.spell(patches.numbers[1])),
        scores=patches.scores,
        heads=tuple(heads),
        rows=tuple(sorted(rows, key=lambda one: -one.share)),
        layers=tuple(sorted(layers, key=lambda one: order.index((one.stream, one.layer)))),
        links=() if guess is None else _measured_links(patches, guess),
        agreement=None
        if guess is None
        else rank_correlation(np.array([guess.of([at]) for at in tries]), np.array(shares)),
        runs=patches.runs,
        notes=tuple(notes),
        provenance=attention.provenance,
    )


def _estimate(
    guess: Estimates | None, heads: Sequence[HeadAt], row: int | None = None
) -> float | None:
    return None if guess is None else guess.of(heads, row)


def _shares_at(
    patches: PatchedRuns,
    groups: Sequence[tuple[tuple[HeadAt, ...], int | None]],
    row: int,
    shares: Sequence[float],
    guess: Estimates | None,
) -> Iterator[Restored]:
    """The shares of groups of heads at a row, with its token."""
    for (heads, head), share in zip(groups, shares, strict=False):
        at = heads[0]
        token = token_label(patches.first.attention.map_of(at.stream).query_tokens, row)
        yield Restored(at.stream, at.layer, head, row, token, share, _estimate(guess, heads, row))


def _measured_links(patches: PatchedRuns, guess: Estimates) -> tuple[Restored, ...]:
    """The links with the largest estimates, each put into the second run alone."""
    links = []
    for estimate, at, query, key, change in guess.links:
        place = at.stream, at.layer
        outputs = {**patches.own, place: patches.own[place].copy()}
        outputs[place][at.head, query] += change
        (share,) = patches.restore([(at,)], outputs)
        item = patches.first.attention.map_of(at.stream)
        names = token_label(item.query_tokens, query), token_label(item.key_tokens, key)
        links.append(
            Restored(
                *(at.stream, at.layer, at.head, query, names[0], share, estimate, key, names[1])
            )
        )
    return tuple(sorted(links, key=lambda one: -abs(one.share)))
