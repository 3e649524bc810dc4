"""A text, or a pair, as a model is about to read it, and what becomes of what it captures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnviz.core.attention_map import Attention, Token
from attnviz.models.hugging_face.capture.capture import Captured
from attnviz.models.hugging_face.capture.exact_links import Hidden
from attnviz.models.hugging_face.capture.maps import as_map, notes_of, projections_of, with_routes
from attnviz.models.hugging_face.load.tasks import Task, show_decision


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What one pass needs, and what frames what comes out of it.

    Attributes:
        part: the model, or the part of it that reads.
        inputs: lists of numbers by name.
        tokens: of each text.
        axes: for each stream wanted, the texts of its queries and keys.
        attention: where it comes from and what was read, still without maps.
        hidden: for a stream, what does not count among the strongest links of a pooled map.
        decided: the text about whose tokens the model's head may decide something.
    """

    part: Any
    inputs: Mapping[str, Sequence[int]]
    tokens: Mapping[str, tuple[Token, ...]]
    axes: Mapping[str, tuple[str, str]]
    attention: Attention
    hidden: Mapping[str, Hidden] = field(default_factory=dict)
    decided: str | None = None

    @property
    def sides(self) -> dict[str, tuple[int, int]]:
        """How many queries and keys each stream has."""
        return {
            stream: (len(self.tokens[queries]), len(self.tokens[keys]))
            for stream, (queries, keys) in self.axes.items()
        }

    def finished(self, captured: Sequence[Captured], task: Task | None, output: Any) -> Attention:
        """The attention with its maps, notes on them, and what the model decided.

        Args:
            captured: from the pass.
            task: what the model's head decides, if it has one that does.
            output: what the model gave out; None where nobody heard it.
        """
        maps = tuple(as_map(item, self.tokens, *self.axes[item.stream]) for item in captured)
        routes = [item.route for item in captured]
        provenance = with_routes(self.attention.provenance, routes)
        notes = (*provenance.notes, *notes_of(captured, self.sides))
        attention = replace(
            self.attention,
            maps=maps,
            provenance=replace(provenance, notes=notes),
            projections=projections_of(maps, captured),
        )
        if task is None or output is None or self.decided is None:
            return attention
        return show_decision(attention, task, output, self.tokens[self.decided])
