"""Files that appear whole or not at all, and appends that do."""

from __future__ import annotations

import os
import select
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from attnviz.core.errors import OutputError


def check_writable(path: Path) -> None:
    """Find out before the work whether a file can be written; an OutputError where it cannot."""
    folder = path.parent
    if path.is_dir():
        raise OutputError(f"cannot write '{path}': it is a folder")
    if not folder.is_dir():
        raise OutputError(f"cannot write '{path}': there is no folder '{folder}'")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"cannot write '{path}': permission denied")


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn what the system says went wrong into an OutputError of the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror}") from error


class Draft(AbstractContextManager["Draft"]):
    """A file in the making: written beside its place, moved there whole or not at all.

    Devices and pipes (/dev/null, a process substitution) have no place beside them and are written
    as they are.
    """

    def __init__(self, path: Path) -> None:
        check_writable(path)
        self.path = path
        # A link stays a link: what it points to is replaced.
        self.place = path.resolve()
        self.special = path.exists() and not path.is_file()
        with output_errors(path):
            if self.special:
                self.draft, self.file = path, path.open("wb")
                return
            handle, name = tempfile.mkstemp(dir=self.place.parent, prefix=f".{path.stem[:40]}.")
            self.draft, self.file = Path(name), os.fdopen(handle, "wb")

    def write(self, data: bytes) -> None:
        """Append to the draft."""
        with output_errors(self.path):
            self.file.write(data)

    def keep(self) -> None:
        """Move the draft into place; where that fails, what stood there before still does."""
        with output_errors(self.path):
            self.file.close()
            if not self.special:
                self.draft.chmod(usual_mode(self.place))
                self.draft.replace(self.place)
                self.special = True

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self.file.close()
        if not self.special:
            self.draft.unlink(missing_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole; where that fails, what stood there before still does."""
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


def replace_durably(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace a file as a whole, once its new content is on the disk; else the old one stays."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def write_whole(file: int, data: bytes) -> None:
    """Write all of the data to an open descriptor or, where a disk has no room for it, none.

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
