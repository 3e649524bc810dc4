"""Stdin says whether a next line is there, and never waits for what is not needed."""

import gzip
import io
import os
from collections.abc import Iterator

import pytest

from attnviz.runs import inputs as stdin
from attnviz.runs.inputs import stdin_is_ready, stdin_lines


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The writing end of a pipe whose other end is stdin."""
    monkeypatch.setattr(stdin, "_open", [])
    read, write = os.pipe()
    with open(read, encoding="utf-8") as file:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", file)
        yield write
    os.close(write)


def test_pipes_that_idle_and_pipes_of_gzip(writing):
    os.write(writing, b"one\ntwo\nthr")
    lines = stdin_lines()
    assert next(lines) == b"one\n"
    assert stdin_is_ready()
    assert next(lines) == b"two\n"
    assert not stdin_is_ready()
    os.write(writing, b"ee\n")
    assert stdin_is_ready()
    assert next(lines) == b"three\n"
    assert not stdin_is_ready()
    os.write(writing, gzip.compress(b"one\ntwo\n"))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, writing)  # ends the pipe; the fixture closes what stands there now
    os.close(null)
    assert list(stdin_lines()) == [b"one\n", b"two\n"]
    assert stdin_is_ready()


def test_a_pipe_at_its_end_does_not_wait(monkeypatch):
    monkeypatch.setattr(stdin, "_open", [])
    read, write = os.pipe()
    os.write(write, b"one\n")
    os.close(write)
    with open(read, encoding="utf-8") as file:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", file)
        lines = stdin_lines()
        assert next(lines) == b"one\n"
        assert stdin_is_ready()
        assert list(lines) == []
        assert stdin_is_ready()


def test_what_cannot_idle_is_always_there(monkeypatch, tmp_path):
    monkeypatch.setattr(stdin, "_open", [])
    assert stdin_is_ready()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    assert list(stdin_lines()) == [b"one\n"]
    assert stdin_is_ready()
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\n")
    with path.open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        lines = stdin_lines()
        next(lines)
        assert stdin_is_ready()
        assert list(lines) == [b"two\n"]
        assert stdin_is_ready()
