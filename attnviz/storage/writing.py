"""Files that appear whole or not at all, and appends of all the data or nothing."""

import os
import select
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from attnviz.core.errors import OutputError

LONGEST = 230  # bytes of a file's name, with room left for a prefix and a suffix
PARTS = ("partial", *(f"partial-{number}" for number in range(1, 100)))
"""The kinds of a draft. Each further run that writes the same file meanwhile takes the next."""


def check_writable(path: Path) -> None:
    """Test before the work whether a file can be written; else an OutputError."""
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
        # The draft is made in the same folder, unless the target is a device.
        may_replace = os.access(folder, os.W_OK) or (mode and not stat.S_ISREG(mode))
        if not may_replace or (mode and not os.access(path, os.W_OK)):
            raise OutputError(f"cannot write '{path}': permission denied")


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system into an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror}") from error


def place_of(path: Path) -> Path:
    """Where a file lies: a link stays a link, and what it points to is written."""
    try:
        return Path(os.path.realpath(path))
    except OSError as error:  # of os.getcwd()
        raise OutputError("the working folder does not exist any more: cd into another") from error


def beside(path: Path, kind: str) -> Path:
    """The hidden file of a kind beside a file; of a link, beside its target."""
    place = place_of(path)
    name = place.name
    if len(os.fsencode(name)) > LONGEST:
        from hashlib import sha256

        name = sha256(os.fsencode(name)).hexdigest()[:32]
    return place.with_name(f".{name}.{kind}")


class PartialFile(AbstractContextManager["PartialFile"]):
    """A draft, hidden beside its file, that is moved into place whole or else removed.

    Every byte is in the draft as soon as it is written, and the next run goes on with what a killed
    run has left. While it is open, no other run can have it. Devices and pipes (/dev/null, process
    substitution) are written directly.
    """

    def __init__(self, path: Path, size: int = 0, kinds: Iterable[str] = ("unfinished",)) -> None:
        check_writable(path)
        self.path, self.size = path, size
        self.draft: Path | None = None
        with output_errors(path):
            if path.exists() and not path.is_file():
                self.file = os.open(path, os.O_WRONLY)
                return
            old = stat.S_IMODE(path.stat().st_mode) & 0o777 if path.exists() else None
            for kind in kinds:
                draft = beside(path, kind)
                file = open_alone(draft, 0o666 if old is None else old)
                if file is not None:
                    break
            else:
                raise OutputError(f"cannot write '{path}': another run is writing it")
            self.draft, self.file = draft, file
            if old is not None:  # whoever may not read the old file may not read its draft
                draft.chmod(old)
            if os.fstat(file).st_size < size:
                raise OutputError(f"'{draft}' lacks a part of what was written: remove it")
            self.truncate(size)

    def write(self, data: bytes) -> None:
        """Append all of the data, or nothing."""
        with output_errors(self.path):
            write_whole(self.file, data)
        self.size += len(data)

    def truncate(self, size: int) -> None:
        """Remove everything after the first bytes."""
        os.ftruncate(self.file, size)
        os.lseek(self.file, size, os.SEEK_SET)
        self.size = size

    def sync(self) -> None:
        with output_errors(self.path):
            os.fsync(self.file)

    def keep(self) -> None:
        """Move the file into place once the disk has it."""
        self.sync()
        self.move()

    def move(self) -> None:
        """Move it into place; where that fails, what stood there before still does."""
        with output_errors(self.path):
            if self.draft is not None:
                self.draft.replace(place_of(self.path))
            self.close()

    def discard(self) -> None:
        if self.draft is not None and self.file >= 0:
            self.draft.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave it where it is; a second call does nothing."""
        file, self.file = self.file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self.discard()


def open_alone(path: Path, mode: int = 0o666) -> int | None:
    """A file that nobody else has open, made if it is missing; None: somebody has it open."""
    # No link is followed: in a folder that all may write to, somebody could have put one there.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    while True:
        file = os.open(path, flags, mode)
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


def write_file(path: Path, data: bytes, *, durably: bool = False) -> None:
    """Write a file whole; where that fails, what stood there before still does.

    A power cut may lose what was written last, unless it is written durably, which takes longer.
    """
    with PartialFile(path, kinds=PARTS) as draft:
        draft.write(data)
        if durably:
            draft.sync()
        draft.move()


def write_whole(file: int, data: bytes) -> None:
    """Write all of the data to an open descriptor or, where a disk has no room for it, none.

    Raises:
        OSError: it could not be written; a part that was is taken back, unless it is in a pipe.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(file, rest) :]
        except BlockingIOError:  # a pipe that does not wait: somebody else set it so
            select.select([], [file], [])
        except OSError:
            count, facts = len(data) - len(rest), os.fstat(file)
            if count and stat.S_ISREG(facts.st_mode):
                # Appending or not, the file's place is behind what was written last.
                end = os.lseek(file, 0, os.SEEK_CUR)
                if end == facts.st_size:  # nobody else has written behind it
                    os.ftruncate(file, end - count)
                    os.lseek(file, end - count, os.SEEK_SET)
            raise
