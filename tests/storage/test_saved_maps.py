"""One text of many is read without the others, from every kind of file and from shards."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from attnviz.core.attention_map import Attention, Focus
from attnviz.core.errors import InputError
from attnviz.core.registry import FORMATS
from attnviz.renderers import NO_VIEWS, Display
from attnviz.renderers.reports import as_bytes
from attnviz.storage import saved_maps as module
from attnviz.storage.documents import from_document, to_document
from attnviz.storage.saved_maps import (
    SavedFile,
    open_saved,
    openers,
    pick,
    read_all,
    shard_path,
    shards_of,
)
from tests.samples import attention_of, same, self_map

KINDS = ("npz", "parquet", "jsonl", "json")
IDS = ["first", "0", 'a "quoted"\\ \u202e id', "7", "last"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def texts(ids: list[str]) -> list[Attention]:
    return [
        replace(attention_of(self_map(["a", "b"], 2, 2, seed=seed)), id=identity)
        for seed, identity in enumerate(ids)
    ]


def written(path: Path, found: list[Attention]) -> Path:
    renderer = FORMATS[path.suffix[1:]].load()(Display(many=True))
    parts = [*(renderer.add(item, NO_VIEWS) for item in found), renderer.finish()]
    path.write_bytes(b"".join(map(as_bytes, parts)))
    return path


@every_kind
def test_ids_go_before_numbers_and_shards_are_one(kind, tmp_path):
    found = texts(IDS)
    files = openers(written(tmp_path / f"a.{kind}", found))
    for record, place in (("first", 0), ("0", 1), (IDS[2], 2), ("7", 3), ("3", 3), ("4", 4)):
        (picked,) = pick(files, record, "'a'")
        assert same(picked, found[place])
    for missing in ("5", "-1", "nobody"):
        with pytest.raises(InputError, match=f"'a' holds no text '{missing}': it holds first, 0"):
            pick(files, missing, "'a'")

    found, path = texts([*"0123456", "x"]), tmp_path / f"b.{kind}"
    for number, start in enumerate(range(0, 8, 3)):
        written(shard_path(path, number), found[start : start + 3])
    assert [item.name for item in shards_of(path)] == [f"b-0000{n}.{kind}" for n in range(3)]
    read = list(read_all(openers(path)))
    assert [same(*pair) for pair in zip(found, read, strict=True)] == [True] * len(found)
    for record, place in (("5", 5), ("x", 7), ("7", 7)):
        assert same(pick(openers(path), record, "'a'")[0], found[place])
    written(path, found[:1])  # a file of the name itself goes before its shards
    assert len(list(read_all(openers(path)))) == 1


def test_a_text_whose_id_is_its_number(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    for number in range(6):
        written(shard_path(path, number), texts([str(2 * number), str(2 * number + 1)]))
    opened: list[str] = []
    real = open_saved

    def noted(file: IO[bytes], where: str) -> SavedFile:
        opened.append(where[-8:-5])
        return real(file, where)

    monkeypatch.setattr(module, "open_saved", noted)
    (found,) = pick(openers(path), "9", "'a'")
    assert (found.id, opened) == ("9", ["000", "004"])


@pytest.mark.parametrize("kind", ["npz", "jsonl"])
def test_other_texts_are_not_unpacked(kind, tmp_path, monkeypatch):
    files = openers(written(tmp_path / f"a.{kind}", texts(list("abcdef"))))
    made: list[str] = []
    room = "attnviz.storage.archive" if kind == "npz" else "attnviz.storage.saved_maps"
    real = module.from_document

    def noted(document: dict[str, str], *rest: Any) -> Attention:
        made.append(document["id"])
        return real(document, *rest)

    monkeypatch.setattr(f"{room}.from_document", noted)
    pick(files, "e", "'a'")
    assert made == ["e"]


def test_texts_and_lines_are_found_by_their_ids(tmp_path):
    files = openers(written(tmp_path / "a.npz", texts(["a", "b", "a"])))
    assert len(pick(files, "a", "'a'")) == 2
    path = written(tmp_path / "a.jsonl", texts(["a", "b"]))
    lines = path.read_text().replace(
        '{"schema":2,"kind":"maps","id":"b",', '{"id": "b", "schema": 1, '
    )
    path.write_text(lines)
    assert pick(openers(path), "b", "'a'")[0].id == "b"

    path = written(tmp_path / "c.jsonl", texts(["a", "b"]))
    with path.open("a") as file:
        file.write("{")
    read: Iterator[Attention] = read_all(openers(path))
    assert [next(read).id, next(read).id] == ["a", "b"]
    with pytest.raises(InputError, match=f"line 3 of '{path}' is not JSON"):
        next(read)
    with pytest.raises(InputError, match="there is no file"):
        list(read_all(openers(tmp_path / "no.npz")))


def test_the_head_to_show_first_is_saved_by_number():
    focus = {"self": Focus("0", "1", "trained to align")}
    document = to_document(attention_of(self_map(("a", "b"), 1, 2), focus=focus))
    saved = {"self": {"layer": 0, "head": 1, "why": "trained to align"}}
    assert document["provenance"]["focus"] == saved
    assert from_document(document).focus == focus
