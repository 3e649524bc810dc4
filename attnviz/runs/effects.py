"""Heads switched off in many texts: each by itself, and one after another until none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.accumulators import gives_order
from attnviz.analyses.effects.ablation import each_part, replacements
from attnviz.analyses.effects.links import effects_of
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.effects import (
    HOW,
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    PruneCurve,
    log_probabilities,
)
from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.measures import about_effects
from attnviz.models import Source
from attnviz.models.lens import open_experiment
from attnviz.runs.engines.shards import Engine
from attnviz.runs.many_texts import (
    AttendChunk,
    Chunk,
    Outcome,
    Record,
    chunk_name,
    with_shards,
)
from attnviz.runs.pipeline import Result, made_of, query_of
from attnviz.storage.texts import Text, chunks

Instead = Literal["zero", "mean"]
"""What heads put out that are off."""
POINTS = 24
"""Steps of a curve from no head to all."""
SHUFFLES = 5
"""Orders by chance."""
CURVE_TEXTS = 100
"""Texts that a curve is drawn of at most."""
ENOUGH = 10
"""Texts that are split into those that give the order and those of the curve."""


@dataclass(frozen=True, slots=True)
class EffectChunk(AttendChunk):
    """The attention of a chunk with the exact effect of each head that is seen."""

    by: Instead = "zero"
    size: ClassVar[int] = 16  # a text takes long, and workers share out chunks

    def open(self) -> Source:
        """The source with what predicts."""
        return self.source_for(self.command, with_head=True)

    def __call__(self, chunk: Chunk) -> Iterator[Outcome]:
        """The result of each record, or why it has none, made when it is asked for."""
        for record, found in zip(chunk, AttendChunk.__call__(self, chunk), strict=True):
            if isinstance(found, AttnvizError):
                yield found
            else:
                yield made_of(record, partial(self._measured, found))

    def _measured(self, found: Result, text: Text) -> Result:
        experiment, explained, instead = self.experiment(text)
        shown = {
            (item.stream, at, n) for item in found.maps for at in item.layers for n in item.heads
        }
        heads = {
            name: change
            for _, change in each_part(experiment.attention, "heads")
            for at in change.heads
            if (name := (at.stream, at.layer, str(at.head))) in shown
        }
        effects = effects_of(experiment, [*heads.values()], instead).sum(axis=1)
        told = f"log p of {explained}, with the head minus without it (off: {HOW[self.by]})"
        before = found.provenance
        provenance = replace(
            before,
            notes=tuple(dict.fromkeys((*before.notes, *experiment.attention.provenance.notes))),
            settings={**before.settings, "effect": told},
        )
        of_heads = dict(zip(heads, effects.tolist(), strict=True))
        return replace(found, provenance=provenance, effects=of_heads)

    def experiment(self, text: Text) -> tuple[Experiment, str, HeadOutputs | None]:
        """A text before the model, what of it is explained, and what heads put out instead.

        That is every token which the model can predict from those before it, else one output.
        """
        experiment = open_experiment(self.open(), query_of(text, self.command))
        output, explained = experiment.outputs[0], "the likeliest output"
        if output.row == output.position:
            explained = "its last word where it is masked"
        elif output.position is not None:
            explained = f"every token of the {experiment.attention.main.query_side}"
        if self.by == "zero":
            return experiment, explained, None
        own = [experiment.head_outputs()]
        return experiment, explained, replacements(self.by, own, experiment.attention)


@dataclass(frozen=True, slots=True)
class PruneChunk:
    """A chunk's losses while heads are switched off in some orders; it can be pickled."""

    work: EffectChunk
    orders: Sequence[Sequence[HeadAt]]
    off: Sequence[int]

    def __call__(self, chunk: Chunk) -> list[tuple[NDArray[np.float64], int]]:
        """Of each text that can be read the losses, (orders, points), and how many outputs."""
        points = [tuple(order[:count]) for order in self.orders for count in self.off]
        # Without any head, and with all, the orders are one.
        same = {frozenset(heads): Intervention(heads) for heads in points}
        found = []
        for record in chunk:
            if not isinstance(record, Text):
                continue
            try:
                experiment, _, instead = self.work.experiment(record)
            except InputError:  # the effects of this text have failed too, which was said
                continue
            losses = -log_probabilities(experiment, list(same.values()), instead).sum(axis=1)
            of_change = dict(zip(same, losses.tolist(), strict=True))
            table = np.array([of_change[frozenset(heads)] for heads in points])
            shape = len(self.orders), len(self.off)
            found.append((table.reshape(shape), len(experiment.outputs)))
        return found


def kept_for_curve(records: Iterable[Record], kept: list[Record]) -> Iterator[Record]:
    """The records as they come; those that a curve may be drawn of are kept."""
    for number, record in enumerate(records):
        if len(kept) < ENOUGH // 2 + CURVE_TEXTS and (number < ENOUGH or not gives_order(number)):
            kept.append(record)
        yield record


def curve_of(
    work: EffectChunk,
    kept: Sequence[Record],
    report: CorpusReport,
    orders_of: Callable[..., tuple[Mapping[str, tuple[HeadAt, ...]], int]],
    engine: Engine,
) -> PruneCurve:
    """The loss per output as heads are switched off: by effect, by confidence and by chance.

    Of enough texts half give the order, and of the others at most `CURVE_TEXTS` the losses.
    `orders_of` gives the orders, of that half or of all texts, and how many texts that were.

    Raises:
        InputError: no text is left for the curve.
    """
    half = report.texts >= ENOUGH
    if half:  # of the first ones both halves were kept
        first = [record for place, record in enumerate(kept[:ENOUGH]) if not gives_order(place)]
        kept = [*first, *kept[ENOUGH:]]
    by, texts = orders_of(half=half)
    names, orders = [*by], [*by.values()]
    heads = sorted(orders[0], key=lambda at: (at.stream, at.layer, at.head))
    for seed in range(SHUFFLES):
        shuffled = np.random.default_rng(seed).permutation(len(heads))
        names.append("chance")
        orders.append(tuple(heads[place] for place in shuffled))
    steps = np.linspace(0, len(heads), min(POINTS, len(heads)) + 1)
    off = tuple(np.unique(steps.round().astype(int)).tolist())
    task = PruneChunk(work, orders, off)
    losses, outputs, read = np.zeros((len(orders), len(off))), 0, 0
    for _, found in with_shards(task, chunks(kept[:CURVE_TEXTS], work.size), engine, chunk_name):
        if isinstance(found, AttnvizError):
            raise found
        for table, count in found:
            losses += table
            outputs += count
            read += 1
    if not outputs:
        raise InputError("no text is left to draw the curve of")
    told = f"order of {texts} texts, loss of {read} others"
    if not half:
        told = f"order and loss of the same {read} texts, which flatters the order by effect"
    about = about_effects(report.provenance)
    losses /= outputs
    return PruneCurve(report.caption, tuple(names), tuple(orders), off, losses, told, about)
