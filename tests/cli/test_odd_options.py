from __future__ import annotations

import pytest

from attnviz.cli.app import run


@pytest.mark.parametrize("option", ["--size", "--heads", "--seed"])
def test_an_own_layers_option_is_refused_where_it_would_change_nothing(
    option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["self", "the cat", option, "3"]) == 2
    assert f"{option} is for own layers" in capfd.readouterr().err
