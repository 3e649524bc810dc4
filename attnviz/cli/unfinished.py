"""A file in the making that outlives its run: '.NAME.unfinished' beside the place of NAME."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from attnviz.cli.output import check_writable, usual_mode, write_whole
from attnviz.errors import OutputError

LONGEST = 240
"""Bytes of a file's name that leave room for what is put around it."""


def beside(path: Path, kind: str) -> Path:
    """The hidden file of a kind that belongs to a file; a link's lies where the link leads."""
    place = path.resolve()
    return place.with_name(f".{place.name}.{kind}")


def can_last(path: Path) -> bool:
    """Whether a file has a place where an unfinished part of it can wait: no device, no pipe."""
    return (path.is_file() or not path.exists()) and len(os.fsencode(path.name)) <= LONGEST


class Unfinished:
    """A file of which every byte is in its place as soon as it is written.

    Attributes:
        size: how many bytes it has; of a failed write nothing stays.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open the unfinished part of a file, new or as far as it is known to be right.

        Args:
            path: the file that it will be.
            size: how many bytes to keep of what an earlier run has left.

        Raises:
            OutputError: it cannot be written, is being written, or has been cut or removed.
        """
        check_writable(path)
        self.path, self.size = path, size
        self.draft = beside(path, "unfinished")
        try:
            self.file = os.open(self.draft, os.O_RDWR | os.O_CREAT, 0o600)
            self._lock()
            if os.fstat(self.file).st_size < size:
                raise OutputError(f"'{self.draft}' lacks a part of what was written: remove it")
            self.truncate(size)
        except OSError as error:
            raise self._error(error) from error

    def write(self, data: bytes) -> None:
        """Append all of the data, or nothing.

        Raises:
            OutputError: the disk is full or gone.
        """
        try:
            write_whole(self.file, data)
        except OSError as error:
            raise self._error(error) from error
        self.size += len(data)

    def truncate(self, size: int) -> None:
        """Take back everything behind the first bytes."""
        os.ftruncate(self.file, size)
        os.lseek(self.file, size, os.SEEK_SET)
        self.size = size

    def sync(self) -> None:
        """Wait until the disk has it.

        Raises:
            OutputError: the disk fails.
        """
        try:
            os.fsync(self.file)
        except OSError as error:
            raise self._error(error) from error

    def keep(self) -> None:
        """Move it into place.

        Raises:
            OutputError: it cannot be moved; what stood there before still does.
        """
        self.sync()
        try:
            place = self.path.resolve()
            self.draft.chmod(usual_mode(place))
            self.draft.replace(place)
            self.close()
        except OSError as error:
            raise self._error(error) from error

    def discard(self) -> None:
        """Remove it."""
        self.draft.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave it where it is; closed twice is closed once."""
        with suppress(OSError):
            os.close(self.file)

    def _lock(self) -> None:
        """Refuse to write what another run is writing; the lock goes with the process.

        Raises:
            OutputError: another run is.
        """
        try:
            import fcntl
        except ImportError:  # a system without such locks
            return
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            os.close(self.file)
            raise OutputError(f"cannot write '{self.path}': another run is writing it") from error
        except OSError:  # a file system without locks
            return

    def _error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write '{self.path}': {error.strerror}")
