"""Runs over many texts that are killed, interrupted or out of room, and what is left of them."""

import fcntl
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from attnviz.__main__ import main
from attnviz.runs import resumable
from attnviz.storage import writing
from tests.invoke import OWN, Done, attnviz, forked
from tests.patience import HUNG, wait_until

pytestmark = pytest.mark.slow

SMALL = (*OWN, "--head", "0", "-q", "-f", "none")
COUNT = 300
"""More than a chunk of records."""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    lines = [f"word {number} of {'a b c d e'[: number % 9 + 1]}" for number in range(COUNT)]
    lines[3], lines[270] = "\udcff", "\udcfe"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return path


def dying(how: str, place: int, *arguments: Any, stdout: int | None = None) -> Done:
    """A run that a signal hits, or its disk's end, at its `place`-th write, or byte."""

    def work() -> None:
        real, written = writing.write_whole, 0

        def write_whole(file: int, data: bytes) -> None:
            nonlocal written
            written += (counts := b'"question":' not in data[:30])  # a journal is of the clock
            if how != "limit" and counts and written == place:
                if how == "SIGKILL":
                    real(file, data[: len(data) // 2])
                os.kill(os.getpid(), getattr(signal, how))
            real(file, data)

        resumable.SECONDS = 0.02
        writing.write_whole = write_whole
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (place, place))
        elif how == "end":
            writing.PartialFile.keep = lambda _: os._exit(9)  # type: ignore[method-assign]
        sys.argv = ["attnviz", *map(str, arguments)]
        main()

    return forked(work, stdout)


def left(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def made(folder: Path) -> dict[str, bytes]:
    """What a run left that came to its end, but for the journal that says how many failed."""
    found = left(folder)
    assert not any(name.endswith(".unfinished") for name in found)
    return {name: data for name, data in found.items() if not name.endswith(".journal")}


def in_folder(folder: Path, name: str) -> tuple[Any, ...]:
    folder.mkdir(exist_ok=True)
    return ("-o", folder / name, "--on-error", folder / "rejects.jsonl")


@pytest.mark.core
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("maps.jsonl", ()),
        ("maps.csv", ("--shard-size", "70")),
        ("maps.npz", ("--shard-size", "40")),
        ("maps.parquet", ("--shard-size", "90")),
        ("other.tsv", ("--workers", "2")),
    ],
)
def test_killed_amid_a_record_the_bytes_are_the_same(name, more, texts, tmp_path):
    asked = ("self", "-i", texts, *SMALL, *more)
    whole = attnviz(*asked, *in_folder(tmp_path / "whole", name))
    assert whole.status == 1  # of two bad lines
    expected = made(tmp_path / "whole")
    assert expected["rejects.jsonl"].count(b"\n") == 2
    folder = tmp_path / "killed"
    files = in_folder(folder, name)
    draw = random.Random(name)
    for place, again in ((draw.randrange(2, 150), ()), (draw.randrange(2, 120), ("--resume",))):
        assert dying("SIGKILL", place, *asked, *files, *again).status == -signal.SIGKILL
        assert not (folder / name).exists()
    done = attnviz(*asked, *files, "--resume")
    assert (done.status, made(folder)) == (1, expected)


def test_pocket_killed_from_outside_goes_on(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"The red car number {n} is fast\n" for n in range(270)))
    (tmp_path / "out").mkdir()
    path, journal = tmp_path / "out" / "a.jsonl", tmp_path / "out" / ".a.jsonl.journal"
    asked = ("self", "-i", texts, "--layer", "last", "-q", "-f", "none", "-o")
    process = subprocess.Popen([sys.executable, "-m", "attnviz", *map(str, asked), str(path)])
    wait_until(lambda: process.poll() is not None or records(journal) > 0)
    process.kill()
    process.wait(timeout=HUNG)
    assert attnviz(*asked, path, "--resume").status == 0
    attnviz(*asked, tmp_path / "whole.jsonl")
    assert left(tmp_path / "out") == {"a.jsonl": (tmp_path / "whole.jsonl").read_bytes()}


@pytest.mark.parametrize(
    ("how", "status", "more"),
    [("SIGINT", 130, ()), ("SIGTERM", 143, ()), ("SIGTERM", 143, ("--workers", "2"))],
)
def test_a_signal_leaves_what_can_be_gone_on_with(how, status, more, texts, tmp_path):
    out = tmp_path / "out"
    asked = ("self", "-i", texts, *OWN, "-f", "none", *in_folder(out, "a.tsv"))
    done = dying(how, 100, *asked, *more)
    assert done.status == status
    # The 99 writes before are records, bad ones among them, and so is the one that Ctrl-C hit.
    assert done.err.splitlines()[-1] == "note: 100 records are done: continue with --resume"
    assert {*left(out)} == {".a.tsv.journal", ".a.tsv.unfinished", ".rejects.jsonl.unfinished"}
    assert (out / ".a.tsv.unfinished").read_bytes().endswith(b"\n")
    again = attnviz(*asked, "--resume")
    assert "note: resuming after 100 records" in again.err.splitlines()
    whole = ("self", "-i", texts, *OWN, "-f", "none", *in_folder(tmp_path / "whole", "a.tsv"))
    attnviz(*whole)
    assert made(out) == made(tmp_path / "whole")


def test_ctrl_c_waits_for_a_record_on_its_way_out(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text(f"{'a b c d e f g h ' * 8}\n" * 500)
    process = subprocess.Popen(
        [sys.executable, "-m", "attnviz", "self", "-i", str(texts), *OWN, "-f", "jsonl", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    room = fcntl.fcntl(pipe, 1032)  # F_GETPIPE_SZ
    wait_until(lambda: waiting_in(pipe) == room)  # a record is larger than a pipe
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HUNG)
    assert (process.returncode, err) == (130, b"")
    assert len(out) > room
    assert out.endswith(b"}\n")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["0"]


def test_a_full_disk_leaves_whole_records(texts, tmp_path):
    out = tmp_path / "out"
    asked = ("self", "-i", texts, *OWN, "-f", "none", *in_folder(out, "a.jsonl"))
    done = dying("limit", 100_001, *asked)
    assert done.status == 1
    *_, note, failed = done.err.splitlines()
    assert note.startswith("note: ")
    assert note.endswith(" records are done: continue with --resume")
    assert failed == f"attnviz: error: cannot write '{out / 'a.jsonl'}': File too large"
    part = (out / ".a.jsonl.unfinished").read_bytes()
    assert 90_000 < len(part) <= 100_001
    assert [json.loads(line)["schema"] for line in part.splitlines()] == [2] * part.count(b"\n")
    attnviz(*asked, "--resume")
    whole = ("self", "-i", texts, *OWN, "-f", "none", *in_folder(tmp_path / "whole", "a.jsonl"))
    attnviz(*whole)
    assert made(out) == made(tmp_path / "whole")


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_stdout_to_a_full_disk_leaves_whole_records(mode, texts, tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'"before"\n')
    with path.open(mode) as file:
        words = ("self", "-i", texts, *OWN, "-q", "-f", "jsonl")
        done = dying("limit", 50_001, *words, stdout=file.fileno())
    assert done.status == 1
    assert done.err.splitlines()[-1] == "attnviz: error: cannot write to stdout: File too large"
    lines = path.read_bytes().splitlines(keepends=True)
    assert (lines[0] == b'"before"\n') == (mode == "ab")
    assert all(line.endswith(b"\n") and json.loads(line) for line in lines)
    assert 40_000 < path.stat().st_size < 50_001


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_many_texts_to_a_full_device_are_one_line(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a b\nc d\n")
    with Path("/dev/full").open("wb") as full:
        words = ("self", "-i", texts, *OWN, "-q", "-f", "tsv")
        done = dying("limit", 1 << 30, *words, stdout=full.fileno())
    assert done.status == 1
    assert done.err == "attnviz: error: cannot write to stdout: No space left on device\n"


def test_a_file_is_whole_though_nobody_reads_stdout(texts, tmp_path):
    path = tmp_path / "a.tsv"
    command = f"{sys.executable} -m attnviz self -i {texts} {' '.join(OWN)} -q -f tsv"
    script = f"{command} -o {path} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False, timeout=HUNG)
    assert done.stdout.splitlines()[1:] == [b"1"]  # of two bad lines, which are all that is told
    assert done.stderr.count(b"\n") == 2
    attnviz("self", "-i", texts, *OWN, "-q", "-f", "none", "-o", tmp_path / "b.tsv")
    assert path.read_bytes() == (tmp_path / "b.tsv").read_bytes()


def test_other_options_or_inputs_are_refused(texts, tmp_path):
    path = tmp_path / "a.jsonl"
    asked = ("self", "-i", texts, *SMALL, "-o", path)
    dying("SIGKILL", 200, *asked)
    before = left(tmp_path)
    for more, message in (
        (("--mechanism", "scaled"), "--mechanism was 'multi-head' and is 'scaled'"),
        (("--layer", "0"), "--layer was not given and is '0'"),
    ):
        done = attnviz(*asked, "--resume", *more)
        assert done.status == 2
        assert done.mistake.startswith(f"'{path}' was started with different options: {message}")
    assert left(tmp_path) == before
    texts.write_bytes(texts.read_bytes().replace(b"word 9", b"Word 9"))
    assert "the input's checksum was" in attnviz(*asked, "--resume").mistake


def test_the_first_record_replaces_the_old_part(texts, tmp_path):
    path = tmp_path / "a.jsonl"
    asked = ("self", "-i", texts, *OWN, "-f", "none", "-o", path)
    dying("SIGINT", 50, *asked)
    before = left(tmp_path)
    assert attnviz(*asked, "--stream", "nosuch", "-q").status == 2
    assert left(tmp_path) == before
    done = attnviz(*asked)
    assert f"this run replaces an unfinished '{path}' of 51 records" in done.err
    assert {*made(tmp_path)} == {"texts.txt", "a.jsonl"}


def test_nothing_to_resume_and_everything_done(tmp_path):
    texts, shards = tmp_path / "texts.txt", ("--shard-size", "4")
    texts.write_bytes(b"a b\n\xff\nc d e\n" * 2 + b"f g\n" * 5)
    rejects = ("--on-error", tmp_path / "r.jsonl")
    for name, more in (
        ("a.jsonl", ()),
        ("b.npz", shards),
        ("c.tsv", ()),
        ("d.csv", shards),
        ("e.txt", shards + rejects),
    ):
        path = tmp_path / name
        asked = ("self", "-i", texts, *OWN, "-f", "none", "-o", path, *more, "--resume")
        assert f"note: nothing of '{path}' to resume" in attnviz(*asked).err
        before = left(tmp_path)
        done = attnviz(*asked)
        assert (done.status, done.out) == (1, b"")  # of two bad lines
        assert done.err == (
            f"note: '{path}' is complete: nothing is left to do\n"
            "attnviz: error: 2 records failed in the run that this one continues\n"
        )
        assert left(tmp_path) == before


def test_everything_done_is_no_failure(tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text('id,text\nx,a b\nx,a b\nx,a b c\n\ny,"d\n"\n')
    for name in ("a.jsonl", "a.tsv", "a.csv", "a.parquet"):
        shards = ("--shard-size", "2") if name == "a.parquet" else ()
        asked = ("self", "-i", texts, *SMALL, "-o", tmp_path / name, *shards)
        assert [attnviz(*asked).status, attnviz(*asked, "--resume").status] == [0, 0]


@pytest.mark.parametrize("name", ["a.jsonl", "a.tsv"])
def test_killed_behind_its_end_the_status_stays(name, texts, tmp_path):
    asked = ("self", "-i", texts, *SMALL, *in_folder(tmp_path / "out", name))
    assert dying("end", 0, *asked).status == 9
    journal = tmp_path / "out" / f".{name}.journal"
    assert json.loads(journal.read_bytes())["ended"]
    done = attnviz(*asked, "--resume", "-q")
    assert done.status == 1
    assert "failed in the run that this one continues" in done.err
    assert {*made(tmp_path / "out")} == {name, "rejects.jsonl"}
    again = attnviz(*asked, "--resume", "-q")
    assert (again.status, again.err) == (1, done.err)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("-o", "a.npz", "--resume"),
            "--resume cannot continue a part of 'a.npz': add --shard-siz",
        ),
        (("--resume",), "--resume is about the data file: add -o FILE"),
        (("--shard-size", "3"), "--shard-size is about the data file: add -o FILE"),
    ],
)
def test_what_cannot_be_resumed_is_told(more, message, texts, monkeypatch):
    monkeypatch.chdir(texts.parent)
    done = attnviz("self", "-i", texts, *OWN, *more)
    assert done.status == 2
    assert done.mistake.startswith(message)


def test_stdin_can_be_sharded_but_not_resumed(tmp_path):
    asked = ("self", "-", *OWN, "-q", "-f", "none", "-o", tmp_path / "a.jsonl")
    done = attnviz(*asked, "--resume", stdin=b"a\nb\n")
    assert done.status == 2
    assert done.mistake.startswith("--resume reads the texts again: give them by --input FILE")
    assert attnviz(*asked, "--shard-size", "2", stdin=b"a\nb\nc\n").status == 0
    assert {*left(tmp_path)} == {"a-00000.jsonl", "a-00001.jsonl"}


def test_a_bad_record_takes_its_number_in_the_shards(tmp_path):
    import pyarrow.parquet as pq

    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text":"a"}\n{"text":""}\n{"text":"c"}\n{"text":"d","id":"x"}\n')
    asked = ("self", "-i", texts, *OWN, "-q", "-f", "none", "--shard-size", "2")
    attnviz(*asked, "-o", tmp_path / "m.parquet")
    attnviz(*asked, "-o", tmp_path / "m.npz")
    tables = [
        pq.read_table(tmp_path / f"m-0000{n}.parquet", columns=["id", "record"]).to_pydict()
        for n in (0, 1)
    ]
    assert tables == [{"id": ["0"], "record": [0]}, {"id": ["2", "x"], "record": [2, 3]}]
    for name in ("m-00001.npz", "m.npz", "m.parquet", "m-00001.parquet"):
        done = attnviz("render", tmp_path / name, "--record", "x", "-f", "json")
        assert done.json()["text"] == "d"


def test_a_file_that_another_run_writes_is_left_alone(tmp_path):
    code = (
        "import sys; from pathlib import Path; from attnviz.storage.writing import PartialFile\n"
        "held = PartialFile(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    )
    texts, path = tmp_path / "texts.txt", tmp_path / "a.jsonl"
    texts.write_text("a b\n")
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()
    done = attnviz("self", "-i", texts, *SMALL, "-o", path)
    other.communicate(timeout=HUNG)
    assert done.status == 1
    assert done.mistake == f"cannot write '{path}': another run is writing it"
    assert attnviz("self", "-i", texts, *SMALL, "-o", path).status == 0


def records(journal: Path) -> int:
    return int(json.loads(journal.read_bytes())["records"]) if journal.exists() else 0


def waiting_in(pipe: int) -> int:
    """How many bytes a pipe holds."""
    answer = fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])
