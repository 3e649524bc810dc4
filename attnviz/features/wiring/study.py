"""Which heads read which heads: what moves if a head cannot read what an earlier one wrote.

A writer's part is taken out of a head's queries, keys or values with every norm's statistics held.
The new weights are then softmax(s − s(·, b)), exact and cheap. (Path patching, Goldowsky-Dill 2023,
runs the model again for each pair.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Provenance
from attnviz.core.effects import HeadAt, every_head
from attnviz.core.measures import Role
from attnviz.core.writers import SIDES, HeadWeights, Side, WrittenText
from attnviz.features.measures.intervals import Moments, means_of, merge_moments, moments_of
from attnviz.features.measures.texts import TextStudy
from attnviz.features.wiring.report import HeadCircuit, Wire, WiringReport
from attnviz.features.writers.links import clear_roles, score_of, weigh

Numbers = NDArray[np.float64]

Pair = tuple[HeadAt, Side, HeadAt]


def stack_sides(text: WrittenText, places: list[HeadAt]) -> AttentionCall:
    """The sides of all heads of a layer, heads first."""
    every = [text.sides(at) for at in places]
    arrays: dict[str, Any] = {
        name: np.stack([getattr(one, name) for one in every])
        for name in ("query", "key", "value", "mask", "position", "sink")
        if getattr(every[0], name) is not None
    }
    return AttentionCall(**arrays, factor=every[0].factor, cap=every[0].cap)


def moved_by(sides: AttentionCall, scores: Any, weights: Any, side: Side, part: Any) -> Numbers:
    """How far each head moves if one side loses a part (heads, positions, head size)."""
    if side == "value":
        whole, loss = (np.linalg.norm(weights @ one, axis=(1, 2)) for one in (sides.value, part))
        return np.asarray(np.divide(loss, whole, out=np.zeros(len(whole)), where=whole > 0))
    if side == "query":
        less = part @ np.swapaxes(sides.key, 1, 2)
    else:
        less = sides.query @ np.swapaxes(part, 1, 2)
    shifts = (
        np.abs(weights - weigh(sides, scores - less * np.float32(sides.factor))).sum(axis=-1) / 2
    )
    rows = sides.mask[0].sum(axis=-1) > 1
    return np.asarray(shifts[:, rows].mean(axis=-1) if rows.any() else np.zeros(len(shifts)))


def wires_of(text: WrittenText) -> dict[Pair, float]:
    """How far each head moves if one side cannot read one earlier head."""
    heads = {n: one for n, one in enumerate(text.writers) if one.kind == "head"}
    wires: dict[Pair, float] = {}
    maps = text.attention.maps
    order = {(item.stream, layer): n for item in maps for n, layer in enumerate(item.layers)}
    for item in maps:
        for layer in item.layers:
            places = [HeadAt(item.stream, layer, head) for head in range(len(item.heads))]
            sides = stack_sides(text, places)
            # Shares that move need no double precision, and there are writers × heads × cells.
            scores = score_of(sides).astype(np.float32)
            weights = weigh(sides, scores)
            # Another stream's heads may come before any layer; in its own only earlier ones do.
            place = order[item.stream, layer]
            before = [
                n
                for n, one in heads.items()
                if one.stream != item.stream or order[one.stream, one.layer] < place
            ]
            for side in SIDES:
                parts = text.parts(item.stream, layer, side, before)
                for number, part in zip(before, parts, strict=True):
                    if not part.any():
                        continue
                    one = heads[number]
                    writer = HeadAt(one.stream, one.layer, one.head or 0)
                    shifts = moved_by(sides, scores, weights, side, part)
                    wires |= {
                        (at, side, writer): float(n) for at, n in zip(places, shifts, strict=True)
                    }
    return wires


class WireSums:
    """How far heads move, summed over texts; each text counts the same.

    Attributes:
        sums: moments, an entry for each pair in the order of `pairs`.
    """

    def __init__(self) -> None:
        self.pairs: dict[Pair, int] = {}
        self.sums: Moments = moments_of(np.empty((0, 0)))

    def add(self, shares: Mapping[Pair, float]) -> None:
        one = WireSums()
        one.pairs = {pair: place for place, pair in enumerate(shares)}
        one.sums = moments_of(np.array([list(shares.values())]))
        self.merge(one)

    def merge(self, other: WireSums) -> None:
        for pair in other.pairs:
            self.pairs.setdefault(pair, len(self.pairs))
        # If a head writes nothing in a text, the pair is missing there and nothing is added.
        places = np.array([self.pairs[pair] for pair in other.pairs], dtype=np.intp)
        there = moments_of(np.empty((0, len(self.pairs))))
        for name, array in there.items():
            array[places] = other.sums[name]
            self.sums[name] = np.pad(self.sums[name], (0, len(array) - len(self.sums[name])))
        merge_moments(self.sums, there)

    def wires(self) -> tuple[Wire, ...]:
        count, *numbers = means_of(self.sums)
        wires = []
        for (head, side, writer), texts, mean, low, high in zip(
            self.pairs, count.tolist(), *(one.tolist() for one in numbers), strict=True
        ):
            # An interval can reach below 0, which no share can: cut it there.
            ends = (max(low, 0.0), high) if texts > 1 else None
            wires.append(Wire(head, side, writer, mean, ends))
        return tuple(sorted(wires, key=lambda one: -one.moved))


class WiringStudy(TextStudy):
    """The mean wiring over texts."""

    def __init__(self) -> None:
        super().__init__()
        self._sums = WireSums()
        self._roles: dict[HeadAt, dict[str, list[Role]]] = defaultdict(lambda: defaultdict(list))

    def add(self, text: WrittenText) -> None:
        self.count(text.attention)
        self._sums.add(wires_of(text))
        for at, role in clear_roles(text.attention).items():
            self._roles[at][role.name].append(role)

    def report(self) -> WiringReport:
        roles = {}
        for at, by_name in self._roles.items():
            often = max(by_name.values(), key=len)
            if 2 * len(often) >= self.texts:
                roles[at] = max(often, key=lambda one: one.share)
        return WiringReport(
            caption=self.caption(),
            wires=self._sums.wires(),
            heads=tuple(every_head(self.example)),
            roles=roles,
            texts=self.texts,
            notes=self.notes,
            provenance=self.example.provenance,
        )


def wire_weights(heads: Sequence[HeadWeights], provenance: Provenance) -> WiringReport:
    """How far heads could read one another by their weights alone (Elhage 2021, composition).

    ‖W_side W_O W_V‖ / (‖W_side‖ ‖W_O W_V‖) with the norms' scales folded in, from 0 to 1: near
    `chance` where what the earlier head writes has nothing to do with what the side reads.
    """
    places = {one.at: one for one in heads}
    sizes = {one.at: float(np.linalg.norm(one.output @ one.value)) for one in heads}
    wires = []
    for one in heads:
        for side in SIDES:
            reads = one.after if side == "query" or one.memory is None else one.memory
            matrix = getattr(one, side)
            whole = float(np.linalg.norm(matrix))
            for at in reads:
                both = np.linalg.norm(matrix @ places[at].output @ places[at].value)
                wires.append(Wire(one.at, side, at, float(both) / (whole * sizes[at] or 1.0)))
    # By chance: the mean composition of heads of normal random numbers.
    shape = heads[0].query.shape
    generator, shares = np.random.default_rng(0), []
    for _ in range(8):
        query, value, output = (generator.normal(size=shape) for _ in range(3))
        product = output.T @ value
        most = np.linalg.norm(query) * np.linalg.norm(product)
        shares.append(np.linalg.norm(query @ product) / most)
    return WiringReport(
        caption=f"{provenance.title} · weights alone, no text",
        wires=tuple(sorted(wires, key=lambda one: -one.moved)),
        heads=tuple(places),
        roles={},
        texts=0,
        notes=provenance.notes,
        provenance=provenance,
        circuits=tuple(map(circuit_of, heads)),
        chance=float(np.mean(shares)),
    )


def copying_of(heads: Sequence[HeadWeights]) -> dict[HeadAt, float]:
    """How far each head's weights copy, for heads that read tokens."""
    scores = {one.head: one.copying for one in map(circuit_of, heads)}
    return {at: n for at, n in scores.items() if n is not None}


def circuit_of(head: HeadWeights) -> HeadCircuit:
    """What a head's weights say by themselves."""
    copying = None
    if head.embedded is not None:
        # These are the nonzero eigenvalues of the matrix from every token to every logit.
        values = np.linalg.eigvals(head.value @ head.embedded @ head.output)
        copying = float(values.sum().real / np.abs(values).sum())
    scores, outputs = (
        np.linalg.svd(first @ second.T, compute_uv=False)
        for first, second in (
            (np.linalg.qr(head.query.T)[1], np.linalg.qr(head.key.T)[1]),
            (np.linalg.qr(head.output)[1], np.linalg.qr(head.value.T)[1]),
        )
    )
    return HeadCircuit(head.at, copying, tuple(scores.tolist()), tuple(outputs.tolist()))
