"""A checkpoint that numpy runs, with a query; what numpy cannot do is asked of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.core.effects import Experiment, HeadOutputs, Intervention, note_outputs
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.core.query import Query
from attnviz.features.experiments.kernel import ModelExperiment
from attnviz.features.experiments.network import NetworkExperiment
from attnviz.features.targets.outputs import check_head, choose_outputs, no_head, spell_choice
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.inputs.generation import continue_text
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.light import network

MANY_LINKS = 1e11
"""Weights times tokens of links that are cut, from which on torch is faster."""


def open_light(model: LightModel, query: Query, target: str | None) -> Experiment:
    check_head(model, query.kind)
    encoding = encode(model, query)
    reason = model.refuse([encoding])
    if model.task and model.task.kind == "number":
        reason = reason or "its classifier predicts a number"
    if reason:
        experiment: Experiment = model.whole(reason).experiment(query, target)
        return experiment
    if model.head is None:
        raise no_head(model.name, model.kind)
    return LightExperiment(model, query, encoding, target)


class LightExperiment(NetworkExperiment):
    """A model that numpy runs, and a text; gradients are asked of transformers."""

    model: LightModel

    def __init__(
        self, model: LightModel, query: Query, encoding: EncodedQuery, target: str | None
    ) -> None:
        record = network.Record()
        attention, states = model.run(encoding, record)
        super().__init__(model, encoding.inputs, attention)
        self.unchanged_passes, self.query, self.target = record, query, target
        first = model.head is not None and model.head.first
        scores = model.scores(model.weights, states[None, 0] if first else states[None])
        self.outputs = choose_outputs(model, encoding, scores, target)
        self.attention = note_outputs(self.attention, self.outputs)

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        model, links = self.model, sum(bool(one.links) for one in changes)
        # On torch a causal text is run again from a link's query on, here from its start.
        slow = links * len(self.feed["input_ids"]) * model.numbers > MANY_LINKS
        if slow and model.sizes.causal and not model.below and not model.whole.is_forced:
            return self._whole(f"{links} links are many").run(changes, instead)
        return super().run(changes, instead)

    def chances(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Log p of each choice (…, choices) by its logits; of tags, each has its own."""
        if self.model.task and self.model.task.kind == "tags":
            chances: NDArray[np.floating] = -np.logaddexp(0, -logits)
            return chances
        return super().chances(logits)

    def spell(self, number: int) -> str:
        return spell_choice(self.model, number)

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        if not self.model.can_generate:
            return None
        return continue_text(replace(self.model, watch=self._edit([change], instead)), self.feed)

    def gradients(self) -> tuple[NDArray[np.floating[Any]], ...]:
        return self._whole("gradients need torch").gradients()

    def output_gradients(self) -> HeadOutputs:
        return self._whole("gradients need torch").output_gradients()

    def explain_first(self) -> AttentionGradients:
        return self._whole("gradients need torch").explain_first()

    def _whole(self, reason: str) -> ModelExperiment:
        whole = self.model.whole(reason).experiment(self.query, self.target)
        whole.outputs = self.outputs
        return cast("ModelExperiment", whole)
