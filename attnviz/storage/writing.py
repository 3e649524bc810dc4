"""Files that appear whole or not at all, and appends that do."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from attnviz.core.errors import OutputError

LONGEST = 230
"""Bytes of a file's name that leave room for what is put around it."""
PARTS = ("partial", *(f"partial-{number}" for number in range(1, 100)))
"""The kinds of a draft: the first that no run holds, which is the first of all but for one file
that several runs write at once."""


def check_writable(path: Path) -> None:
    """Find out before the work whether a file can be written; an OutputError where it cannot."""
    with output_errors(path):
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = 0
        if stat.S_ISDIR(mode):
            raise OutputError(f"cannot write '{path}': it is a folder")
        folder = place_of(path).parent if path.is_symlink() else path.parent
        if not folder.is_dir():
            raise OutputError(f"cannot write '{path}': there is no folder '{folder}'")
        # It is made beside its place, unless that is a device.
        needed = [path] * bool(mode) + [folder] * (stat.S_ISREG(mode) or not mode)
        if not all(os.access(item, os.W_OK) for item in needed):
            raise OutputError(f"cannot write '{path}': permission denied")


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn what the system says went wrong into an OutputError of the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror}") from error


def place_of(path: Path) -> Path:
    """Where a file lies: a link stays a link, and what it points to is written."""
    with output_errors(path):  # the working folder may be gone
        return Path(os.path.realpath(path))


def beside(path: Path, kind: str) -> Path:
    """The hidden file of a kind that belongs to a file; a link's lies where the link leads."""
    place = place_of(path)
    name = place.name
    if len(os.fsencode(name)) > LONGEST:
        from hashlib import sha256

        name = sha256(os.fsencode(name)).hexdigest()[:32]
    return place.with_name(f".{name}.{kind}")


class PartialFile:
    """A file of which every byte is in its place as soon as it is written.

    It is hidden beside its own place under one name, so that what a killed run has left is taken up
    by the next. While it is open, no other run can have it.
    """

    def __init__(self, path: Path, size: int = 0, kinds: Iterable[str] = ("unfinished",)) -> None:
        check_writable(path)
        self.path, self.size = path, size
        with output_errors(path):
            for kind in kinds:
                self.draft = beside(path, kind)
                file = open_alone(self.draft)
                if file is not None:
                    break
            else:
                raise OutputError(f"cannot write '{path}': another run is writing it")
            self.file = file
            if os.fstat(file).st_size < size:
                raise OutputError(f"'{self.draft}' lacks a part of what was written: remove it")
            self.truncate(size)

    def write(self, data: bytes) -> None:
        """Append all of the data, or nothing."""
        with output_errors(self.path):
            write_whole(self.file, data)
        self.size += len(data)

    def truncate(self, size: int) -> None:
        """Take back everything behind the first bytes."""
        os.ftruncate(self.file, size)
        os.lseek(self.file, size, os.SEEK_SET)
        self.size = size

    def sync(self) -> None:
        """Wait until the disk has it."""
        with output_errors(self.path):
            os.fsync(self.file)

    def keep(self) -> None:
        """Move it into place, once the disk has it."""
        self.sync()
        self.move()

    def move(self) -> None:
        """Move it into place; where that fails, what stood there before still does."""
        with output_errors(self.path):
            place = place_of(self.path)
            self.draft.chmod(usual_mode(place))
            self.draft.replace(place)
            self.close()

    def discard(self) -> None:
        """Remove it."""
        self.draft.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave it where it is; closed twice is closed once."""
        file, self.file = self.file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)


def open_alone(path: Path) -> int | None:
    """A file, made where there is none, that nobody else has open so; None where somebody has."""
    while True:
        # No link is followed: in a folder that all may write to, somebody could have put one there.
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if not _lock(file):
                os.close(file)
                return None
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        except FileNotFoundError:
            pass
        os.close(file)  # who had it has just moved it into place, or removed it


def _lock(file: int) -> bool:
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


class Draft(AbstractContextManager["Draft"]):
    """A file in the making: written beside its place, moved there whole or not at all.

    Devices and pipes (/dev/null, a process substitution) have no place beside them and are written
    as they are.
    """

    def __init__(self, path: Path) -> None:
        check_writable(path)
        self.path, self.kept = path, False
        self.special: BinaryIO | None = None
        with output_errors(path):
            if path.exists() and not path.is_file():
                self.special = path.open("wb")
            else:
                self.part = PartialFile(path, kinds=PARTS)

    def write(self, data: bytes) -> None:
        """Append to the draft."""
        with output_errors(self.path):
            (self.special or self.part).write(data)

    def keep(self) -> None:
        """Move the draft into place; where that fails, what stood there before still does."""
        with output_errors(self.path):
            if self.special is not None:
                self.special.close()
            else:
                self.part.move()
        self.kept = True

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            if self.special is not None:
                self.special.close()
            elif not self.kept:
                self.part.discard()


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
