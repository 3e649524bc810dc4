"""A loaded model and how to read it."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.core import attention_map, errors, writers
from attnviz.core.records import dataclass, field
from attnviz.models import Source
from attnviz.models.hugging_face.capture.region import ALL_TOKENS, Region
from attnviz.models.hugging_face.load.family import UNLIMITED, Family, Task


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoadedModel(Source):
    """A pretrained model and its tokenizer."""

    name: str  # as the user asked for it
    model: Any  # the transformers model, on its device, in evaluation mode
    tokenizer: Any
    family: Family
    limit: int | None  # most tokens that it reads
    provenance: attention_map.Provenance  # of the model; each text adds its own facts
    can_generate: bool = False  # whether it has a trained language-model head
    max_new_tokens: int | None = None  # None: it writes only a missing target
    chat_template: bool = False  # whether texts are read as the user's turn of a conversation
    task: Task | None = None  # what its head decides
    region: Region = ALL_TOKENS
    # how `generate` is told the language of the target, if the model has codes of languages
    first_token: Mapping[str, int] = field(default_factory=dict)

    @property
    def joins_pairs(self) -> bool:
        """Whether it reads two texts as one sequence."""
        return self.family == "encoder-only" or self.task is not None

    @property
    def vocabulary(self) -> int:
        """How many numbers of tokens the model knows."""
        try:
            return len(self.model.get_input_embeddings().weight)
        except (AttributeError, NotImplementedError):  # transformers does not know every family's
            config = self.model.config.get_text_config()
            sizes = (getattr(config, name, None) for name in ("text_vocab_size", "vocab_size"))
            return next((size for size in sizes if size), UNLIMITED)

    @property
    def encoder(self) -> Any:
        """The encoder of an encoder–decoder; the whole where the encoder cannot run alone."""
        part = self.model.get_encoder()
        return part if hasattr(part, "config") else self.model

    def head_weights(self) -> tuple[list[writers.HeadWeights], attention_map.Provenance]:
        """Refuse: only the network inside knows maps of heads by name."""
        raise errors.UsageError(
            f"--weights-only needs a model inside or a checkpoint that numpy runs, and "
            f"'{self.name}' is neither: give a text"
        )

    def tensors(self, inputs: Mapping[str, Sequence[int]], part: Any) -> dict[str, Any]:
        """The inputs that `part` takes, as a batch of one on the model's device."""
        import torch

        names = input_names(part)
        tensors = {
            name: torch.tensor([list(row)], device=self.model.device)
            for name, row in inputs.items()
            if name in names
        }
        return with_boxes(tensors, names)


def placed_inputs(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a processor has made, on a model's device; numbers in its precision."""
    device, dtype = model.device, model.dtype

    def place(row: Any) -> Any:
        if isinstance(row, list):  # of pictures with parts of several sizes
            return [place(one) for one in row]
        numbers = hasattr(row, "is_floating_point")
        return row.to(device, dtype if row.is_floating_point() else row.dtype) if numbers else row

    return {name: place(row) for name, row in inputs.items()}


BOXES = "bbox"


def with_boxes(tensors: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The inputs, for models of forms with boxes of size 0: a text stands in no place of a page."""
    if BOXES in names and BOXES not in tensors and "input_ids" in tensors:
        ids = tensors["input_ids"]
        return {**tensors, BOXES: ids.new_zeros((*ids.shape, 4))}
    return tensors


def input_names(part: Any) -> set[str]:
    """The inputs that a model, or a part of one, takes by name."""
    forward = getattr(part, "forward", None)  # what numpy runs has none
    own = () if forward is None else inspect.signature(forward).parameters
    return {*own, "input_ids", "attention_mask"}
