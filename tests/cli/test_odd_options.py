from __future__ import annotations

import pytest

from attnviz.cli.app import run
from tests.invoke import attnviz


@pytest.mark.parametrize("option", ["--size", "--heads", "--seed"])
def test_an_own_layers_option_is_refused_where_it_would_change_nothing(
    option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["self", "the cat", option, "3"]) == 2
    assert f"{option} is for own layers" in capfd.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        ("self", "a b", "--mechanism", "scaled", "--size", "{}"),
        ("co", "a", "b", "--size", "{}"),
        ("lesson", "linear", "--size", "{}"),
        ("lesson", "masking", "--length", "{}"),
        ("steps", "a b", "--size", "{}"),
        ("corpus", "a.txt", "--top", "{}"),
        ("self", "-", "--workers", "{}"),
    ],
)
@pytest.mark.parametrize("number", [10**9 + 1, 2**63 - 1, 10**30])
def test_a_number_larger_than_anything_is_refused(given: tuple[str, ...], number: int) -> None:
    done = attnviz(*(word.format(number) for word in given))
    assert done.status == 2
    assert given[-2] in done.mistake
    assert str(number) in done.mistake
