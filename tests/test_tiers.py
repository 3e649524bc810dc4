"""The fast tier, `pytest -m "not slow"`, leaves out no command and no table's contract."""

import signal

import pytest

from attnviz.cli.app import COMMANDS
from tests.conftest import hear_ctrl_c

CONTRACTS = (
    "tests/cli/test_commands.py",
    "tests/cli/test_formats.py",
    "tests/features/lessons/test_contract.py",
    "tests/layers/test_contract.py",
    "tests/mechanisms/test_contract.py",
    "tests/sources/test_lens.py",
    "tests/analyses/test_measures.py",
    "tests/test_registry.py",
)
"""The files whose tests walk over the rows of a table: none of them is slow."""


@pytest.fixture
def items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Every test of this run, where the run has them all."""
    found = request.session.items
    if len({item.path for item in found}) < 100:
        pytest.skip("only some of the tests were asked for")
    return found


def is_fast(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None


def test_the_fast_tier_runs_every_command(items):
    ran = {
        item.callspec.params["command"]  # type: ignore[attr-defined]
        for item in items
        if is_fast(item) and item.name.startswith("test_every_command_does_its_work[")
    }
    assert ran == set(COMMANDS)


def test_the_fast_tier_holds_every_contract(items):
    for name in CONTRACTS:
        own = [item for item in items if item.nodeid.startswith(f"{name}::")]
        assert own, f"{name} has no tests"
        assert all(map(is_fast, own)), f"{name} has slow tests"


def test_what_needs_a_browser_ray_or_real_weights_is_slow(items):
    for item in items:
        if any(item.get_closest_marker(name) for name in ("browser", "ray", "real")):
            assert not is_fast(item), item.nodeid


def test_ctrl_c_is_heard_where_whoever_started_the_tests_has_it_ignored():
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        hear_ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, kept)
