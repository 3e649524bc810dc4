"""What a source of attention is asked about: the same for one text, two texts and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["self", "pair", "cross", "co", "picture"]


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a source of attention.

    Attributes:
        text: the text; with a target, the source whose tokens are the keys.
        target: the second text; None where there is none, or where the model writes it ("cross").
        kind: "self" (a text over itself), "pair" (two texts read as one sequence), "cross" (a
            target over its source), "co" (two texts over each other) or "picture".
        picture: the bytes of the picture file.
    """

    text: str
    target: str | None = None
    kind: Kind = "self"
    picture: bytes | None = None
