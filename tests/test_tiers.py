"""The fast tier leaves out no command and no contract, `pytest` alone only slow tests."""

import signal
from types import SimpleNamespace

import pytest

from attnviz.core.registry import COMMANDS
from tests.conftest import (
    SHORT_RUN,
    choose_tests,
    hear_signals,
    pytest_terminal_summary,
    without_turn,
)

CONTRACTS = (
    "tests/cli/test_commands.py",
    "tests/cli/test_formats.py",
    "tests/features/lessons/test_contract.py",
    "tests/features/layers/test_contract.py",
    "tests/mechanisms/test_contract.py",
    "tests/features/lenses/test_ask.py",
    "tests/features/measures/test_measures.py",
    "tests/test_registry.py",
)
"""The files whose tests walk over the rows of a table: none of them is slow."""


@pytest.fixture
def items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Every test of this run, where the run has them all."""
    found = request.session.items
    if len({item.path for item in found}) < 200:  # of 330: a shared run has some of them
        pytest.skip("only some of the tests were asked for")
    return found


def is_fast(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None


def test_the_fast_tier_runs_commands_and_contracts(items):
    ran = {
        item.callspec.params["command"]  # type: ignore[attr-defined]
        for item in items
        if is_fast(item) and item.name.startswith("test_every_command_does_its_work[")
    }
    assert ran == set(COMMANDS)
    for name in CONTRACTS:
        own = [item for item in items if item.nodeid.startswith(f"{name}::")]
        assert own, f"{name} has no tests"
        assert all(map(is_fast, own)), f"{name} has slow tests"
    for item in items:
        if any(item.get_closest_marker(name) for name in ("browser", "ray", "real")):
            assert not is_fast(item), item.nodeid


def test_the_core_is_small_and_of_every_kind(items, request):
    if request.config.getoption("markexpr") == "not slow":
        pytest.skip("the core is left out of this run")
    core = [item for item in items if item.get_closest_marker("core")]
    names = {item.nodeid.partition("[")[0] for item in core}
    assert {name.partition("::")[0] for name in names} >= {
        "tests/cli/test_resume.py",
        "tests/hugging_face/test_minilm.py",
        "tests/features/live/test_numbers.py",
        "tests/renderers/page/test_in_browser.py",
    }
    assert len(names) < 100
    assert not any(item.get_closest_marker(name) for item in core for name in ("ray", "real"))


ARGUMENTS = pytest.Config.ArgsSource.ARGS
ALONE = pytest.Config.ArgsSource.TESTPATHS


@pytest.mark.parametrize(
    ("asked", "source", "chosen"),
    [
        ({}, ALONE, SHORT_RUN),
        ({"all": True}, ALONE, ""),
        ({"markexpr": "slow"}, ALONE, "slow"),
        ({"keyword": "resume"}, ALONE, ""),
        ({}, ARGUMENTS, ""),
    ],
)
def test_slow_tests_are_left_out_and_a_line_says_so(asked, source, chosen):
    option = SimpleNamespace(**{"all": False, "markexpr": "", "keyword": "", **asked})
    config, lines = SimpleNamespace(option=option, args_source=source), []
    choose_tests(config)
    pytest_terminal_summary(SimpleNamespace(write_line=lines.append), config)
    assert (option.markexpr, len(lines)) == (chosen, chosen == SHORT_RUN)


@pytest.mark.parametrize(
    ("number", "usual"),
    [(signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)],
)
def test_signals_are_heard_where_they_were_ignored(number, usual):
    kept = signal.signal(number, signal.SIG_IGN)
    try:
        hear_signals()
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, kept)


def test_every_slow_test_has_its_turn_in_three_runs():
    def item(*markers):
        return SimpleNamespace(get_closest_marker=markers.__contains__)

    slow = [item("slow") for _ in range(10)]
    others = [item(), item("core", "slow")]
    runs = [[*without_turn([*others, *slow], first)] for first in (7, 8, 9)]
    assert {len(run) for run in runs} == {6, 7}
    assert all(sum(one in run for run in runs) == 2 for one in slow)
    assert not any(one in run for run in runs for one in others)
