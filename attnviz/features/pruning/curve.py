"""The effect of each head that is off, and the loss as heads are switched off one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention
from attnviz.core.effects import (
    HOW,
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    effects_of,
    log_probabilities,
)
from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.measures import about_effects
from attnviz.core.records import dataclass, replace
from attnviz.features.ablate.parts import each_part, replacements
from attnviz.features.corpus.results import CorpusReport, PruneCurve, gives_order
from attnviz.features.experiments.texts import open_experiment
from attnviz.models import Source
from attnviz.runs.engines.shards import Engine
from attnviz.runs.many_texts import AttendChunk, Chunk, Outcome, Record, chunk_name, with_shards
from attnviz.runs.pipeline import NameOfBlocks, Result, query_of, result_of
from attnviz.storage.texts import Text, chunks

POINTS = 24  # steps of a curve from no head to all
SHUFFLES = 5  # orders by chance
CURVE_TEXTS = 100  # texts that a curve is drawn of at most
ENOUGH = 10  # texts that are split into those that give the order and those of the curve
Instead = Literal["zero", "mean"]  # what heads put out that are off


def refuse_long(attention: Attention, **_: object) -> Attention:
    """Refuse a text that is too long for a pass for each head, before its own pass."""
    length = len(attention.main.key_tokens)
    raise InputError(
        f"--effect needs a pass for each head, too long for a text of {length:,} tokens: give one "
        "of at most 1,024, or leave --effect out"
    )


@dataclass(frozen=True, slots=True)
class EffectChunk(AttendChunk):
    """The attention of a chunk, with the exact effect of each selected head."""

    by: Instead = "zero"
    size: ClassVar[int] = 16  # a text takes long, and workers share out chunks
    name: ClassVar[NameOfBlocks] = staticmethod(refuse_long)

    def open(self) -> Source:
        return self.source_for(self.command, with_head="exact")

    def __call__(self, chunk: Chunk) -> Iterator[Outcome]:
        """The result of each record, or why it has none, made when it is asked for."""
        for record, outcome in zip(chunk, AttendChunk.__call__(self, chunk), strict=True):
            if isinstance(outcome, AttnvizError):
                yield outcome
            else:
                yield result_of(record, partial(self._with_effects, outcome))

    def _with_effects(self, result: Result, text: Text) -> Result:
        experiment, outputs, instead = self.experiment(text)
        places = {
            (item.stream, at, n) for item in result.maps for at in item.layers for n in item.heads
        }
        heads = {
            name: change
            for _, change in each_part(experiment.attention, "heads")
            for at in change.heads
            if (name := (at.stream, at.layer, str(at.head))) in places
        }
        effects = effects_of(experiment, [*heads.values()], instead).sum(axis=1)
        meaning = f"log p of {outputs}, with the head minus without it (off: {HOW[self.by]})"
        before = result.provenance
        provenance = replace(
            before,
            notes=tuple(dict.fromkeys((*before.notes, *experiment.attention.provenance.notes))),
            settings={**before.settings, "effect": meaning},
        )
        of_heads = dict(zip(heads, effects.tolist(), strict=True))
        return replace(result, provenance=provenance, effects=of_heads)

    def experiment(self, text: Text) -> tuple[Experiment, str, HeadOutputs | None]:
        """An experiment on a text, its outputs in words, and what replaces heads that are off.

        The outputs are all tokens that the model predicts from earlier ones, else a single one.
        """
        source = self.open()
        experiment = open_experiment(source, query_of(source, text, self.command))
        output, outputs = experiment.outputs[0], "the likeliest output"
        if output.row == output.position:
            outputs = "its last word where it is masked"
        elif output.position is not None:
            outputs = f"every token of the {experiment.attention.main.query_side}"
        if self.by == "zero":
            return experiment, outputs, None
        own = [experiment.head_outputs()]
        return experiment, outputs, replacements(self.by, own, experiment.attention)


@dataclass(frozen=True, slots=True)
class PruneChunk:
    """The losses of a chunk while heads are switched off in some orders; it can be pickled."""

    work: EffectChunk
    orders: Sequence[Sequence[HeadAt]]
    off: Sequence[int]

    def __call__(self, chunk: Chunk) -> list[tuple[NDArray[np.float64], int]]:
        """The losses, (orders, points), and the count of outputs of each text that can be read."""
        points = [tuple(order[:count]) for order in self.orders for count in self.off]
        # With no head or all heads off, all orders are the same.
        same = {frozenset(heads): Intervention(heads) for heads in points}
        results = []
        for record in chunk:
            if not isinstance(record, Text):
                continue
            try:
                experiment, _, instead = self.work.experiment(record)
            except InputError:  # its effects failed too, and a note said so
                continue
            losses = -log_probabilities(experiment, list(same.values()), instead).sum(axis=1)
            of_change = dict(zip(same, losses.tolist(), strict=True))
            table = np.array([of_change[frozenset(heads)] for heads in points])
            shape = len(self.orders), len(self.off)
            results.append((table.reshape(shape), len(experiment.outputs)))
        return results


def keep_for_curve(records: Iterable[Record], store: list[Record]) -> Iterator[Record]:
    """The records; those that a pruning curve may need are also added to `store`."""
    for number, record in enumerate(records):
        if len(store) < ENOUGH // 2 + CURVE_TEXTS and (number < ENOUGH or not gives_order(number)):
            store.append(record)
        yield record


def curve_of(
    work: EffectChunk,
    records: Sequence[Record],
    report: CorpusReport,
    orders_of: Callable[..., tuple[Mapping[str, tuple[HeadAt, ...]], int]],
    engine: Engine,
) -> PruneCurve:
    """The loss per output as heads are switched off: by effect, by confidence and by chance.

    From `ENOUGH` texts on, half of them give the order, and up to `CURVE_TEXTS` others the losses.
    `orders_of` returns the orders by that half or by all texts, and the count of these texts.

    Raises:
        InputError: no text is left for the curve.
    """
    half = report.texts >= ENOUGH
    if half:  # of the first ones both halves were kept
        first = [record for place, record in enumerate(records[:ENOUGH]) if not gives_order(place)]
        records = [*first, *records[ENOUGH:]]
    by, texts = orders_of(half=half)
    names, orders = [*by], [*by.values()]
    heads = sorted(orders[0], key=lambda at: (at.stream, at.layer, at.head))
    for seed in range(SHUFFLES):
        order = np.random.default_rng(seed).permutation(len(heads))
        names.append("chance")
        orders.append(tuple(heads[place] for place in order))
    steps = np.linspace(0, len(heads), min(POINTS, len(heads)) + 1)
    off = tuple(np.unique(steps.round().astype(int)).tolist())
    task = PruneChunk(work, orders, off)
    losses, outputs, read = np.zeros((len(orders), len(off))), 0, 0
    for _, results in with_shards(
        task, chunks(records[:CURVE_TEXTS], work.size), engine, chunk_name
    ):
        if isinstance(results, AttnvizError):
            raise results
        for table, count in results:
            losses += table
            outputs += count
            read += 1
    if not outputs:
        raise InputError("no text is left to draw the curve of")
    how = f"order of {texts} texts, loss of {read} others"
    if not half:
        how = (
            f"order and loss of the same {read} texts: the order by effect looks better than it is"
        )
    about = about_effects(report.provenance)
    losses /= outputs
    return PruneCurve(report.caption, tuple(names), tuple(orders), off, losses, how, about)
