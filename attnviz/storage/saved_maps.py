"""Reads saved attention from a file or from its shards, and no more of it than is asked for.

JSON lines, .npz and Parquet give their texts one by one, and a single text without the weights of
the others; any other file is read at once. Shards of maps.npz are maps-00000.npz, maps-00001.npz
and so on.
"""

import io
import itertools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from attnviz.core.attention_map import Attention
from attnviz.core.effects import SavedEffects
from attnviz.core.errors import InputError, is_number
from attnviz.core.records import dataclass
from attnviz.core.registry import DUMPS, PARQUET
from attnviz.storage.archive import DAMAGE, INDEX, ZIP, ArchiveReader
from attnviz.storage.documents import from_document, identity_of, parse_json
from attnviz.storage.matrices import open_file, read_whole

MAGIC = b"PAR1"  # of Parquet
LISTED = 200  # characters of ids that a message lists


class SavedFile(Protocol):
    """The attention of a file's texts in order."""

    def ids(self) -> Iterator[str]:
        return (attention.id for attention in self)

    def __iter__(self) -> Iterator[Attention]: ...

    def at(self, number: int) -> Attention:
        return next(itertools.islice(self, number, None))


Opener = Callable[[], AbstractContextManager[SavedFile]]


@dataclass(frozen=True, slots=True)
class SavedLines:
    """One JSON document on each line; lines before the wanted one are not parsed."""

    file: IO[bytes]
    where: str

    def ids(self) -> Iterator[str]:
        return (identity_of(line) for _, line in self._lines())

    def __iter__(self) -> Iterator[Attention]:
        return itertools.starmap(self._read, self._lines())

    def at(self, number: int) -> Attention:
        return self._read(*next(itertools.islice(self._lines(), number, None)))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            self.file.seek(0)
            yield from ((number, line) for number, line in enumerate(self.file, 1) if line.strip())
        except OSError as error:
            raise InputError(f"cannot read {self.where}: {error.strerror}") from error

    def _read(self, number: int, line: bytes) -> Attention:
        place = f"line {number} of {self.where}"
        return from_document(parse_json(line, place), place)


@dataclass(frozen=True)
class LoadedMaps(SavedFile):
    """The texts of a file that is read at once."""

    attentions: Sequence[Attention]

    def __iter__(self) -> Iterator[Attention]:
        return iter(self.attentions)


def open_saved(file: IO[bytes], where: str) -> SavedFile:
    """The texts of an open seekable file; an InputError where it holds no attention."""
    beginning = file.read(len(MAGIC))
    file.seek(0)
    if beginning == MAGIC:
        return PARQUET.load()(file, where)  # type: ignore[no-any-return]
    if beginning == ZIP:
        if _is_archive(file, if_damaged=True):  # so that the error says what is damaged
            return ArchiveReader(file, where)
    elif beginning.startswith(b"{"):
        first = file.readline()
        if file.read(1) and holds_attention(first):
            return SavedLines(file, where)
        file.seek(0)
    return LoadedMaps(list(read_any(read_whole(file, where), where)))


@contextmanager
def read_from(path: Path) -> Iterator[SavedFile]:
    """The texts of a file, which is open meanwhile."""
    with open_file(path) as file:
        whole = file if file.seekable() else io.BytesIO(read_whole(file, f"'{path}'"))
        yield open_saved(whole, f"'{path}'")


def openers(path: Path) -> list[Opener]:
    """A function that opens the file, or one for each of its shards where only these exist."""
    paths = [path] if path.exists() else shards_of(path) or [path]
    return [partial(read_from, path) for path in paths]


def read_all(files: Iterable[Opener]) -> Iterator[Attention]:
    """Every text of every file, one by one."""
    for opener in files:
        with opener() as texts:
            yield from texts


def pick(files: Sequence[Opener], record: str, where: str) -> list[Attention]:
    """The texts with an id or, without one, the text of that number, counted from 0.

    Raises:
        InputError: there is neither.
    """
    for opener in _likely_first(files, record):
        with opener() as texts:
            places = [place for place, identity in enumerate(texts.ids()) if identity == record]
            if places:
                return [texts.at(place) for place in places]
    number = int(record) if is_number(record) else -1
    known_ids: list[str] = []
    for opener in files:
        with opener() as texts:
            ids = list(texts.ids())
            if 0 <= number < len(ids):
                return [texts.at(number)]
            number -= len(ids)
            known_ids += ids[:LISTED]
    raise InputError(f"{where} holds no text '{record}': it holds {', '.join(known_ids)[:LISTED]}")


def _likely_first(files: Sequence[Opener], record: str) -> Sequence[Opener]:
    """The shards, first the one that should hold this text if ids are numbers from 0."""
    if len(files) < 2 or not is_number(record):
        return files
    with files[0]() as texts:
        guess = int(record) // max(sum(1 for _ in texts.ids()), 1)
    near = sorted(range(len(files)), key=lambda number: abs(number - guess))
    return [files[number] for number in near]


def read_any(data: bytes, where: str) -> Iterator[Attention]:
    """Every text's attention in a file of this or another program; an InputError if unknown."""
    dump = None if holds_attention(data) else DUMPS.load()(data, where)
    return read_attention(data, where) if dump is None else dump


def read_attention(data: bytes, where: str) -> Iterator[Attention]:
    """Every text's attention in a file that attnviz wrote; an InputError if it did not."""
    if not data.strip():
        raise InputError(f"{where} is empty")
    if data.startswith((ZIP, MAGIC)):
        reader = ArchiveReader if data.startswith(ZIP) else PARQUET.load()
        yield from reader(io.BytesIO(data), where)
        return
    for place, document in _documents(data, where):
        yield from_document(document, place)


def read_effects(data: bytes, where: str) -> SavedEffects | None:
    """The effects of an ablation in a file; None where it holds something else.

    Raises:
        InputError: it holds those of several texts, or a field of a wrong type.
    """
    try:
        if data.startswith(ZIP):
            reader = ArchiveReader(io.BytesIO(data), where)
            texts = [parse_json(one, where) for one in itertools.islice(reader.documents(), 1)]
        else:
            texts = [one for _, one in _documents(data, where)] if b'"ablation"' in data else []
    except InputError:
        return None
    if not texts or not isinstance(texts[0], Mapping) or texts[0].get("kind") != "ablation":
        return None
    if len(texts) > 1:
        raise InputError(
            f"{where} holds the effects of {len(texts)} texts: save their means with -f json"
        )
    from attnviz.storage.schema import fit_effects

    return fit_effects(texts[0], where)


def _documents(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    """Every document in JSON text with its place: a single one, a list, or one on each line."""
    if not data.lstrip().startswith((b"{", b"[")):
        raise InputError(
            f"{where} holds no saved maps: it is neither .npz nor JSON, and neither .npy, "
            ".safetensors, a table of weights nor lines of alignments"
        )
    lines = data.splitlines()
    if len(lines) > 1 and all(line.strip().startswith(b"{") for line in lines if line.strip()):
        for number, line in enumerate(lines, 1):
            if line.strip():
                place = f"line {number} of {where}"
                yield place, parse_json(line, place)
        return
    whole = parse_json(data, where)
    if not isinstance(whole, list):
        yield where, whole
        return
    for number, document in enumerate(whole):
        yield f"text {number} of {where}", document


def holds_attention(data: bytes) -> bool:
    """Whether the bytes look like saved attention, and not like other matrices."""
    if data.startswith(ZIP):
        return _is_archive(io.BytesIO(data), if_damaged=False)
    if data.startswith(MAGIC):
        return True
    try:
        _, first = next(_documents(data, ""), ("", None))
    except InputError:
        return False
    return isinstance(first, Mapping) and "maps" in first


def _is_archive(file: IO[bytes], *, if_damaged: bool) -> bool:
    """Whether this package wrote the archive; `if_damaged` where that cannot be read."""
    try:
        return f"{INDEX}.npy" in zipfile.ZipFile(file).namelist()
    except DAMAGE:
        return if_damaged
    finally:
        file.seek(0)


def shard_path(path: Path, number: int) -> Path:
    """The file of one shard, counted from 0."""
    return path.with_name(f"{path.stem}-{number:05}{path.suffix}")


def shards_of(path: Path) -> list[Path]:
    """The shards that exist, by number."""
    name = re.compile(rf"{re.escape(path.stem)}-(\d{{5,}}){re.escape(path.suffix)}")
    siblings = path.parent.iterdir() if path.parent.is_dir() else ()
    matches = [match for item in siblings if (match := name.fullmatch(item.name))]
    return [shard_path(path, number) for number in sorted(int(match[1]) for match in matches)]
