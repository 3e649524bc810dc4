"""A file that is no place but a stream: for writers that insist on a file."""

from __future__ import annotations

import io
from typing import Any


class Outbox(io.RawIOBase):
    """Collects what is written to it until it is taken."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.place = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes; answers how many."""
        part = bytes(data)
        self.parts.append(part)
        self.place += len(part)
        return len(part)

    def tell(self) -> int:
        """How many bytes have been written since the beginning."""
        return self.place

    def take(self) -> bytes:
        """The bytes written since the last time."""
        taken = b"".join(self.parts)
        self.parts.clear()
        return taken
