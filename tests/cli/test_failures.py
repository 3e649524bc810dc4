"""What becomes of lines that fail, in the commands that take many texts together."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attnviz.cli.outputs import Outputs
from attnviz.cli.plan import plan
from attnviz.core.errors import InputError, WorkerError
from attnviz.core.options import Many, Options
from attnviz.storage.texts import Text
from tests.invoke import OWN, attnviz

PAIRS = "The cat sleeps .\tLe chat dort .\nno target here\nThe dog eats .\tLe chien mange .\n"
TEXTS = '{"text": "the cat sat"}\n{"words": 3}\n{"text": "the dog ran"}\n'
NUMBERS = ("--mechanism", "multi-head:heads=2,size=8")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS)
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text(TEXTS)
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rows", "0-5"), "line 2 of stdin: --rows 0-5 does not lie in this text"),
        (("--window", "0-5"), "line 2 of stdin: --window 0-5 does not lie in this text"),
        (("--target", "mat[6]", "--lens", "effect"), "line 2 of stdin: --target 'mat[6]' is no"),
    ],
)
def test_what_one_text_of_many_lacks_fails_that_text_alone(options, said):
    line = ("self", "-", "--model", "pocket-lm", "-f", "json", "--fields", "text", *options)
    done = attnviz(*line, stdin=b"The cat sat on the mat\nA dog\nThe cat is on the mat\n")
    assert [document["text"][:7] for document in done.json()] == ["The cat", "The cat"]
    assert (done.status, said in done.err) == (1, True)
    assert attnviz("self", "A dog", *line[2:]).status == 2


def test_a_pair_that_cannot_be_aligned_is_rejected(pairs, tmp_path):
    rejects = tmp_path / "rejects.jsonl"
    done = attnviz("align", pairs, "--on-error", rejects)
    assert done.status == 1
    assert [bool(line) for line in done.lines] == [True, False, True]
    (line,) = rejects.read_text().splitlines()
    assert json.loads(line) == {
        "schema": 2,
        "kind": "reject",
        "line": 2,
        "reason": "an alignment needs a source and a target, separated by a tab",
        "text": "no target here",
    }


def test_align_stops_at_the_first_failure_where_asked(pairs, tmp_path):
    links = tmp_path / "links.txt"
    done = attnviz("align", pairs, "--on-error", "stop", "-o", links)
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "line 2 of" in done.err
    assert not links.exists()


def test_heads_go_on_without_a_failing_line_or_stop(texts, tmp_path):
    rejects = tmp_path / "rejects.jsonl"
    how = ("heads", "--input", texts, *NUMBERS, "--no-repeat", "-f", "json")
    done = attnviz(*how, "--on-error", rejects)
    assert (done.status, json.loads(done.text)["texts"]) == (1, 2)
    assert json.loads(rejects.read_text())["line"] == 2
    stopped = attnviz(*how, "--on-error", "stop")
    assert (stopped.status, stopped.out) == (1, b"")


@pytest.mark.parametrize("command", ["align", "heads"])
def test_rejects_never_take_the_place_of_the_output(command, pairs, texts, tmp_path):
    same = tmp_path / "same.tsv"
    given = {"align": (pairs,), "heads": ("--input", texts)}[command]
    done = attnviz(command, *given, "-o", same, "--on-error", same)
    assert done.status == 2
    assert "two outputs go to the same file" in done.err
    assert not same.exists()


def test_a_dead_worker_is_told_once(capsys, tmp_path):
    kept = tmp_path / "rejects.jsonl"
    with Outputs(plan(Options(many=Many(on_error=kept)))) as report:
        for number in range(3):
            report.skip(Text("0", "a", line=number + 1, raw="a"), WorkerError("a worker died"))
        report.skip(None, InputError("something else"))
        report.finish()
    assert capsys.readouterr().err.count("a worker died") == 1
    assert [json.loads(line)["line"] for line in kept.read_text().splitlines()] == [1, 2, 3]
    assert report.failures == 4


@pytest.mark.parametrize("large", [1e39, 1e200])
def test_numbers_too_large_to_multiply_are_one_line(large, tmp_path):
    matrix = np.diag([large, 1.0, -large])
    path = tmp_path / "w.npz"
    np.savez(path, inputs=matrix, w_query=matrix, w_key=matrix, tokens=["a", "b", "c"])
    done = attnviz("self", "--weights", path, "-f", "json")  # where a warning would be an error
    if large == 1e200:
        assert (done.status, "finite" in done.mistake) == (1, True)
    else:
        assert done.json()["maps"][0]["weights"][0][0][0] == [1, 0, 0]


@pytest.mark.slow
def test_what_a_library_warns_of_is_not_said():
    code = """
import sys, warnings
from attnviz.__main__ import main
from attnviz.features.steps import arithmetic
real = arithmetic.arithmetic
arithmetic.arithmetic = lambda *a, **k: warnings.warn("careful", RuntimeWarning) or real(*a, **k)
main()
"""
    for options, said in (((), ""), (("-W", "default"), "careful")):
        done = subprocess.run(
            [sys.executable, *options, "-c", code, "steps", "-f", "none", "-q"],
            capture_output=True,
            check=False,
            text=True,
        )
        assert (done.returncode, said in done.stderr, done.stderr == "") == (0, True, not said)


@pytest.mark.parametrize("suffix", [".tsv", ".npz", ".json", ".html", ".PNG"])
def test_rejects_of_another_suffix_are_refused(suffix, tmp_path):
    done = attnviz("self", "a b", "--on-error", tmp_path / f"r{suffix}")
    assert done.status == 2
    assert "holds JSON lines: end it in .jsonl" in done.mistake
    assert not list(tmp_path.iterdir())


def test_without_a_thread_a_page_is_written(tmp_path, monkeypatch):
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    given = ("self", "a b", *OWN, "-q", "-f", "none", "--html")
    assert attnviz(*given, pages[0]).status == 0

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert attnviz(*given, pages[1]).status == 0
    first, second = (page.read_text().replace(page.name, "") for page in pages)
    assert first == second
    (tmp_path / "a.txt").write_text("a b\nc d\n")
    done = attnviz("heads", "--input", tmp_path / "a.txt", *OWN, "--workers", 2)
    assert (done.status, "start no more threads" in done.mistake) == (1, True)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here fails to be read")
def test_a_disk_that_fails_is_one_line():
    done = attnviz("render", "/proc/self/mem")  # whose first page cannot be read
    assert (done.status, done.mistake) == (1, "cannot read a file: Input/output error")
