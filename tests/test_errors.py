from __future__ import annotations

import pytest

from attnviz.core import errors
from attnviz.core.errors import AttnvizError, UsageError, choose, did_you_mean


def test_every_error_is_of_one_family_with_a_status() -> None:
    family = [item for item in vars(errors).values() if isinstance(item, type)]
    children = [item for item in family if issubclass(item, AttnvizError)]
    assert {item.status for item in children} == {1, 2}
    assert [item for item in children if item.status == 2] == [UsageError]


def test_a_name_that_is_allowed_is_itself() -> None:
    assert choose("a", ("a", "b"), "letter") == "a"


def test_a_name_that_is_not_allowed_lists_and_guesses() -> None:
    with pytest.raises(UsageError) as caught:
        choose("tabel", ("table", "json"), "format")
    assert (
        str(caught.value)
        == "unknown format 'tabel': choose from table, json. Did you mean 'table'?"
    )
    assert did_you_mean("zzz", ("table", "json")) == ""
