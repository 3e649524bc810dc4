"""Shipped models that read one thing: their maps, and what explains them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import Query
from attnviz.models import attend_each
from attnviz.models.pocket.card import read_json
from attnviz.models.pocket.experiment import StoredExperiment
from attnviz.models.pocket.lens_inputs import value_vectors
from attnviz.models.pocket.stored import StoredModel


class OneInput(StoredModel):
    """A shipped model that reads one thing; fulfils `attnviz.models.Source` and what explains it.

    Its files beside the weights are a configuration of transformers and the weights' origin.
    """

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        self.config, self.origin = (
            read_json(folder / f"{name}.json") for name in ("config", "origin")
        )
        super().__init__(folder / "model.safetensors", self.origin["revision"], device, dtype)

    @abstractmethod
    def read(self, query: Query) -> tuple[Any, Attention]:
        """What `inputs` takes, and its maps."""

    @abstractmethod
    def experiment(self, query: Query, wanted: str | None = None) -> StoredExperiment:
        """The model with its input before it, to be run with parts of it switched off."""

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of each query in order, or why it has none."""
        return attend_each(lambda query: self.read(query)[1], queries)

    def gradients(self, query: Query, wanted: str | None = None) -> AttentionGradients:
        """The gradients of what is predicted, or of the wanted output."""
        return self.experiment(query, wanted).explained()

    def values(self, query: Query) -> ValueVectors:
        """The values at each position, through each head's slice of the output projection."""
        return value_vectors(self, *self.read(query))
