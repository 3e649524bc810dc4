"""Saved maps through the same outputs as fresh ones."""

from __future__ import annotations

import sys
from pathlib import Path

from attnviz.cli.options import Options
from attnviz.cli.run import write_all
from attnviz.cli.sinks import Sinks
from attnviz.errors import InputError
from attnviz.pipeline import apply_choice, check_choice
from attnviz.storage.dumps import read_any
from attnviz.storage.matrices import read_bytes


def replay(file: str, record: str | None, options: Options) -> int:
    """Write every saved text, or the one with the given id; answers the exit status.

    Raises:
        InputError: the file cannot be read, or holds no such text.
    """
    check_choice(options.choice)
    data = sys.stdin.buffer.read() if file == "-" else read_bytes(Path(file))
    where = "stdin" if file == "-" else f"'{file}'"
    found = list(read_any(data, where))
    if not found:
        raise InputError(f"{where} holds no maps")
    if record is not None:
        ids = [attention.id for attention in found]
        found = [attention for attention in found if attention.id == record]
        if not found:
            raise InputError(f"{where} holds no text '{record}': it holds {', '.join(ids)[:200]}")
    many = len(found) > 1
    with Sinks(options, many) as sinks:
        write_all(((None, apply_choice(item, options.choice)) for item in found), sinks, options)
        sinks.finish()
    return 0
