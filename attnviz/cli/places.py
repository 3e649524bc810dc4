"""Where results go: data to stdout or, whole or not at all, to files; everything else to stderr."""

from __future__ import annotations

import io
import os
import re
import signal
import stat
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations, product
from pathlib import Path
from types import FrameType
from typing import IO, Any

from attnviz.cli.stderr import SIGNALS, interrupt, tell
from attnviz.core.errors import OutputError, UsageError
from attnviz.core.options import split_format
from attnviz.core.records import dataclass
from attnviz.storage.writing import place_of, write_whole


def write_bytes(data: bytes) -> None:
    """Write all data to stdout, also if Ctrl-C is pressed meanwhile; a full disk gets nothing."""
    try:
        sys.stdout.flush()
        with hold_interrupts():
            write_whole(sys.stdout.fileno(), data)
    except io.UnsupportedOperation:  # no file of the system's, as where Python calls
        sys.stdout.buffer.write(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror}") from error


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let the block finish before a signal ends the run; a second signal ends it at once."""
    aside = threading.current_thread() is not threading.main_thread()
    usual = {} if aside else {number: signal.getsignal(number) for number in SIGNALS}
    own_handlers = (signal.default_int_handler, interrupt)
    usual = {number: handler for number, handler in usual.items() if handler in own_handlers}
    numbers: list[int] = []

    def answer(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
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
    if numbers:
        answer_of: Any = usual[signal.Signals(numbers[0])]
        answer_of(numbers[0], None)


@dataclass(frozen=True, slots=True)
class Place:
    """A file that a run writes; where `several` is true FILE-0, FILE-1, … are called after it.

    `perhaps` is true as well where a single result is written to FILE itself.
    """

    path: Path
    several: bool = False
    perhaps: bool = False

    @property
    def is_itself(self) -> bool:
        """Whether the run may write the file of that very name."""
        return self.perhaps or not self.several

    @property
    def real(self) -> Path:
        """The path without links and `..`."""
        if self.several:  # what a link's name is put together from stays where the link is
            return place_of(self.path.parent) / self.path.name
        return place_of(self.path)

    def claims(self, name: str) -> bool:
        """Whether a file of that name beside it is written by the run, hidden ones included."""
        real = self.real
        stem, suffix = re.escape(_fold_name(real.stem)), re.escape(_fold_name(real.suffix))
        number = rf"(?:-\d+){'?' if self.perhaps else ''}" if self.several else ""
        file = f"{stem}{number}{suffix}"
        draft = rf"{stem}(?:-\d+)?{suffix}\.(?:partial|unfinished|journal)(?:-\d+)?"
        secret = rf"\.{draft}|\.\.{draft}\.partial(?:-\d+)?"  # the draft of what is hidden too
        return re.fullmatch(f"{file}|{secret}", _fold_name(name)) is not None

    def meets(self, other: Place) -> bool:
        """Whether one file is, or may become, both."""
        mine, theirs = self.real, other.real
        if same_file(mine, theirs) and self.is_itself and other.is_itself:
            return True
        if not same_file(mine.parent, theirs.parent):
            return False
        if self.several and other.several:
            return _fold_name(mine.name) == _fold_name(theirs.name)
        return self.claims(theirs.name) or other.claims(mine.name)


def _fold_name(name: str) -> str:
    """A name as disks compare it that ignore case and the Unicode form of letters."""
    return unicodedata.normalize("NFC", name).casefold()


def same_file(first: Path | int, second: Path | int) -> bool:
    """Whether two paths, or open descriptors, are of one file; a device is nobody's own."""
    try:
        one, other = map(os.stat, (first, second))
    except (OSError, ValueError):
        return False
    return os.path.samestat(one, other) and not stat.S_ISCHR(one.st_mode)


CHECKPOINT = re.compile(
    r".*config\.json|tokenizer.*|.*_tokens.*\.json|vocab\..*|merges\..*"
    r"|.*\.(?:safetensors|bin|model|index\.json|py)"
)
"""Names of files in a model's folder that are read."""


def inputs_among(names: Iterable[str]) -> Iterator[Path]:
    """The files that the names stand for: a file, those of a model in a folder, or saved shards."""
    for path in (Path(split_format(name)[1]) for name in names):
        with suppress(OSError, ValueError):
            if path.is_dir():
                yield from (item for item in path.iterdir() if CHECKPOINT.fullmatch(item.name))
            elif path.exists():
                yield path
            elif path.suffix:
                from attnviz.storage.saved_maps import shards_of

                yield from shards_of(path)


def check_apart(places: Sequence[Place], names: Iterable[str]) -> None:
    """Refuse to write two outputs to one file, or one over what is read.

    Files are the same through links, hard links, `..` and capitals, and where the shell has sent a
    stream there. A text that is also a file's name counts as that file: it may be meant so.
    """
    for place, other in combinations(places, 2):
        if place.meets(other):
            both = "" if place.path == other.path else f" than '{place.path}' and '{other.path}'"
            raise UsageError(f"two outputs go to the same file: name different ones{both}")
    read = [Place(path) for path in inputs_among(names)]
    for place, source in product(places, read):
        if place.meets(source):
            raise UsageError(
                f"'{place.path}' would replace '{source.path}', which is read: name another"
            )
    stdin, stdout, stderr = map(_descriptor, (sys.stdin, sys.stdout, sys.stderr))
    own_files = [place for place in places if place.is_itself]
    for stream, phrase, others in (
        (stdin, "stdin is", own_files),
        (stdout, "stdout goes to", [*own_files, *read]),
        (stderr, "stderr goes to", [*own_files, *read]),
    ):
        for place in others:
            if same_file(stream, place.real):
                raise UsageError(f"{phrase} '{place.path}', which is read or written: name another")
    if same_file(stdin, stdout) and stat.S_ISREG(os.fstat(stdin).st_mode):
        raise UsageError("stdin and stdout are one file: name another")


def _descriptor(stream: IO[str]) -> int:
    """A stream's descriptor; -1 where it has none."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return -1


def note(text: str) -> None:
    """Say something that is not data, on stderr, in one line."""
    tell("note", text)
