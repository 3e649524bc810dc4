"""A campaign counts a class once, makes its line small, survives what kills it, and says so."""

import json
import multiprocessing
import warnings
from pathlib import Path

import pytest
from hypothesis import Phase, given, seed, settings

from attnviz.cli import app
from fuzz import campaign, world
from fuzz.campaign import Tally, class_of, report
from fuzz.run import Case, run
from fuzz.strategies import cases

CASE = Case((("self", "a b"), ("-q",), ("-f", "json")), {"t.txt": b"a"}, b"in")


@pytest.fixture
def broken_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in which --quiet is broken."""
    real = app.run

    def work(arguments: list[str]) -> int:
        if "-q" in arguments:
            raise ZeroDivisionError(len(arguments))
        return real(arguments)

    monkeypatch.setattr(app, "run", work)


@pytest.mark.usefixtures("broken_quiet")
def test_a_class_is_told_by_the_smallest_line(tmp_path, capsys):
    tally = Tally()
    for _ in range(2):
        tally.take(CASE, tmp_path / "0.log")
    kind = "raises_nothing: ZeroDivisionError in ?"
    assert tally.classes == {kind: 2}
    assert tally.found[kind]["line"].endswith("attnviz -q")
    assert (tmp_path / "001-0/RUN").read_text().startswith(f"# {kind}\n")
    (tmp_path / "0.log").write_text(json.dumps(tally.counts()) + "\n")
    assert report([tmp_path / "0.log"], [], 1.0) == 1
    assert f"2 × {kind}" in capsys.readouterr().out


def test_a_clean_campaign_ends_with_0(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fuzz.campaign.CHUNK", 3)
    for valid, status in ((1, 0), (0, 1)):
        tally = Tally()
        for number in range(3):
            must = number < valid
            tally.take(Case((("models",),), valid=must), tmp_path / "0.log")
        (tmp_path / "0.log").write_text(json.dumps(tally.counts()) + "\n")
        assert report([tmp_path / "0.log"], [], 1.0) == status
    assert "only 0 of 3 runs were valid" in capsys.readouterr().out
    assert report([tmp_path / "0.log"], ["hung: attnviz x"], 1.0) == 1


def test_failures_of_one_kind_are_one_class():
    told = [run(Case((("models",), ("-f", "json")))) for _ in range(2)]
    kinds = {class_of(one, "stays_small", f"{n} MiB") for n, one in enumerate(told, 7)}
    assert kinds == {"stays_small: models: 0 MiB"}


class Forked:
    """What `subprocess.Popen` gives, of a copy of this process, which has made its world."""

    def __init__(self, log: Path, runs: int, first: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which wait
            self.process = multiprocessing.get_context("fork").Process(
                target=campaign.main, args=([str(runs), "--seed", str(first), "--log", str(log)],)
            )
            self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode


@pytest.mark.slow
@pytest.mark.models
def test_a_short_campaign_prints_its_seed(tmp_path, capsys, monkeypatch):
    world.make()
    monkeypatch.setattr(campaign, "start", Forked)
    assert campaign.main(["12", "--seed", "8", "--processes", "1", "--into", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seed 8\n")
    assert "12 runs" in told


def test_a_seed_draws_the_same_command_lines():
    drawn: list[str] = []

    @settings(max_examples=20, database=None, deadline=None, phases=[Phase.generate])
    @given(cases(models=False))
    def draw(case: Case) -> None:
        drawn.append(case.line)

    for _ in range(2):
        seed(3)(draw)()
    assert drawn[: len(drawn) // 2] == drawn[len(drawn) // 2 :]
    assert len(set(drawn)) > 5
