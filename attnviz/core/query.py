"""What a source of attention is asked about: the same for one text and for two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["self", "pair", "cross", "co"]


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a source of attention.

    Attributes:
        text: the text; with a target, the source whose tokens are the keys.
        target: the second text; None where there is none, or where the model writes it ("cross").
        kind: "self" (a text over itself), "pair" (two texts read as one sequence), "cross" (a
            target over its source) or "co" (two texts over each other).
    """

    text: str
    target: str | None = None
    kind: Kind = "self"
