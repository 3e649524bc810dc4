"""Every row of every table: it loads, and says what its code says."""

from __future__ import annotations

import inspect

import pytest

from attnviz.cli.app import COMMANDS
from attnviz.core import registry
from attnviz.core.registry import FORMATS, MECHANISMS, PICTURES, Entry

TABLES: dict[str, dict[str, Entry]] = {
    name: table
    for name, table in vars(registry).items()
    if isinstance(table, dict) and name.isupper()
}
ROWS = [
    pytest.param(entry, id=f"{table}-{name}")
    for table, entries in {**TABLES, "COMMANDS": COMMANDS}.items()
    for name, entry in entries.items()
]


@pytest.mark.parametrize("entry", ROWS)
def test_every_row_loads_what_it_names(entry: Entry) -> None:
    assert callable(entry.load())


@pytest.mark.parametrize("entry", ROWS)
def test_every_summary_is_one_sentence_on_one_line(entry: Entry) -> None:
    assert "\n" not in entry.summary
    assert entry.summary[0].isupper()
    assert entry.summary.endswith(".")
    assert len(entry.summary) <= 90


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanisms_summary_is_the_first_line_of_its_docstring(name: str) -> None:
    function = MECHANISMS[name].load()
    assert (inspect.getdoc(function) or "").split("\n")[0] == MECHANISMS[name].summary
    assert function.__name__ == name.replace("-", "_")
    assert function.__module__ == MECHANISMS[name].target.partition(":")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_summary_begins_as_its_help_does(name: str) -> None:
    first = (inspect.getdoc(COMMANDS[name].load()) or "").split("\n")[0]
    summary = COMMANDS[name].summary.rstrip(".")
    assert first.startswith(summary) or first.split(",")[0].split(":")[0].split(";")[0] in summary


def test_suffixes_are_distinct_and_their_formats_too() -> None:
    suffixes = [entry.suffix for entry in FORMATS.values() if entry.suffix]
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix.startswith(".") for suffix in suffixes)
    assert not set(suffixes) & set(registry.PICTURE_SUFFIXES)


def test_pictures_have_an_option_and_a_method_each() -> None:
    from attnviz import Result
    from attnviz.cli.options import OPTIONS

    for name in PICTURES:
        assert name in OPTIONS
        assert callable(getattr(Result, name))


def test_causal_forms_exist() -> None:
    for entry in MECHANISMS.values():
        assert entry.causal is None or entry.causal in MECHANISMS
