"""The outputs of a transformers model that are explained, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.effects import PredictedToken, label_of, leave_out, note_outputs
from attnviz.core.errors import ModelError
from attnviz.core.lens_inputs import AttentionGradients, rows_read
from attnviz.core.records import dataclass
from attnviz.features.experiments.interventions import upcast_half
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.family import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnviz.core.attention_map import Attention

Score = Callable[[Any], Any]  # makes one number of a model's logits, whose gradients are taken
ONE_SCORE = "the model gives one score, whose sigmoid is p here, as rerankers are trained"


@dataclass(frozen=True, slots=True, eq=False)
class ExperimentRequest:
    """A model, its inputs and what to explain."""

    model: Any  # the model, with its head
    inputs: Mapping[str, Any]  # tensors, a batch of one
    encoding: EncodedQuery  # the query of these inputs; the maps are those of its part
    outputs: Callable[[Any], tuple[PredictedToken, ...]]  # the outputs, from logits
    spell: Callable[[int], str]  # from a number to the name of a choice
    task: Task | None = None  # of its head
    write: Callable[[], str] | None = None  # generates a text; None: the model writes nothing


class ExplainedOutputs:
    """The outputs of the unchanged model, and their gradients by each attention weight."""

    attention: Attention
    slopes: Callable[[Score], tuple[NDArray[np.floating], ...]]

    def __init__(self, request: ExperimentRequest, logits: Any) -> None:
        self.request = request
        self.outputs = request.outputs(logits)
        self.kind = getattr(request.model.config, "problem_type", None)
        self.rows = self.rows_of(logits.detach())
        self.is_choice = self.kind != "regression"
        self.is_single = self.rows.shape[2] == 1
        self.attention = self.note(self.attention)

    def note(self, attention: Attention) -> Attention:
        """The attention with notes on the outputs."""
        if self.is_single and self.is_choice:
            attention = attention.with_maps(attention.maps, notes=(ONE_SCORE,))
        return note_outputs(attention, self.outputs)

    def rows_of(self, logits: Tensor, first: int = 0) -> Tensor:
        """The logits of each output, (batch, outputs, choices); a classifier has one row.

        The rows begin at a position, `first`, and outputs before it are left out.
        """
        rows = logits[:, None] if logits.ndim == 2 else logits
        return upcast_half(
            rows[:, [output.row - first for output in self.outputs if output.row >= first]]
        )

    def chances(self, rows: Tensor) -> Tensor:
        """Log p of each output's choices, from their logits."""
        from torch.nn import functional

        if not self.is_choice:
            raise ModelError("the model predicts a number, which has no probability to explain")
        tags = self.is_single or self.kind == "multi_label_classification"
        rows = leave_out(rows, self.outputs)
        return functional.logsigmoid(rows) if tags else rows.log_softmax(-1)

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        return self.slopes(self._log_p)

    def _log_p(self, logits: Any) -> Any:
        places = range(len(self.outputs)), [output.number for output in self.outputs]
        return self.chances(self.rows_of(logits))[0][places].sum()

    def explain_first(self) -> AttentionGradients:
        output = self.outputs[0]
        gradients = self.slopes(lambda logits: self.rows_of(logits)[0, 0, output.number])
        rows = rows_read(gradients[-1][-1]) if output.position is None else (output.row,)
        chance = None
        if self.is_choice:
            chance = self.chances(self.rows)[0, 0, output.number].exp().item()
        label = label_of(output, self.attention.main.query_tokens)
        return AttentionGradients(self.attention, gradients, rows, label, chance)

    def spell(self, number: int) -> str:
        return self.request.spell(number)
