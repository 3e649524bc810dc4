"""Where results go: data to stdout or, whole or not at all, to files; everything else to stderr."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType

from attnviz.errors import OutputError, UsageError


def write_text(text: str) -> None:
    """Write data to stdout as UTF-8 and flush it, so that a pipe sees every record at once."""
    write_bytes(text.encode("utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write data to stdout.

    Raises:
        OutputError: stdout refuses it, as a full disk does; a closed pipe stays BrokenPipeError.
    """
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror}") from error


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
                self.draft.chmod(_usual_mode(self.place))
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


def _usual_mode(path: Path) -> int:
    """The mode of the file that stood there, else what the umask leaves of rw for all."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
