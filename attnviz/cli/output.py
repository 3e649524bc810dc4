"""Where results go: data to stdout or, whole or not at all, to files; everything else to stderr."""

from __future__ import annotations

import io
import os
import select
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType

from attnviz.core.errors import OutputError, UsageError


def write_text(text: str) -> None:
    """Write data to stdout as UTF-8 and flush it, so that a pipe sees every record at once."""
    write_bytes(text.encode("utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write data to stdout, whatever Ctrl-C says meanwhile; a file on a full disk gets none of it.

    Raises:
        OutputError: stdout refuses it, as a full disk does; a closed pipe stays BrokenPipeError.
    """
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


def write_whole(file: int, data: bytes) -> None:
    """Write all of the data to an open file or, where a disk has no room for it, none.

    Args:
        file: its descriptor.
        data: what to append.

    Raises:
        OSError: it could not be written; a part that was is taken back, unless it is in a pipe.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(file, left) :]
        except BlockingIOError:  # a pipe that does not wait: somebody else set it so
            select.select([], [file], [])
        except OSError:
            written, facts = len(data) - len(left), os.fstat(file)
            if written and stat.S_ISREG(facts.st_mode):
                # Appending or not, the file's place is behind what was written last.
                end = os.lseek(file, 0, os.SEEK_CUR)
                if end == facts.st_size:  # nobody else has written behind it
                    os.ftruncate(file, end - written)
                    os.lseek(file, end - written, os.SEEK_SET)
            raise


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Finish what is begun before Ctrl-C ends the run; a second Ctrl-C ends it at once.

    Raises:
        KeyboardInterrupt: once it is finished, if Ctrl-C came.
    """
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
    """Keep bytes that no terminal can show off it.

    Raises:
        UsageError: stdout is a terminal.
    """
    if sys.stdout.isatty():
        raise UsageError(
            f"format '{format_name}' is binary and stdout is a terminal: "
            "redirect it, or write a file with -o FILE"
        )


def different(*outputs: Path | None) -> list[Path]:
    """The files that were asked for, of those that can be.

    Raises:
        UsageError: one file was asked for twice, and the later output would replace the earlier.
    """
    paths = [path for path in outputs if path is not None]
    if len({path.absolute() for path in paths}) < len(paths):
        raise UsageError("two outputs go to the same file: name different ones")
    return paths


def check_writable(path: Path) -> None:
    """Find out before the work whether a file can be written.

    Raises:
        OutputError: its folder is missing or closed, or it is a folder itself.
    """
    folder = path.parent
    if path.is_dir():
        raise OutputError(f"cannot write '{path}': it is a folder")
    if not folder.is_dir():
        raise OutputError(f"cannot write '{path}': there is no folder '{folder}'")
    closed = not os.access(folder, os.W_OK) if not path.exists() else not os.access(path, os.W_OK)
    if closed:
        raise OutputError(f"cannot write '{path}': permission denied")


class Draft(AbstractContextManager["Draft"]):
    """A file in the making: written beside its place, moved there whole or not at all.

    Devices and pipes (/dev/null, a process substitution) have no place beside them and are written
    as they are.
    """

    def __init__(self, path: Path) -> None:
        """Open the draft.

        Raises:
            OutputError: the file could not be written.
        """
        check_writable(path)
        self.path = path
        # A link stays a link: what it points to is replaced.
        self.place = path.resolve()
        self.special = path.exists() and not path.is_file()
        try:
            if self.special:
                self.draft, self.file = path, path.open("wb")
                return
            handle, name = tempfile.mkstemp(dir=self.place.parent, prefix=f".{path.stem[:40]}.")
            self.draft, self.file = Path(name), os.fdopen(handle, "wb")
        except OSError as error:
            raise self._error(error) from error

    def write(self, data: bytes) -> None:
        """Append to the draft.

        Raises:
            OutputError: the disk is full or gone.
        """
        try:
            self.file.write(data)
        except OSError as error:
            raise self._error(error) from error

    def keep(self) -> None:
        """Move the draft into place.

        Raises:
            OutputError: it cannot be written out or moved; what stood there before still does.
        """
        try:
            self.file.close()
            if not self.special:
                self.draft.chmod(usual_mode(self.place))
                self.draft.replace(self.place)
                self.special = True
        except OSError as error:
            raise self._error(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self.file.close()
        if not self.special:
            self.draft.unlink(missing_ok=True)

    def _error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write '{self.path}': {error.strerror}")


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole.

    Raises:
        OutputError: it cannot be written; what stood there before still does.
    """
    with Draft(path) as draft:
        draft.write(data)
        draft.keep()


def usual_mode(path: Path) -> int:
    """The mode of the file that stood there, else what the umask leaves of rw for all."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
