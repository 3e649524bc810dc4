"""A run that is killed between any two things that it does to a disk loses nothing."""

from __future__ import annotations

import os
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

RECORDS = 8
BAD = (1, 6, 7)
STARTED = {"command": "self", "--rejects": "", "--shard-size": ""}


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
        options={"--rejects": str(rejects), "--shard-size": str(shard_size or 0)},
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


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("grows", "shard_size"), [(True, None), (True, 3), (False, 3), (True, 1), (False, 4)]
)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.slow
def test_killed_anywhere_it_goes_on_to_the_same_bytes(
    grows: bool, shard_size: int | None, half: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole, grows, shard_size)
    expected = content(whole)
    assert not any(name.startswith(".") for name in expected)
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
        assert again.failed == len(BAD) or again.old is None
        assert content(folder) == expected
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
def test_what_ends_early_leaves_whole_records_and_no_more(
    grows: bool, shard_size: int | None, tmp_path: Path
) -> None:
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
    assert found is not None
    assert found.progress.records == records
    shards = {"a-00000.txt"} if shard_size else set()
    unfinished = {".a-00001.txt.unfinished" if shard_size else ".a.txt.unfinished"}
    assert {*content(tmp_path)} == {".a.txt.journal"} | shards | (unfinished if grows else set())


def test_what_ends_before_its_first_record_leaves_nothing(tmp_path: Path) -> None:
    sink = ResumableSink(tmp_path / "a.txt", make, grows=True, options=STARTED)
    sink.leave()
    assert content(tmp_path) == {}


def test_without_options_nothing_unfinished_is_kept(tmp_path: Path) -> None:
    sink = ResumableSink(tmp_path / "a.txt", make, grows=False, shard_size=2)
    for number in range(3):
        sink.add(number, list)  # type: ignore[arg-type]
    sink.leave()
    assert {*content(tmp_path)} == {"a-00000.txt"}


def test_where_every_record_failed_only_the_rejects_appear(tmp_path: Path) -> None:
    sink = ResumableSink(
        tmp_path / "a.txt", make, grows=True, rejects=tmp_path / "r", options=STARTED
    )
    sink.skip(b"bad\n")
    sink.finish()
    assert content(tmp_path) == {"r": b"bad\n"}


def test_shards_of_another_run_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    (tmp_path / "a-00002.txt").touch()
    with pytest.raises(OutputError, match=r"'a-00002.txt' and 0 more are there from another run"):
        ResumableSink(tmp_path / "a.txt", make, grows=True, shard_size=2)
    (tmp_path / "a-2.txt").touch()  # this one is somebody's own
    (tmp_path / "a-00002.txt").unlink()
    ResumableSink(tmp_path / "a.txt", make, grows=True, shard_size=2)


def test_a_journal_that_is_damaged_or_newer_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".a.txt.journal"
    for text, message in (
        ("", "is not JSON"),
        ("{}", "is damaged: remove it"),
        ('{"schema":2}', "has schema 2, not 1: remove it"),
        ('{"schema":1,"question":{}}', "is damaged: remove it"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_journal(path)


def test_a_journal_comes_back_and_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "j"
    for progress in (Progress(3, 1, 70, 12), Progress(9, 2, 90, 24, True)):
        journal = Journal({"--layer": "3"}, progress)
        journal.write(path)
        assert read_journal(path) == journal
        assert {*content(tmp_path)} == {"j"}


def test_other_options_are_named_by_what_differs(tmp_path: Path) -> None:
    before = {"--layer": "3", "command": "self"}
    check_same_options(before, {"command": "self", "--layer": "3"}, tmp_path)
    with pytest.raises(UsageError, match="different options: --layer was '3' and is '4'"):
        check_same_options(before, {"command": "self", "--layer": "4"}, tmp_path)
    with pytest.raises(UsageError, match="--layer was '3' and is not given"):
        check_same_options(before, {"command": "self"}, tmp_path)
    with pytest.raises(UsageError, match="--head was not given and is '1'"):
        check_same_options(before, {"command": "self", "--layer": "3", "--head": "1"}, tmp_path)


def test_an_unfinished_part_that_was_cut_is_named(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.unfinished").write_bytes(b"12")
    with pytest.raises(OutputError, match="lacks a part of what was written: remove it"):
        PartialFile(tmp_path / "a.txt", 3)


def test_options_are_named_as_they_are_given(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    place.write_text("a")
    options = Options(Origin(seed=3), Choice(explain="dog"), many=Many(shard_size=7, workers=2))
    found = run_options("self", options, place)
    assert [found[name] for name in ("--input", "--seed", "--target", "--shard-size")] == [
        *(str(place), "3", "dog", "7")
    ]
    assert not {"--workers", "--model"} & {*found}
