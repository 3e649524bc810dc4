"""Where results go: data to stdout or, whole or not at all, to files; everything else to stderr."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Finish what is begun before Ctrl-C ends the run; a second Ctrl-C ends it at once."""
    usual = signal.default_int_handler
    aside = threading.current_thread() is not threading.main_thread()
    if aside or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    pressed = False

    def wait(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed:
        raise KeyboardInterrupt


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
