"""stdout and stderr as a shell sees them: pipes, terminals, signals. Each run is a process."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from attnviz import __version__
from attnviz.cli.destinations import display_of_stdout
from tests.invoke import OWN, attnviz, fresh, on_terminal
from tests.patience import HUNG

SENTENCE = "The professor who supervised the student published the paper"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.slow
@pytest.mark.core
def test_head_ends_quietly():
    texts = "the cat sat on the mat and looked at the moon\n" * 300
    command = f"{sys.executable} -m attnviz self - {' '.join(OWN)} -f tsv -q"
    script = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], input=texts.encode(), capture_output=True, check=False
    )
    assert done.stderr == b""
    first, status = done.stdout.decode().splitlines()
    assert first.startswith("id\tstream")
    assert status == "0"


@pytest.mark.slow
def test_help_that_nobody_reads_is_no_failure():
    for words in ("--help", "--guide", "--schema maps", "heads --help", "heads --help-all"):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "attnviz", *words.split()]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        assert (words, done.returncode, done.stderr) == (words, 0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_notes_that_cannot_be_written_change_nothing():
    for words, status in ((("self", "The", "--top", "x"), 2), (("self", "The cat", "-v"), 0)):
        command = [sys.executable, "-m", "attnviz", *words, *OWN, "-f", "tsv"]
        whole = subprocess.run(command, capture_output=True, check=False)
        assert whole.stderr
        with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
        assert (done.returncode, done.stdout) == (status, whole.stdout)


def test_a_log_is_no_terminal():
    assert b"\x1b" not in fresh("align", "--help", GITHUB_ACTIONS="true").out


@pytest.mark.slow
@pytest.mark.core
def test_ctrl_c_ends_with_130_without_a_traceback():
    process = subprocess.Popen(
        [sys.executable, "-m", "attnviz", "self", "-", *OWN, "-f", "jsonl", "-q"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a b\n" * 5000)
    process.stdin.flush()
    process.stdout.readline()  # it is at work
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HUNG)
    assert (process.returncode, err) == (130, b"")


def test_a_terminal_gets_its_width_and_colours():
    done = on_terminal("self", SENTENCE, *OWN, columns=60)
    assert done.status == 0
    assert done.err.startswith("note: untrained")
    assert "\x1b[" in done.text
    shown = STYLE.sub("", done.text).splitlines()
    assert 40 < max(map(cell_len, shown)) <= 60


@pytest.mark.parametrize(
    ("system", "colors"), [("windows", "standard"), ("truecolor", "truecolor"), (None, None)]
)
def test_a_terminal_has_the_colours_that_it_names(system, colors, monkeypatch):
    console = SimpleNamespace(no_color=False, is_terminal=True, color_system=system, width=70)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    display = display_of_stdout(many=False)
    assert (display.colors, display.width) == (colors, 70)


def test_no_color_wins_over_force_color(monkeypatch):
    plain = on_terminal("self", SENTENCE, *OWN, NO_COLOR="1").text
    # Bold and dim are no colours; what a pipe gets has neither.
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]", plain)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert b"\x1b" not in attnviz("self", "a b", *OWN).out


def test_colour_is_for_terminals_or_forced(monkeypatch):
    plain = attnviz("self", "a b", *OWN)
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = attnviz("self", "a b", *OWN)
    assert b"\x1b" not in plain.out
    assert b"\x1b[" in forced.out
    shown = STYLE.sub("", forced.text).splitlines()
    assert [line.rstrip() for line in shown] == plain.lines
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("COLUMNS", "50")
    assert 30 < max(map(cell_len, attnviz("self", SENTENCE, *OWN).lines)) <= 50


def test_what_a_terminal_gets_or_waits_for():
    done = on_terminal("self", "a b", *OWN, "-f", "npz")
    assert (done.status, done.out) == (2, b"")
    assert done.mistake.startswith("format 'npz' is binary and stdout is a terminal: redirect it")
    for arguments in (("self", *OWN), ("cross", *OWN)):
        done = on_terminal(*arguments)
        assert done.status == 2
        assert done.mistake.startswith("no text was given: write it in quotes, or use --input")


@pytest.mark.slow
def test_python_dash_m_flushes_records_one_by_one():
    done = fresh("--version")
    assert (done.status, done.text, done.err) == (0, f"attnviz {__version__}\n", "")

    process = subprocess.Popen(
        [sys.executable, "-m", "attnviz", "self", "-", *OWN, "-f", "jsonl", "-q"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a b\n")
    process.stdin.flush()
    os.set_blocking(process.stdout.fileno(), True)
    assert process.stdout.readline().startswith(b'{"schema":2,"kind":"maps","id":"0"')
    process.communicate(timeout=HUNG)
    assert process.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
@pytest.mark.slow
def test_a_stream_that_the_shell_closed_is_no_crash(closed):
    command = f"{sys.executable} -m attnviz self 'a b' {' '.join(OWN)} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert bool(done.stdout) == (closed != ">&-")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "encoding"),
    [
        ([], {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        (["self"], {"PYTHONIOENCODING": "ascii"}),
        (["watch"], {"PYTHONIOENCODING": "ascii"}),
    ],
)
def test_help_is_shown_in_every_encoding(words, encoding):
    done = fresh(*words, "--help", **encoding)
    assert (done.status, done.err) == (0, "")
    assert b"Usage: attnviz" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--help"], 0, ""),
        (["self", "the cat", "-q", "-f", "csv"], 0, ""),
        (["self", "the cat", "-o", "a.json"], 1, "the working folder does not"),
        (["self", "the cat", "--model", "pocket", "--workers", "2"], 1, "the working folder does"),
        (["watch", "-o", "a.npz", "--", "a.py"], 1, "there is no script 'a.py'"),
        (["watch", "-o", "a.npz", "--", "-m", "this"], 1, "the working folder does not exist"),
    ],
)
def test_a_folder_that_is_gone_is_no_traceback(words, status, said, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"rmdir {gone}; exec {sys.executable} -m attnviz {shlex.join(words)}"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=gone, check=False,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
