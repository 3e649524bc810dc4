"""Where results go: data to stdout or, whole or not at all, to files; everything else to stderr."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from attnviz.core.errors import OutputError, UsageError
from attnviz.storage.writing import Draft as Draft
from attnviz.storage.writing import check_writable as check_writable
from attnviz.storage.writing import write_file as write_file
from attnviz.storage.writing import write_whole as write_whole


def write_bytes(data: bytes) -> None:
    """Write data to stdout, whatever Ctrl-C says meanwhile; to a file on a full disk, nothing."""
    try:
        sys.stdout.flush()
        with uninterrupted():
            write_whole(sys.stdout.fileno(), data)
    except io.UnsupportedOperation:  # no file of the system's, as where Python calls
        sys.stdout.buffer.write(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror}") from error


SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a run early: Ctrl-C, and what a system or a scheduler sends."""
received: list[int] = []
"""The signals that have ended the run; a library may have made another error of the first."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the run, of either signal as Python does of Ctrl-C."""
    received.append(number)
    raise KeyboardInterrupt


def status_of_signal() -> int:
    """The exit status of a run that was interrupted, as a shell counts it: 130, or 143 by TERM."""
    return 128 + (received[0] if received else signal.SIGINT)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Finish what is begun before a signal ends the run; a second signal ends it at once."""
    aside = threading.current_thread() is not threading.main_thread()
    usual = {} if aside else {number: signal.getsignal(number) for number in SIGNALS}
    known = (signal.default_int_handler, interrupt)
    usual = {number: handler for number, handler in usual.items() if handler in known}
    pressed: list[int] = []

    def answer(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        restore()

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    for number in usual:
        signal.signal(number, answer)
    try:
        yield
    finally:
        restore()
    if pressed:
        answer_of: Any = usual[pressed[0]]
        answer_of(pressed[0], None)


def note(text: str) -> None:
    """Say something that is not data, on stderr, in one line."""
    from attnviz.renderers.printable import printable

    sys.stderr.write(f"note: {printable(text)}\n")


def refuse_binary_on_terminal(format_name: str) -> None:
    """Keep bytes that no terminal can show off it."""
    if sys.stdout.isatty():
        raise UsageError(
            f"format '{format_name}' is binary and stdout is a terminal: "
            "redirect it, or write a file with -o FILE"
        )
