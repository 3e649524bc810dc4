"""A run that is killed or interrupted anywhere can be resumed to the same result.

Each run is a forked child that sends itself a real signal before one of its acts on the disk.
"""

import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from attnviz.cli import app
from attnviz.cli.places import interrupt
from fuzz import world
from fuzz.invariants import broken_invariants
from fuzz.run import Case, prepare, run_in

LINES = '{"text": "the cat"}\n{bad\n{"text": "a dog ran"}\n{"words": 3}\n{"text": "the car"}\n'
ORIGIN = ("--mechanism", "multi-head:heads=2,size=8")
ACTS = ("write", "fsync", "ftruncate", "replace", "unlink", "open")
"""What a run does to a disk."""


def child(arguments: list[str], last: int, number: int) -> int:
    """The status of a run in a child that gets a signal at the last of so many acts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads, which wait
        process = os.fork()
    if process:
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return status if status >= 0 else 128 - status
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for file in range(3):
            os.dup2(nowhere, file)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, interrupt)  # as the program's own beginning does
        _strike(last, number)
        os._exit(app.run(arguments))
    finally:
        os._exit(99)


def _strike(last: int, number: int) -> None:
    done = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done == last:
                os.kill(os.getpid(), number)
            return real(*arguments, **more)

        return act

    for name in ACTS:
        setattr(os, name, counted(getattr(os, name)))


class Resuming(RuleBasedStateMachine):
    """One output, written by runs that end before their time, and at last by one that does not."""

    @initialize(
        suffix=st.sampled_from((".jsonl", ".tsv", ".csv", ".npz", ".json")),
        shards=st.sampled_from((None, 1, 2)),
        rejects=st.booleans(),
    )
    def start(self, suffix: str, shards: int | None, rejects: bool) -> None:
        """Choose a file, and make it once without a break."""
        grows = suffix in (".jsonl", ".tsv", ".csv")
        if not grows and shards is None:
            shards = 2
        self.top = world.home() / f"resume-{next(NUMBERS)}"
        self.words = [
            "self",
            "--input",
            "t.jsonl",
            *ORIGIN,
            "-q",
            "-f",
            "none",
            "-o",
            f"out{suffix}",
        ]
        self.words += [] if shards is None else ["--shard-size", str(shards)]
        self.words += ["--on-error", "r.jsonl"] if rejects else []
        self.case = Case((tuple(self.words),), {"t.jsonl": LINES.encode()})
        self.file = "out-00000" + suffix if shards else "out" + suffix
        whole = self.top / "whole"
        prepare(whole, self.case.files)
        done = run_in(whole, self.case)
        assert broken_invariants(done) == []
        self.expected, self.status = dict(done.after), done.status
        prepare(self.top / "part", self.case.files)
        self.begun = False

    @property
    def folder(self) -> Path:
        return self.top / "part/a/b/work"

    @rule(
        last=st.integers(1, 60),
        number=st.sampled_from((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
        resume=st.booleans(),
    )
    def strike(self, last: int, number: int, resume: bool) -> None:
        """Start a run that a signal ends, unless it finishes before."""
        here = Path.cwd()
        os.chdir(self.folder)
        try:
            words = self.words + (["--resume"] if resume and self.begun else [])
            # What stands in the way of a fresh run is another test's.
            if not (resume and self.begun):
                for path in self.folder.glob("*out*"):
                    path.unlink()
            status = child(words, last, number)
        finally:
            os.chdir(here)
        assert status in (self.status, 128 + number), (words, status)
        self.begun = True

    @precondition(lambda self: self.begun)
    @rule()
    def resume(self) -> None:
        """Resume; the files are then those of a run without a break."""
        case = Case(((*self.words, "--resume"),), {"t.jsonl": LINES.encode()})
        done = run_in(self.top / "part", case)
        assert broken_invariants(done) == [], broken_invariants(done)
        assert done.status == self.status, done.err
        assert done.after == self.expected

    @precondition(lambda self: self.begun and (self.folder / self.file).exists())
    @rule()
    def render(self) -> None:
        """A file under its final name is complete at any time."""
        if self.file.endswith((".tsv", ".csv")):
            assert (self.folder / self.file).read_bytes().endswith(b"\n")
            return
        here = Path.cwd()
        os.chdir(self.folder)
        try:
            assert child(["render", self.file], 10**9, signal.SIGTERM) == 0
        finally:
            os.chdir(here)

    def teardown(self) -> None:
        if hasattr(self, "top"):
            shutil.rmtree(self.top, ignore_errors=True)


NUMBERS = iter(range(10**9))

few = {"deadline": None, "derandomize": True, "database": None}
TestResuming = pytest.mark.slow(Resuming.TestCase)
TestResuming.settings = settings(
    **few,
    max_examples=15,
    stateful_step_count=6,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
