"""What a run says on stderr, one line each, and what ends it early."""

import json
import os
import signal
import sys
from contextvars import ContextVar
from types import FrameType

from attnviz.core.registry import SCHEMA

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a run early: Ctrl-C, and what a system or a scheduler sends."""
signal_numbers: list[int] = []
"""The signals that ended the run. A library may have raised another error since."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the run on SIGTERM as Python does on Ctrl-C."""
    signal_numbers.append(number)
    raise KeyboardInterrupt


INTERRUPTED = 130
"""The status that typer gives a KeyboardInterrupt, whichever signal raised it."""
stderr_form: ContextVar[str] = ContextVar("stderr_form", default="text")
"""How errors and notes are written: as text, or as JSON."""
LONGEST_LINE = 2000
"""Characters of a line on stderr, at most."""


def complain(message: str, error: str = "InputError", status: int = 1) -> None:
    """Print an error of that class as one line on stderr."""
    line = " ".join(part.strip() for part in message.splitlines() if part.strip())
    tell("error", line, error=error, status=status)


def tell(kind: str, message: str, **facts: object) -> None:
    """Print an error or a note as one line on stderr: as text, or as JSON with --errors json.

    A very long line keeps both ends.
    """
    from attnviz.renderers.printable import printable

    half = LONGEST_LINE // 2
    cut = message if len(message) <= LONGEST_LINE else f"{message[:half]} … {message[-half:]}"
    line = printable(cut)
    if stderr_form.get() == "json":
        text = json.dumps({"schema": SCHEMA, "kind": kind, "message": line, **facts})
    else:
        text = f"attnviz: error: {line}" if kind == "error" else f"note: {line}"
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:  # a full disk, or nobody reads: data and status stay as they are
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
