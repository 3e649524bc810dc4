"""Questions to a source of attention: about texts, a picture or a recording."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from attnviz.core.records import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from attnviz.core.attention_map import Attention
Kind = Literal["self", "pair", "cross", "picture", "recording"]
ALL_OUTPUTS = "all"  # explains every token that the model predicts from those before it


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str  # its text; of content in parts, their texts joined by lines
    given: str = ""  # all of it as JSON: content in parts, thinking, calls of tools

    @property
    def turn(self) -> dict[str, Any]:
        """What a chat template reads: content as one text, arguments of calls as objects."""
        turn = {**json.loads(self.given or "{}"), "role": self.role, "content": self.content}
        for call in turn.get("tool_calls") or ():
            about = call.get("function", call) if isinstance(call, dict) else {}
            if isinstance(about, dict) and isinstance(about.get("arguments"), str):
                with suppress(ValueError):  # text that is no JSON stays a text
                    about["arguments"] = json.loads(about["arguments"])
        return turn


Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture, and how to read it."""

    image: Image  # upright, in red, green and blue
    size: tuple[int, int] | None = None  # height and width in pixels; None: as trained
    # the patch that attends ("ROW,COLUMN") in a model with windows; None: the mean over all
    patch: str | None = None
    lens: str = "raw"  # the lens for the answer; all but "raw" need every row
    more: tuple[Image, ...] = ()  # further pictures, with a text
    frames: bool = False  # True if the pictures are the frames of a video

    @property
    def images(self) -> tuple[Image, ...]:
        return self.image, *self.more


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A part of a recording, and how to read it."""

    samples: NDArray[np.float32]  # float32 of shape (samples,), one channel
    rate: int  # samples per second
    start: float  # the beginning of the part in the file, in seconds; `total`: the file's length
    total: float
    encoder: bool = False  # attention of frames to each other, not of a text to them
    ended: bool = False  # whether the decoder also reads the token that ends the text
    language: str | None = None  # code or name of the spoken language; None: the model detects it
    task: str | None = None  # "transcribe" (also None) or "translate" (into English)
    notes: tuple[str, ...] = ()  # notes on its preparation


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a source of attention."""

    text: str  # the text; with a target its source (keys); with a picture what follows it, or empty
    target: str | None = None  # the second text; None: none, or the model writes it ("cross")
    # "self" (a text over itself), "pair" (two texts read as one sequence), "cross" (a target over
    # its source; in co-attention each over the other), "picture" or "recording" (a picture or a
    # recording over itself, or its text over it)
    kind: Kind = "self"
    # of a query of that kind; `recording` with its spoken text, empty if the model writes it
    picture: Picture | None = None
    recording: Recording | None = None
    messages: Messages = ()  # a conversation, which the chat template writes instead of the text
    tools: str = ""  # the tools that it may call, as JSON
    # Where every head is measured: what labels the tokens of a text too long for whole maps, which
    # is then read in blocks of rows (see `Attention.in_blocks`)
    in_blocks: Callable[[Attention], Attention] | None = field(default=None, compare=False)
    rendered: bool = False  # whether the text is a conversation that the chat template has written
