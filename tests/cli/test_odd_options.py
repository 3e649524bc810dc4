import pytest

from attnviz.cli.app import build_command
from attnviz.core.registry import COMMANDS
from tests.invoke import attnviz

OPTIONS = [
    (command, max(item.opts, key=len), item.type.name)
    for command in COMMANDS
    for item in build_command(command).params
    if item.param_type_name == "option" and not item.is_flag
]
"""Every option that takes a value, with its command and the type of the value."""


@pytest.mark.parametrize(("command", "option", "kind"), OPTIONS)
def test_an_empty_option_or_one_that_is_no_text(command, option, kind):
    said = f"{option} is empty: give a value, or leave it out"
    assert attnviz(command, option, "").mistake == said
    assert attnviz(command, f"{option}=").mistake == said
    odd = attnviz(command, option, "a\udcff")  # as Python reads bytes that are no UTF-8
    if kind != "path":  # a file may be called so
        assert odd.mistake == f"{option} is not valid UTF-8"
    assert odd.status == 2 or kind == "path"


def test_a_file_that_may_not_be_read_is_told():
    for command in COMMANDS:
        for item in build_command(command).params:
            assert not getattr(item.type, "readable", False), (command, item.name)


@pytest.mark.parametrize(
    "given",
    [
        ("self", "a b", "--mechanism", "scaled:size={}"),
        ("cross", "a", "b", "--mechanism", "co-parallel:size={}"),
        ("lesson", "linear", "--size", "{}"),
        ("lesson", "masking", "--length", "{}"),
        ("steps", "a b", "--mechanism", "scaled:size={}"),
        ("heads", "--input", "a.txt", "--top", "{}"),
        ("self", "-", "--workers", "{}"),
    ],
)
@pytest.mark.parametrize("number", [10**9 + 1, 2**63 - 1, 10**30])
def test_a_number_larger_than_anything_is_refused(given, number):
    done = attnviz(*(word.format(number) for word in given))
    assert done.status == 2
    assert given[-2] in done.mistake
    assert str(number) in done.mistake
