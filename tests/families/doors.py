"""How each kind of model is tried: an example for its copy, its folder, and the reading of it.

A new kind is a row here, with a module of three functions beside `texts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.families import senses, texts
from tests.families.copies import Copy
from tests.families.rows import Reading


@dataclass(frozen=True)
class Door:
    """How a kind of model is tried."""

    example: Callable[[Any], dict[str, Any]]  # inputs of a model, tensors by name
    save: Callable[[Copy, Path], None]  # saves a copy, with what reads its inputs, to a folder
    read: Callable[[Copy, Path], Reading]  # reads that folder by attnviz's public doors
    make: Callable[[str], Copy] | None = None  # makes a copy by a type's name; None: `make_copy`


DOORS: dict[str, Door] = {
    "text": Door(texts.example, texts.save, texts.read),
    "pair": Door(texts.pair_example, texts.save, texts.read),
    **{
        kind: Door(senses.example, senses.save, read, senses.make)
        for kind, read in (
            ("picture", senses.read_picture),
            ("video", senses.read_film),
            ("picture-text", senses.read_picture_text),
            ("audio", senses.read_sound),
        )
    },
}
"""By kind; what has no row is listed as not tried."""
