"""Some random command lines keep every invariant; `nox -s fuzz` runs a campaign of more."""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from attnviz.commands.command import OPTIONS
from attnviz.core.registry import COMMANDS
from fuzz import world
from fuzz.campaign import VALID_SHARE, failures
from fuzz.invariants import broken_invariants
from fuzz.run import Case, run
from fuzz.strategies import cases, parameters

# The same ones each time: no test fails by chance.
drawn = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def check(case: Case) -> None:
    """Run a case; fail with the classes of what it breaks and the line that shows it."""
    wrong = failures(case)[1]
    assert not wrong, f"{wrong}\n{case.line}"


@pytest.mark.slow
@pytest.mark.core
@settings(drawn, max_examples=30)
@given(cases(models=False))
def test_a_few_random_lines_keep_every_invariant(case):
    check(case)


@settings(drawn, max_examples=100)
@given(cases())
@pytest.mark.slow
@pytest.mark.models
def test_random_lines_keep_every_invariant(case):
    check(case)


OWN = ("--mechanism", "multi-head:heads=2,size=8")
LINES = b'{"text": "the cat"}\n{bad\n\xff\n{"text": 3}\n\n{"text": "\x1b[31m"}\n{"text": "a car"}\n'
TOGETHER = (
    ("self", "--input", "t.jsonl", *OWN, "-f", "jsonl"),
    ("heads", "--input", "t.jsonl", *OWN, "--on-error", "r.jsonl"),
    ("heads", "--input", "t.jsonl", *OWN, "-f", "json"),
    ("align", "t.jsonl", "-f", "json"),
)


@pytest.mark.slow
@pytest.mark.parametrize("words", TOGETHER, ids=[words[0] for words in TOGETHER])
def test_two_workers_write_what_one_does(words):
    ran = [run(Case((words, *more), {"t.jsonl": LINES})) for more in ((), (("--workers", "2"),))]
    assert [broken_invariants(one) for one in ran] == [[], []]
    assert (ran[0].status, ran[0].out) == (ran[1].status, ran[1].out)


@pytest.mark.slow
@pytest.mark.models
def test_every_command_and_enough_valid_ones_are_drawn():
    world.make()
    found: list[Case] = []

    @settings(drawn, derandomize=False, max_examples=200)
    @given(cases())
    def draw(case: Case) -> None:
        found.append(case)

    # A server ends when it is told to, a view needs a terminal; the guide has no options.
    wanted = set(COMMANDS) - {"browse", "live"}
    for number in range(20):  # one seed alone may keep off a command, the same one each time
        seed(number)(draw)()
        if number > 1 and wanted <= {case.argv[0] for case in found if case.argv}:
            break
    else:
        pytest.fail(f"not drawn: {wanted - {case.argv[0] for case in found if case.argv}}")
    assert sum(case.valid for case in found) > VALID_SHARE * len(found)


def test_every_shared_option_is_drawn_for_some_command():
    names = {name for command in COMMANDS for item in parameters(command) for name in item.opts}
    shared = {option.names[0] for option in OPTIONS.values() if option.group != "python"}
    assert shared <= names
