"""A run that is killed between any two things that it does to a disk loses nothing."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnviz.core.errors import InputError, OutputError, UsageError
from attnviz.core.options import Choice, Many, Options, Origin
from attnviz.renderers import Renderer
from attnviz.runs import resumable as module
from attnviz.runs.journal import Journal, Progress, check_same_options, read_journal, run_options
from attnviz.runs.resumable import ResumableSink
from attnviz.storage import writing
from attnviz.storage.writing import PartialFile, beside
from tests.invoke import OWN, attnviz

RECORDS = 8
BAD = (1, 6, 7)
STARTED = {"command": "self", "--on-error": "", "--shard-size": ""}


class Killed(BaseException):
    """What stands for kill -9: nothing catches it."""


class Numbers:
    """A renderer with a beginning and an end, whose texts are numbers."""

    def __init__(self, first: int, begun: bool) -> None:
        self.started = begun

    def add(self, result: Any, views: Any) -> str:
        header = "" if self.started else "header\n"
        self.started = True
        return f"{header}{result} {'x' * result}\n"

    def finish(self) -> str:
        return "end\n"


def make(first: int, begun: bool) -> Renderer:
    return Numbers(first, begun)  # type: ignore[return-value]


def run(folder: Path, grows: bool, shard_size: int | None, resume: bool = False) -> ResumableSink:
    """One run over all records, from where it can begin."""
    rejects = folder / "rejects.jsonl"
    sink = ResumableSink(
        folder / "a.txt",
        make,
        grows=grows,
        shard_size=shard_size,
        rejects=rejects,
        options={"--on-error": str(rejects), "--shard-size": str(shard_size or 0)},
        resume=resume,
        notify=lambda _: None,
    )
    if not sink.complete:
        for number in range(sink.records, RECORDS):
            if number in BAD:
                sink.skip(f"{number} is bad\n".encode())
            else:
                sink.add(number, list)  # type: ignore[arg-type]
        sink.finish()
    return sink


def made(folder: Path) -> dict[str, bytes]:
    """What a run left, but for the journal, which stays to say that records failed."""
    return {name: data for name, data in content(folder).items() if name != ".a.txt.journal"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("grows", "shard_size"), [(True, None), (True, 3), (False, 3), (True, 1), (False, 4)]
)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.slow
def test_killed_anywhere_it_ends_in_the_same_bytes(grows, shard_size, half, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole, grows, shard_size)
    expected = made(whole)
    assert not any(name.startswith(".") for name in expected)
    assert shard_size or expected["a.txt"].startswith(b"header\n")
    monkeypatch.setattr(module, "SECONDS", -1)
    monkeypatch.setattr("os.fsync", lambda _: None)  # nobody pulls the plug
    held = descriptors(monkeypatch)
    deaths = 0
    for last in range(1, 1000):
        folder = tmp_path / str(last)
        folder.mkdir()
        with monkeypatch.context() as patch:
            killing_at(patch, last, half)
            try:
                run(folder, grows, shard_size)
                break
            except Killed:
                deaths += 1
                while held:  # as the system does
                    os.close(held.pop())
        again = run(folder, grows, shard_size, resume=True)
        assert (again.failures, made(folder)) == (len(BAD), expected)
        at_last = run(folder, grows, shard_size, resume=True)
        assert (at_last.complete, at_last.records, at_last.failures) == (True, RECORDS, len(BAD))
    assert deaths > 2 * RECORDS


def descriptors(patch: pytest.MonkeyPatch) -> set[int]:
    """What the system would close when it kills the process."""
    held: set[int] = set()
    real_open, real_close = writing.open_alone, PartialFile.close

    def open_alone(path: Path, mode: int) -> int | None:
        file = real_open(path, mode)
        held.update([] if file is None else [file])
        return file

    def close(self: PartialFile) -> None:
        held.discard(self.file)
        real_close(self)

    patch.setattr(writing, "open_alone", open_alone)
    patch.setattr(PartialFile, "close", close)
    return held


def killing_at(patch: pytest.MonkeyPatch, last: int, half: bool) -> None:
    """Kill the process before, or in the middle of, a thing that it does to the disk."""
    done = 0

    def counted(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def act(self: Any, *arguments: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done == last:
                if half and name == "write" and kind is PartialFile:
                    real(self, arguments[0][: len(arguments[0]) // 2])
                elif half:
                    real(self, *arguments, **more)
                raise Killed
            return real(self, *arguments, **more)

        patch.setattr(kind, name, act)

    for name in ("write", "sync", "keep"):
        counted(PartialFile, name)
    for name in ("write",):
        counted(Journal, name)
    counted(type(Path()), "unlink")


@pytest.mark.parametrize(("grows", "shard_size"), [(True, None), (True, 3), (False, 3)])
def test_what_ends_early_leaves_whole_records(grows, shard_size, tmp_path):
    place = tmp_path / "a.txt"
    said: list[str] = []
    sink = ResumableSink(
        place, make, grows=grows, shard_size=shard_size, options=STARTED, notify=said.append
    )
    for number in range(5):
        sink.add(number, list)  # type: ignore[arg-type]
    sink.leave()
    records = 5 if grows else 3
    assert said == [f"{records} records are done: continue with --resume"]
    found = read_journal(beside(place, "journal"))
    assert found.progress.records == records
    shards = {"a-00000.txt"} if shard_size else set()
    unfinished = {".a-00001.txt.unfinished" if shard_size else ".a.txt.unfinished"}
    assert {*content(tmp_path)} == {".a.txt.journal"} | shards | (unfinished if grows else set())


def test_nothing_unfinished_is_kept_without_reason(tmp_path):
    sink = ResumableSink(tmp_path / "a.txt", make, grows=True, options=STARTED)
    sink.leave()
    assert content(tmp_path) == {}
    sink = ResumableSink(tmp_path / "a.txt", make, grows=False, shard_size=2)
    for number in range(3):
        sink.add(number, list)  # type: ignore[arg-type]
    sink.leave()
    assert {*content(tmp_path)} == {"a-00000.txt"}


def test_where_every_record_failed_rejects_appear(tmp_path):
    sink = ResumableSink(
        tmp_path / "a.txt", make, grows=True, rejects=tmp_path / "r", options=STARTED
    )
    sink.skip(b"bad\n")
    sink.finish()
    assert made(tmp_path) == {"r": b"bad\n"}


@pytest.mark.parametrize("options", [None, STARTED])
def test_shards_of_an_earlier_run_go_when_the_first_new_one_is_whole(options, tmp_path):
    def write(count: int, end: str) -> set[str]:
        sink = ResumableSink(
            tmp_path / "a.txt", make, grows=False, shard_size=2, options=options, resume=False
        )
        for number in range(count):
            sink.add(number, list)  # type: ignore[arg-type]
        getattr(sink, end)()
        return {*content(tmp_path)} - {".a.txt.journal"}

    assert write(5, "finish") == {f"a-0000{number}.txt" for number in range(3)}
    (tmp_path / "a-2.txt").touch()  # this one is somebody's own
    assert write(1, "leave") == {*(f"a-0000{number}.txt" for number in range(3)), "a-2.txt"}
    assert write(3, "leave") == {"a-00000.txt", "a-2.txt"}
    assert write(1, "finish") == {"a-00000.txt", "a-2.txt"}


GOOD = {
    "schema": 1,
    "question": {"--shard-size": "2", "--on-error": "r.jsonl"},
    "records": 3,
    "failed": 1,
    "output": 70,
    "rejects": 12,
    "ended": False,
    "complete": False,
}
ODD: tuple[Any, ...] = (
    *(None, "3", -1, 3.5, 1 << 60, 10**30, True, [], [1], {}, {"a": {"b": []}}, "ä"),
)


def damaged() -> Iterator[tuple[str, bytes]]:
    """Journals that are none, each with a name."""
    data = journal_of(GOOD)
    for name in (*GOOD, "checksum"):
        document = json.loads(data)
        del document[name]
        yield f"without {name}", json.dumps(document).encode()
        for number, odd in enumerate(ODD):
            if type(odd) is not type(GOOD.get(name, "")) or odd in (-1, 1 << 60, 10**30):
                yield f"{name} {number}", journal_of({**GOOD, name: odd})
    yield from ((f"cut at {n}", data[:n]) for n in range(0, len(data) - 2, 7))
    yield from (
        (f"{n} turned", data[:n] + b"\xff" + data[n + 1 :]) for n in range(0, len(data), 11)
    )
    for text in ("null", "[]", "3", '"a"', "NaN", "[" * 100_000, '{"records":NaN}', "{}" * 2):
        yield text[:20], text.encode()
    yield "another number", data.replace(b'"records": 3', b'"records": 4')
    yield "one more field", journal_of({**GOOD, "more": 1})
    yield "failed more often", journal_of({**GOOD, "failed": 4})
    yield "option of no text", journal_of({**GOOD, "question": {"--on-error": 3}})
    yield "long", b" " * (1 << 21) + data


def journal_of(document: dict[str, Any]) -> bytes:
    """A journal's bytes with a checksum that is right."""
    plain = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    checksum = hashlib.sha256(plain).hexdigest()[:16]
    return json.dumps({**document, "checksum": checksum}, ensure_ascii=False).encode()


def test_a_damaged_newer_or_cut_journal_is_named(tmp_path):
    path = tmp_path / ".a.txt.journal"
    path.write_bytes(journal_of(GOOD))
    found = read_journal(path)
    assert found.progress == Progress(3, 1, 70, 12)
    names = list[str]()
    for name, data in damaged():
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"(damaged|schema .*): remove it to start again$"):
            read_journal(path)
        names.append(name)
    assert len(names) == len({*names}) > 120
    path.write_bytes(journal_of({**GOOD, "schema": 2}))
    with pytest.raises(InputError, match=r"has schema 2, not 1: remove it to start again"):
        read_journal(path)
    (tmp_path / ".a.txt.unfinished").write_bytes(b"12")
    with pytest.raises(OutputError, match="lacks a part of what was written: remove it"):
        PartialFile(tmp_path / "a.txt", 3)


def test_a_damaged_journal_is_one_line(tmp_path):
    texts, path, other = (tmp_path / name for name in ("t.txt", "a.jsonl", "r.jsonl"))
    texts.write_text("a b\nc d\n")
    other.write_text("mine\n")
    asked = ("self", "-i", texts, *OWN, "-q", "-f", "none", "-o", path)
    for _, data in list(damaged())[::9]:
        beside(path, "journal").write_bytes(data)
        for more in ((), ("--resume",)):
            done = attnviz(*asked, *more)
            assert done.status == 1
            assert done.mistake.endswith("remove it to start again")
    assert {one.name for one in tmp_path.iterdir()} == {*("t.txt", "r.jsonl", ".a.jsonl.journal")}


@pytest.mark.parametrize("more", [(), ("--shard-size", "2")])
@pytest.mark.parametrize("records", [0, 1, 3, 2, 10**15])
def test_a_run_touches_only_what_it_names(more, records, tmp_path):
    """Whatever a journal names, and however far it says that its run has come."""
    texts, path = tmp_path / "t.txt", tmp_path / "a.jsonl"
    texts.write_text("a b\nc d\n")
    mine = [tmp_path / name for name in ("mine.jsonl", ".mine.jsonl.unfinished", "b-00000.jsonl")]
    for one in mine:
        one.write_text("mine\n")
    asked = ("self", "-i", texts, *OWN, "-q", "-f", "none", "-o", path)
    question = {"--on-error": str(mine[0]), "--shard-size": more[-1] if more else "1"}
    journal = {**GOOD, "question": question, "records": records, "failed": 0}
    beside(path, "journal").write_bytes(journal_of(journal))
    assert attnviz(*asked, *more, "--resume").status == 2
    assert attnviz(*asked, *more).status == 0
    assert [one.read_text() for one in mine] == ["mine\n"] * 3
    made = {"a-00000.jsonl"} if more else {"a.jsonl"}
    assert {one.name for one in tmp_path.iterdir()} == {"t.txt", *(one.name for one in mine)} | made


def test_a_journal_of_more_records_than_its_input(tmp_path):
    texts, path = tmp_path / "t.txt", tmp_path / "a.jsonl"
    texts.write_text("a b\nc d\n")
    asked = ("self", "-i", texts, *OWN, "-q", "-f", "none", "-o", path)
    options = replace(Options(), origin=Origin(mechanism="multi-head"))
    options = replace(options, output=replace(options.output, output=path))
    Journal(run_options("self", options, texts), Progress(10**15)).write(beside(path, "journal"))
    beside(path, "unfinished").touch()
    done = attnviz(*asked, "--resume")
    assert done.status == 1
    assert "the unfinished run has 999999999999998 records more than its input" in done.mistake


def test_options_come_back_and_name_what_differs(tmp_path):
    path = tmp_path / "j"
    for progress in (Progress(3, 1, 70, 12), Progress(9, 2, 90, 24, True)):
        journal = Journal({"--layer": "3"}, progress)
        journal.write(path)
        assert (read_journal(path), {*content(tmp_path)}) == (journal, {"j"})
    place = tmp_path / "a.txt"
    place.write_text("a")
    options = Options(Origin(rows="3"), Choice(explain="dog"), many=Many(shard_size=7, workers=2))
    found = run_options("self", options, place)
    assert [found[name] for name in ("--input", "--rows", "--target", "--shard-size")] == [
        *(str(place), "3", "dog", "7")
    ]
    assert not {"--workers", "--model"} & {*found}

    before = {"--layer": "3", "command": "self"}
    check_same_options(before, {"command": "self", "--layer": "3"}, tmp_path)
    with pytest.raises(UsageError, match="different options: --layer was '3' and is '4'"):
        check_same_options(before, {"command": "self", "--layer": "4"}, tmp_path)
    with pytest.raises(UsageError, match="--layer was '3' and is not given"):
        check_same_options(before, {"command": "self"}, tmp_path)
    with pytest.raises(UsageError, match="--head was not given and is '1'"):
        check_same_options(before, {"command": "self", "--layer": "3", "--head": "1"}, tmp_path)


def test_a_file_s_name_may_be_no_utf_8(tmp_path):
    texts, path = tmp_path / "l\udce9.txt", tmp_path / "a.jsonl"
    texts.write_text("a b\nc d\n")
    asked = ("self", "-i", texts, *OWN, "-q", "-f", "none", "-o", path)
    options = run_options("self", Options(Origin(mechanism="multi-head")), texts)
    Journal(options, Progress(0)).write(beside(path, "journal"))
    assert (attnviz(*asked, "--resume").status, path.read_bytes().count(b"\n")) == (0, 2)
