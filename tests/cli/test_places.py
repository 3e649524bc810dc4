"""No output is an input, no two outputs are one file, and what others made stays."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from attnviz.commands.command import Run
from attnviz.core.options import Options
from attnviz.core.registry import FORMATS
from attnviz.renderers.reports import formats_of
from tests.invoke import OWN, attnviz

TEXTS = b'{"text":"a b"}\n{"text":"c d e"}\n'


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that commands read."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "i.jsonl").write_bytes(TEXTS)
    (folder / "s.txt").write_bytes(b"a b\nc d\n")
    (folder / "p.tsv").write_bytes(b"the cat\tle chat\n")
    (folder / "f.tsv").write_bytes(b"cat\t3\n")
    (folder / "gold.txt").write_bytes(b"0-0 1-1\n")
    (folder / "s.json").write_bytes(b'{"inputs":[[1,0],[0,1]]}')
    (folder / "p.png").write_bytes(b"a picture")
    (folder / "t.conllu").write_bytes(b"1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n\n")
    for name in ("w.npz", "m.jsonl", "n-00000.npz"):
        attnviz("self", "a b", *OWN, "-q", "-f", "none", "-o", folder / name)
    return folder


@pytest.fixture
def here(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with those files."""
    copytree(samples, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def held(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


READ: list[tuple[list[str], str]] = [
    (["self", "--input", "i.jsonl", *OWN, "-o", "i.jsonl"], "i.jsonl"),
    (["self", "--input", "i.jsonl", *OWN, "--resume", "-o", "i.jsonl"], "i.jsonl"),
    (["self", "--input", "i.jsonl", *OWN, "--on-error", "i.jsonl"], "i.jsonl"),
    (["self", "--weights", "w.npz", "-o", "w.npz"], "w.npz"),
    (["self", "a b", *OWN, "--group", "s.txt", "-o", "s.txt"], "s.txt"),
    (["self", "i.jsonl", *OWN, "-o", "i.jsonl"], "i.jsonl"),
    (["cross", "--input", "p.tsv", *OWN, "-o", "p.tsv"], "p.tsv"),
    (["cross", "a b", "c", *OWN, "--score", "gold.txt", "-o", "gold.txt"], "gold.txt"),
    (["cross", "--input", "p.tsv", "-o", "p.tsv"], "p.tsv"),
    (["heads", "--input", "s.txt", *OWN, "-o", "s.txt"], "s.txt"),
    (["heads", "--treebank", "t.conllu", "--on-error", "t.conllu"], "t.conllu"),
    (["heads", "--input", "s.txt", *OWN, "-o", "s.txt"], "s.txt"),
    (["heads", "--input", "s.txt", *OWN, "--frequencies", "f.tsv", "-o", "f.tsv"], "f.tsv"),
    (["align", "p.tsv", "-o", "p.tsv"], "p.tsv"),
    (["align", "p.tsv", "--score", "gold.txt", "-o", "gold.txt"], "gold.txt"),
    (["render", "m.jsonl", "-o", "m.jsonl"], "m.jsonl"),
    (["render", "n.npz", "-o", "n-00000.npz"], "n-00000.npz"),
    (["compare", "w.npz", "m.jsonl", "-o", "w.npz"], "w.npz"),
    (["image", "p.png", "--model", "nosuch", "--picture", "p.png"], "p.png"),
    (["steps", "s.json", "-o", "s.json"], "s.json"),
    (["lesson", "masking", "--text", "s.txt", "-o", "s.txt"], "s.txt"),
]
HOWS = ("itself", "..", "link", "hard link", "capitals")
"""How an output may be a file that is read; each way is tried with one input and one argument."""


@pytest.mark.parametrize(
    ("arguments", "read", "how"),
    [(*row, how) for place, row in enumerate(READ) for how in (HOWS if place < 2 else HOWS[:1])],
)
def test_an_output_that_is_an_input_is_refused(how, arguments, read, here):
    (here / "sub").mkdir()
    spelt = {
        "itself": read,
        "..": f"sub/../{read}",
        "link": f"sub/{read}",
        "hard link": f"sub/{read}",
        "capitals": read.upper() if arguments[0] != "render" else read,
    }[how]
    if how == "link":
        (here / spelt).symlink_to(here / read)
    elif how == "hard link":
        (here / spelt).hardlink_to(here / read)
    before = held(here)
    done = attnviz(*arguments[:-1], spelt)
    assert (done.status, held(here)) == (2, before)
    assert done.mistake == f"'{spelt}' would replace '{read}', which is read: name another"


@pytest.mark.parametrize(
    "more",
    [
        ["--heatmap", "x.png", "--grid", "sub/../x.png"],
        ["--heatmap", "x.png", "--grid", "X.PNG"],
        ["--heatmap", "é.png", "--grid", "e\u0301.png"],
        ["--heatmap", "x.png", "--picture", "link.png"],
        ["-o", "x.json", "--on-error", "sub/../x.json"],
        ["-o", "x.json", "--on-error", ".x.json.partial"],
        ["-o", "x.jsonl", "--on-error", ".x.jsonl.journal"],
        ["--html", "x.html", "--on-error", "x-0.html", "c d"],
        ["-o", "x.npz", "--shard-size", "1", "--on-error", "x-00001.npz", "c d"],
        ["--html", "x.html", "--on-error", "x.html"],
    ],
)
def test_two_outputs_are_never_one_file(more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.png").symlink_to("x.png")
    done = attnviz("self", "a b", *OWN, *more)
    assert done.status == 2
    assert done.mistake.startswith("two outputs go to the same file: name different ones")
    assert {path.name for path in tmp_path.iterdir()} == {"sub", "link.png"}


@pytest.mark.slow
def test_files_beside_one_another_are_two(here):
    places = ("--grid", "i-0.png", "--html", "i.html", "--on-error", "r.jsonl")
    done = attnviz("self", "-i", "i.jsonl", *OWN, "-q", "-f", "none", "-o", "i-0.jsonl", *places)
    assert (done.status, done.err) == (0, "")
    found = {item.name for item in here.iterdir() if item.name.startswith(("i", "r"))}
    pictures = {"i-0-0.png", "i-0-1.png", "i-0.html", "i-1.html"}
    assert found == {"i.jsonl", "i-0.jsonl", "r.jsonl", *pictures}


def test_the_files_of_a_model_are_read_and_others_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    done = attnviz("self", "a b", "--model", ".", "-o", "config.json")
    assert done.mistake == "'config.json' would replace 'config.json', which is read: name another"
    (tmp_path / "maps.json").write_text("{}")
    assert "would replace" not in attnviz("self", "a b", "--model", ".", "-o", "maps.json").err


@pytest.mark.parametrize(
    ("stream", "mode", "arguments", "message"),
    [
        ("stdin", "rb", ["-", "-o", "i.jsonl"], "stdin is 'i.jsonl'"),
        ("stdin", "rb", ["-", "--on-error", "i.jsonl"], "stdin is 'i.jsonl'"),
        ("stdout", "ab", ["a b", "-o", "i.jsonl"], "stdout goes to 'i.jsonl'"),
        ("stdout", "ab", ["--input", "i.jsonl"], "stdout goes to 'i.jsonl'"),
        ("stderr", "ab", ["--input", "i.jsonl"], None),
    ],
)
@pytest.mark.slow
def test_a_stream_to_the_same_file_is_refused(stream, mode, arguments, message, tmp_path):
    (tmp_path / "i.jsonl").write_bytes(TEXTS)
    with (tmp_path / "i.jsonl").open(mode) as file:
        streams = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1} | {stream: file}
        done = subprocess.run(
            [sys.executable, "-m", "attnviz", "self", "--input", "jsonl:-", *arguments[1:], *OWN]
            if "-" in arguments
            else [sys.executable, "-m", "attnviz", "self", *arguments, *OWN],
            cwd=tmp_path,
            check=False,
            **streams,  # type: ignore[call-overload]
        )
    assert done.returncode == 2
    if message is not None:
        assert message in done.stderr.decode()
        assert (tmp_path / "i.jsonl").read_bytes() == TEXTS


def test_wrong_places_and_failures_leave_nothing(tmp_path, monkeypatch):
    for more in (
        ("--html", tmp_path / "a.pdf"),
        ("--html", tmp_path / "nowhere" / "a.html"),
        ("--grid", tmp_path / "a.html"),
        ("-f", "nosuch"),
    ):
        done = attnviz("self", "a b", *OWN, "-o", tmp_path / "out.json", *more)
        assert done.status in (1, 2)
        assert done.mistake
        assert list(tmp_path.iterdir()) == []

    from attnviz.cli import destinations

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(destinations, "PageFiles", fail)
    more = ("-o", tmp_path / "a.npz", "--html", tmp_path / "a.html")
    assert attnviz("self", "a b", *OWN, *more).status == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "suffix",
    [".html", *(pytest.param(name, marks=pytest.mark.slow) for name in (".png", ".svg", ".pdf"))],
)
def test_numbered_files_replace_only_what_attnviz_made(suffix, tmp_path):
    asked: tuple[object, ...] = ("self", "a b", "c d", *OWN, "-q", "-f", "none")
    option = "--html" if suffix == ".html" else "--grid"
    path, first = tmp_path / f"pg{suffix}", tmp_path / f"pg-0{suffix}"
    first.write_bytes(b"mine: attnviz")
    done = attnviz(*asked, option, path)
    assert done.status == 2
    assert done.mistake.startswith(f"'{first}' exists and is not by attnviz: each text gets a file")
    assert first.read_bytes() == b"mine: attnviz"
    if suffix == ".html":
        assert attnviz(*asked, option, path, "--overwrite").status == 0
    else:
        first.unlink()
        assert attnviz(*asked, option, path).status == 0
    made_before = first.read_bytes()
    first.write_bytes(made_before + b" ")
    assert attnviz(*asked, option, path).status == 0
    assert len(first.read_bytes()) <= len(made_before)


def test_what_is_no_file_is_never_read(tmp_path):
    asked = ("self", "a b", "c d", *OWN, "-q", "-f", "none", "--html", tmp_path / "pg.html")
    lost, pipe, zeros, folder = (tmp_path / f"pg-{number}.html" for number in (9, 10, 11, 12))
    os.mkfifo(pipe)  # which nobody writes to: who reads it waits
    zeros.symlink_to("/dev/zero")
    lost.symlink_to(tmp_path / "nowhere" / "a")
    folder.mkdir()
    for path in (pipe, zeros, folder, lost):
        done = attnviz(*asked)
        assert done.status == 2
        assert done.mistake.startswith(f"'{path}' exists and is not by attnviz")
        path.rmdir() if path is folder else path.unlink()
    assert attnviz(*asked).status == 0


def test_options_hold_what_was_given_but_outputs(tmp_path, monkeypatch):
    found: list[Options] = []

    def take(run: Run, *_: object) -> int:
        found.append(run.options)
        return 0

    monkeypatch.setattr("attnviz.commands.run.run_texts", take)
    attnviz("self", "a b", "--top", "3", "--weights", "w", "-o", "o", "--on-error", "r.jsonl")
    assert {value for _, value in found[0].given} > {"a b", "w"}
    assert not {value for _, value in found[0].given} & {"o", "r.jsonl", "3"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in formats_of("maps") if FORMATS[name].suffix])
def test_a_file_holds_what_its_suffix_says_or_is_refused(name, here):
    suffix = FORMATS[name].suffix
    for command in (["align", "p.tsv"], ["align", "p.tsv", "--score", "gold.txt"]):
        path = here / f"out{suffix}"
        done = attnviz(*command, "-q", "-f", "none", "-o", path)
        assert done.status == (2 if suffix in (".npz", ".parquet") else 0)
        assert path.exists() == (done.status == 0)
        asked = attnviz(*command, "-q", "-f", name)
        if asked.status == 0 and suffix != ".txt":
            assert asked.out == path.read_bytes()
        path.unlink(missing_ok=True)


OF_A_TEXT = ("self", "a b", *OWN, "-q", "-f", "none")
OUTPUTS: dict[str, tuple[object, ...]] = {
    **{
        f"{name} maps": OF_A_TEXT
        for name in (".json", ".jsonl", ".csv", ".tsv", ".npz", ".parquet")
    },
    **{f"{name} page": OF_A_TEXT for name in (".html", ".htm")},
    **{f"{name} picture": OF_A_TEXT for name in (".png", ".svg", ".pdf")},
    ".tsv heads": ("heads", "a b", *OWN, "-q", "-f", "none"),
    ".npz steps": ("steps", "-q", "-f", "none"),
    ".json steps": ("steps", "-q", "-f", "none"),
    ".tsv list": ("models", "--mechanisms", "-q", "-f", "none"),
}
OPTION = {"page": "--html", "picture": "--grid"}


@pytest.mark.parametrize("what", OUTPUTS)
def test_a_file_of_another_program_stays(what, tmp_path):
    suffix, _, kind = what.partition(" ")
    path, option = tmp_path / f"a{suffix}", OPTION.get(kind, "-o")
    mine = b"mine" if suffix == ".npz" else b"id,text\nmine: attnviz\n"
    path.write_bytes(mine)
    done = attnviz(*OUTPUTS[what], option, path)
    assert (done.status, path.read_bytes()) == (2, mine)
    assert done.mistake == (
        f"'{path}' exists and is not by attnviz: choose another name, or give --overwrite"
    )
    assert [one.name for one in tmp_path.iterdir()] == [path.name]  # nothing is half written
    assert attnviz(*OUTPUTS[what], option, path, "--overwrite").status == 0
    written = path.read_bytes()
    assert written != mine
    assert attnviz(*OUTPUTS[what], option, path).status == 0  # now it is attnviz's own
    path.write_bytes(b"")  # as mktemp makes it
    assert attnviz(*OUTPUTS[what], option, path).status == 0
    assert len(path.read_bytes()) == len(written)


@pytest.mark.parametrize("name", ["a.txt", "a.json"])
def test_what_has_no_mark_wants_overwrite(name, tmp_path):
    """A table for people has none, nor has a document that --fields has cut."""
    path = tmp_path / name
    more = ("--fields", "id,text") if name == "a.json" else ()
    assert attnviz(*OF_A_TEXT, *more, "-o", path).status == 0
    assert attnviz(*OF_A_TEXT, *more, "-o", path).status == 2
    assert attnviz(*OF_A_TEXT, *more, "-o", path, "--overwrite").status == 0


@pytest.mark.parametrize("command", ["self", "heads", "live"])
def test_help_says_the_rule_once(command):
    assert attnviz(command, "--help-all").text.count("--overwrite  ") == 1
