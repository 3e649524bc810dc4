"""Saved maps through the same outputs as fresh ones, one by one."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path

from attnviz.cli.options import Options
from attnviz.cli.run import write_all
from attnviz.cli.sinks import Sinks
from attnviz.errors import InputError
from attnviz.pipeline import apply_choice, check_choice
from attnviz.storage.saved import Opener, open_saved, openers, pick, read_all


def replay(file: str, record: str | None, options: Options) -> int:
    """Write every saved text, or the one of an id or a number; answers the exit status.

    Raises:
        InputError: the file cannot be read, or holds no such text.
    """
    check_choice(options.choice)
    where = "stdin" if file == "-" else f"'{file}'"
    files: list[Opener] = [_from_stdin()] if file == "-" else openers(Path(file))
    found = read_all(files) if record is None else iter(pick(files, record, where))
    first = list(islice(found, 2))
    if not first:
        raise InputError(f"{where} holds no maps")
    with Sinks(options, len(first) > 1) as sinks:
        texts = (apply_choice(item, options.choice) for item in chain(first, found))
        write_all(((None, item) for item in texts), sinks, options)
        sinks.finish()
    return 0


def _from_stdin() -> Opener:
    saved = open_saved(io.BytesIO(sys.stdin.buffer.read()), "stdin")
    return lambda: nullcontext(saved)
