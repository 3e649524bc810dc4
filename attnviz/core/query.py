"""What a source of attention is asked about: texts, a picture or a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

Kind = Literal["self", "pair", "cross", "co", "picture", "recording"]
ALL_OUTPUTS = "all"
"""What to explain where it is every token that is predicted from those before it."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture as it is to be read.

    Attributes:
        image: upright, in red, green and blue.
        size: height and width in pixels to read it in; None: as the model was trained.
        patch: the patch that attends ("ROW,COLUMN"; None: the mean over all), where a model in
            windows gives one row only; others give every row.
        lens: what the answer will be seen through; all lenses but "raw" need every row.
        more: pictures that are read behind the first, with a text.
        frames: True where all of them are one video's, in order.
    """

    image: Image
    size: tuple[int, int] | None = None
    patch: str | None = None
    lens: str = "raw"
    more: tuple[Image, ...] = ()
    frames: bool = False

    @property
    def images(self) -> tuple[Image, ...]:
        """Every picture, in order."""
        return self.image, *self.more


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A part of a recording as it is to be heard.

    Attributes:
        samples: float32 of shape (samples,), one channel.
        rate: samples a second.
        start: where the part begins in the file, in seconds, of which there are `total`.
        encoder: whether the frames are to attend to each other, not a text to them.
        ended: whether the decoder reads the token that ends the text, too.
        language: the code or name of what is spoken; None: the model says.
        task: "transcribe" (None) or, into English, "translate".
        notes: what was done to it.
    """

    samples: NDArray[np.float32]
    rate: int
    start: float
    total: float
    encoder: bool = False
    ended: bool = False
    language: str | None = None
    task: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a source of attention.

    Attributes:
        text: the text; with a target, the source whose tokens are the keys; with a picture, what is
            read behind it, empty for a picture alone.
        target: the second text; None where there is none, or where the model writes it ("cross").
        kind: "self" (a text over itself), "pair" (two texts read as one sequence), "cross" (a
            target over its source), "co" (two texts over each other), "picture" or "recording" (a
            picture or a recording over itself, or its text over it).
        picture: the picture of a query of that kind; `recording` likewise, with the text that is
            spoken in it, empty where the model is to write it.
    """

    text: str
    target: str | None = None
    kind: Kind = "self"
    picture: Picture | None = None
    recording: Recording | None = None
