"""Questions to a source of attention: about texts, a picture or a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

Kind = Literal["self", "pair", "cross", "co", "picture", "recording"]
ALL_OUTPUTS = "all"
"""The value that explains every token that the model predicts from those before it."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture, and how to read it.

    Attributes:
        image: upright, in red, green and blue.
        size: height and width in pixels for the model; None: its training size.
        patch: the patch that attends ("ROW,COLUMN"; None: the mean over all). Only a model with
            windows needs it, which gives one row; others give all.
        lens: the lens for the answer; all but "raw" need every row.
        more: further pictures, with a text.
        frames: True if the pictures are the frames of a video.
    """

    image: Image
    size: tuple[int, int] | None = None
    patch: str | None = None
    lens: str = "raw"
    more: tuple[Image, ...] = ()
    frames: bool = False

    @property
    def images(self) -> tuple[Image, ...]:
        return self.image, *self.more


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A part of a recording, and how to read it.

    Attributes:
        samples: float32 of shape (samples,), one channel.
        rate: samples per second.
        start: the beginning of the part in the file, in seconds; `total`: the file's length.
        encoder: True for the attention of the frames to each other, not of a text to them.
        ended: whether the decoder also reads the token that ends the text.
        language: code or name of the spoken language; None: the model detects it.
        task: "transcribe" (also None) or "translate" (into English).
        notes: notes on its preparation.
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
        rendered: whether the text is a conversation that the chat template has written.
    """

    text: str
    target: str | None = None
    kind: Kind = "self"
    picture: Picture | None = None
    recording: Recording | None = None
    rendered: bool = False
