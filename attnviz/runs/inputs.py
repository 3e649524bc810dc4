"""Texts from arguments, files of whatever format and stdin, line by line as it comes."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from attnviz.core import registry, values
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Many, Options, split_format
from attnviz.core.records import dataclass, replace
from attnviz.models.open import check_origin
from attnviz.storage.texts import (
    BadText,
    Text,
    check_text,
    formats,
    holds_messages,
    read_conversations,
)
from attnviz.storage.texts.lines import (
    FileFormat,
    LineReader,
    open_lines,
    read_file,
    whole_lines,
)

_open: list[LineReader] = []  # the reader of stdin, once it is open
USUAL = Many()  # files are read as their suffixes say


def stdin_lines() -> Iterator[bytes]:
    """The lines of stdin as they arrive, unpacked if they are gzip."""
    buffer: Any = sys.stdin.buffer
    lines = open_lines(getattr(buffer, "raw", buffer), "stdin")
    _open[:] = [] if lines.is_gzip else [lines]
    yield from whole_lines(lines, "stdin")


def stdin_is_ready() -> bool:
    """Whether stdin has data, so that reading the next line does not wait for a pipe or keyboard.

    True too for files, gzip, and systems that cannot tell; the data may be a part of a line.
    """
    if not _open or _open[0].ready:
        return True
    import select

    try:
        return bool(select.select([sys.stdin.buffer], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def count_records(file: str, how: Many = USUAL, *, pairs: bool = False) -> int | None:
    """How many texts, good and bad, a file holds; None if it can be read only once."""
    reading, file = reading_of(file, how, pairs=pairs), split_format(file)[1]
    if file == "-" or not Path(file).is_file():
        return None
    return sum(1 for _ in formats.read_texts(_lines(Path(file)), f"'{file}'", reading))


def reading_of(file: str, how: Many, *, pairs: bool, keep_blank: bool = False) -> FileFormat:
    """How to read a file: by the format before its name, or else by its suffix."""
    file_format, file = split_format(file)
    if file_format is None:
        path = Path(file)
        file_format = formats.format_of_file(path)
        if file_format is None and not (file == "-" or path.is_fifo() or path.is_dir()):
            raise UsageError(
                f"'{file}' ends in none of {', '.join(formats.SUFFIXES)}, with or without .gz: "
                f"rename it, or write its format before it, {formats.INPUT_FORMATS[1]}:{file}"
            )
    columns = {}
    if how.columns is not None:
        columns = formats.parse_columns(how.columns, pairs=pairs)
    reading = FileFormat(file_format or "txt", pairs, keep_blank, columns)
    formats.check_reading(reading)
    return reading


def texts_of_file(file: str, reading: FileFormat) -> Iterator[Text | BadText]:
    """Texts as they are read. A missing file or wrong columns are an error at once."""
    if file == "-":
        return _at_least_one(formats.read_texts(stdin_lines(), "stdin", reading), "stdin")
    from attnviz.storage.matrices import open_file

    path, name = Path(file), f"'{file}'"
    if not path.is_fifo():  # opening and closing a pipe would lose what is in it
        open_file(path, pipe=True).close()
    if path.is_file():
        next(formats.read_texts(_lines(path), name, reading), None)
    return _at_least_one(formats.read_texts(_lines(path), name, reading), name)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, opened at the first; unbuffered, so that a pipe does not wait."""
    from attnviz.storage.matrices import open_file

    file = open_file(path, buffering=0, pipe=True)
    yield from read_file(file, f"'{path}'", is_gzip=formats.is_packed(path))


def _at_least_one(texts: Iterator[Text | BadText], name: str) -> Iterator[Text | BadText]:
    """The texts; an InputError if there are none."""
    first = next(texts, None)
    if first is None:
        raise InputError(f"{name} holds no text")
    yield first
    yield from texts


PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
RECORDINGS = (".wav", ".flac", ".ogg", ".mp3", ".m4a", ".opus")


def pictures_in(files: Sequence[str]) -> tuple[list[Path], int]:
    """The pictures among files and in folders, and the count of other files in the folders."""
    from attnviz.storage.matrices import open_file

    pictures, others, aside = list[Path](), list[str](), 0
    for file in files:
        path = Path(file)
        if path.is_dir():
            inside = files_below(path)
            mine = [one for one in inside if one.suffix.lower() in PICTURES]
            if not mine:
                raise InputError(f"folder '{file}' holds no picture ({', '.join(PICTURES)})")
            aside += len(inside) - len(mine)
            pictures += mine
        elif path.suffix.lower() in PICTURES:
            open_file(path).close()
            pictures.append(path)
        else:
            others.append(file)
    if others and (pictures or len(others) > 1):
        reason = f"'{others[0]}' is no picture ({', '.join(PICTURES)})"
        raise UsageError(f"{reason}: give pictures and folders of them, or one file of texts")
    return pictures, aside


def files_below(folder: Path) -> list[Path]:
    """Every file below a folder, sorted by path.

    Raises:
        InputError: one of the folders cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"folder '{error.filename}' cannot be read: {error.strerror}") from error

    paths = (Path(at, name) for at, _, names in os.walk(folder, onerror=refuse) for name in names)
    return sorted(one for one in paths if one.is_file())


@dataclass(frozen=True, slots=True)
class TextInput:
    """Texts, pairs or pictures."""

    open: Callable[[], Iterator[Text | BadText]]  # reads them from the first
    several: bool = True  # whether there may be more than one
    count: Callable[[], int | None] = lambda: None  # good and bad; None: not known
    ready: Callable[[], bool] | None = None  # whether the next one is there already; None: always
    file: Path | None = None  # what they are read from, if it can be read again
    rereads: bool = True  # whether `open` may be called twice
    pictures: Sequence[Path] = ()  # the files, if they are pictures
    others: int = 0  # how many files beside the pictures are none

    @property
    def total(self) -> Callable[[], int | None] | None:
        return self.count if self.several else None


def given_texts(*texts: Text | BadText, several: bool = False) -> TextInput:
    """Texts that are known already."""
    return TextInput(lambda: iter(texts), several or len(texts) > 1, lambda: len(texts))


CHAT_FILES = (".json", ".jsonl", ".ndjson")


def chats_in(
    arguments: Sequence[str], file: str | None, how: Many = USUAL
) -> list[Text] | TextInput | None:
    """The conversations of the one file that is named (.json, .jsonl), or of stdin; None: no chat.

    Other texts of stdin, of which the beginning is read, are given as an input.
    """
    if file is None and len(arguments) > 1:
        return None
    name = file or (arguments[0] if arguments else "-")
    if name.removeprefix("jsonl:") == "-":
        lines = stdin_lines()
        first = next(lines, b"")
        is_json = first.lstrip()[:1] in (b"[", b"{")
        start = [first, *lines] if is_json else [first]
        if is_json and (chats := _chats_of(start, "stdin")):
            return chats
        texts = formats.read_texts(chain(start, lines), "stdin", reading_of(name, how, pairs=False))
        records = _at_least_one(texts, "stdin")
        return TextInput(lambda: records, ready=stdin_is_ready, rereads=False)
    path = Path(name.removeprefix("jsonl:"))
    bare = path.with_suffix("") if formats.is_packed(path) else path
    if bare.suffix.lower() not in CHAT_FILES or len(name.split()) > 1:
        return None
    return _chats_of([*_lines(path)], f"'{path}'")


def _chats_of(lines: Sequence[bytes], where: str) -> list[Text] | None:
    try:
        data = b"".join(lines).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not valid UTF-8") from error
    return read_conversations(data, where) if holds_messages(data) else None


def texts_of(
    arguments: Sequence[str],
    file: str | None,
    how: Many = USUAL,
    *,
    pairs: bool = False,
    keep_blank: bool = False,
) -> TextInput:
    """The texts of a command line's arguments, of a file or of stdin."""
    if file is not None and arguments:
        raise UsageError("both TEXT and --input were given: give one")
    if file is None and not arguments:
        if sys.stdin.isatty():
            raise UsageError("no text was given: write it in quotes, or use --input FILE or -")
        file = "-"
    if "-" in arguments and len(arguments) > 1:
        raise UsageError("- reads every text from stdin and stands alone: leave the others out")
    if file is not None or list(arguments) == ["-"]:
        file = "-" if file is None else file
        reading = reading_of(file, how, pairs=pairs, keep_blank=keep_blank)
        count = partial(count_records, file, how, pairs=pairs)
        file = split_format(file)[1]
        on_disk = None if file == "-" else Path(file)
        ready = stdin_is_ready if file == "-" else None
        records = texts_of_file(file, reading)
        return TextInput(lambda: records, count=count, ready=ready, file=on_disk, rereads=False)
    if how.columns is not None:
        raise UsageError("--columns is for files and stdin: leave it out, or give --input FILE")
    if pairs:
        source, target = arguments[0], arguments[1] if len(arguments) > 1 else None
        second = None if target is None else check_text(target, "target")
        return given_texts(Text("0", check_text(source, "source"), second))
    return given_texts(
        *(Text(str(place), check_text(text)) for place, text in enumerate(arguments))
    )


def texts_or_pairs(
    text: str | None, target: str | None, file: str | None, options: Options
) -> tuple[TextInput, registry.Command]:
    """Texts, or pairs where a target or a file was given, and the command that reads them."""
    arguments = [one for one in (text, target) if one is not None]
    pairs = target is not None or file is not None
    command: registry.Command = "cross" if pairs else "self"
    texts = texts_of(arguments, file, options.many, pairs=pairs)
    check_origin(options.origin, command)
    return texts, command


def corpus_input(files: Sequence[str], how: Many, *, pairs: bool) -> TextInput:
    """The pictures among files and in folders, or the texts of one file."""
    pictures, others = pictures_in(files)
    if pictures:
        texts = given_texts(*_picture_records(pictures), several=True)
        return replace(texts, file=pictures[0], pictures=pictures, others=others)
    (file,) = files
    path = Path(split_format(file)[1])
    on_disk = path if path.is_file() else None
    return TextInput(
        open=lambda: texts_of([], file, how, pairs=pairs).open(),
        count=partial(count_records, file, how, pairs=pairs),
        file=on_disk,
        rereads=on_disk is not None,
    )


def _picture_records(pictures: Sequence[Path]) -> Iterator[Text | BadText]:
    for number, path in enumerate(pictures, 1):
        name, where = str(path), f"'{path}'"
        if values.is_utf8(name):
            yield Text(name, name, where=where, line=number, raw=name)
        else:
            yield BadText(where, InputError(f"the name {where} is not valid UTF-8"), number, name)
