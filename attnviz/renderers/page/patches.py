"""A picture whose patches are tokens."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnviz.attention_map import Token
from attnviz.errors import InputError

_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


@dataclass(frozen=True, slots=True)
class Patches:
    """A picture and where its patches are among the tokens.

    Attributes:
        image: the picture's file (PNG, JPEG or WebP) as bytes, cut to what the model saw.
        rows: patches from top to bottom.
        columns: patches from left to right.
        first: position of the token of the top left patch; the others follow row by row.
    """

    image: bytes
    rows: int
    columns: int
    first: int = 0

    def as_json(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """What the page is told about an axis.

        Raises:
            InputError: there are fewer tokens than patches, or the bytes are no known picture.
        """
        if self.first + self.rows * self.columns > len(tokens):
            raise InputError(
                f"{self.rows} × {self.columns} patches from token {self.first} on, "
                f"but there are {len(tokens)} tokens"
            )
        kind = next((kind for mark, kind in _TYPES.items() if self.image.startswith(mark)), None)
        if kind is None:
            raise InputError("the picture is neither PNG, JPEG nor WebP")
        data = base64.b64encode(self.image).decode("ascii")
        return {
            "image": f"data:{kind};base64,{data}",
            "rows": self.rows,
            "columns": self.columns,
            "first": self.first,
        }
