"""Standard input, line by line, and whether more of it is there already."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from attnviz.texts.streams import Lines, open_lines, unbroken

_open: list[Lines] = []
"""The lines of stdin once they are read; there is one stdin."""


def stdin_lines() -> Iterator[bytes]:
    """The lines of stdin, unpacked where they are gzip, none later than it comes.

    Raises:
        BrokenFileError: it cannot be read to its end.
    """
    buffer: Any = sys.stdin.buffer
    lines = open_lines(getattr(buffer, "raw", buffer), "stdin")
    _open[:] = [lines] if isinstance(lines, Lines) else []
    yield from unbroken(lines, "stdin")


def waiting() -> bool:
    """Whether a next line can be had without waiting for a pipe or a keyboard.

    True for files, gzip and systems that cannot tell; also where only a part of a line has come.
    """
    if not _open or _open[0].ready:
        return True
    import select

    try:
        return bool(select.select([sys.stdin.buffer], [], [], 0)[0])
    except (OSError, ValueError):
        return True
