"""The same from Python: `from attnviz import attend`."""

import re
import subprocess
import sys

import numpy as np
import pytest

import attnviz
from attnviz import Result, attend, load
from attnviz.core.errors import InputError, UsageError
from tests.invoke import OWN
from tests.invoke import attnviz as run

TEXT = "The cat sat"


def own(text: str = TEXT, target: str | None = None, **options: object) -> Result:
    return attend(text, target, **{"mechanism": "multi-head", **options})


def test_every_public_name_resolves_and_is_listed():
    assert attnviz.__all__ == sorted(attnviz.__all__)
    for name in attnviz.__all__:
        assert getattr(attnviz, name).__name__.rpartition(".")[2] == name  # or a module
        assert name in dir(attnviz)
    with pytest.raises(AttributeError, match="module 'attnviz' has no attribute 'atend'"):
        attnviz.atend  # noqa: B018


def test_importing_the_package_costs_nothing():
    code = (
        "import sys, attnviz; print({'numpy', 'rich', 'typer', 'torch'} & set(sys.modules));"
        "attnviz.attend; print('numpy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", "True False"]


def test_attend_gives_what_the_command_line_does():
    result = own()
    document = run("self", TEXT, *OWN, "-f", "json").json()
    assert result.tokens == ("The", "cat", "sat")
    assert result.weights.shape == (1, 4, 3, 3)
    assert np.array_equal(result.weights, np.array(document["maps"][0]["weights"], np.float32))

    cross = own("the cat", "le chat noir")
    assert (cross.main.stream, cross.tokens) == ("cross", ("le", "chat", "noir"))
    co = attend("the cat", "le chat", mechanism="co-two-stream")
    assert [item.stream for item in co.maps] == ["a-to-b", "b-to-a"]
    assert co.stream("b-to-a").weights.shape == (1, 4, 2, 2)
    with pytest.raises(UsageError, match="unknown stream 'b-to-c'"):
        co.stream("b-to-c")


SLOWER = [{}, {"layer": "0-2", "head": 3}, {"lens": "all"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        {"layer": 1},
        {"reduce": "max:layers"},
        *(pytest.param(chosen, marks=pytest.mark.slow) for chosen in SLOWER),
    ],
    ids=str,
)
def test_pictures_of_python_are_those_of_the_shell(chosen, tmp_path):
    text = "The red car is fast and the red car is loud."
    result = attend(text, model="pocket", **chosen)
    options = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    picture, page, table = (tmp_path / name for name in ("a.svg", "a.html", "a.txt"))
    given = ("--heatmap", picture, "--html", page, "-o", table, "-f", "none")
    assert run("self", text, "--model", "pocket", *options, *given).status == 0
    result.heatmap(tmp_path / "b.svg")
    result.save(tmp_path / "b.txt")
    assert (tmp_path / "b.svg").read_bytes() == picture.read_bytes()
    assert (tmp_path / "b.txt").read_bytes() == table.read_bytes()
    focus = re.compile(r'"focus":(null|\[.*?\])')
    assert focus.findall(result.page()) == focus.findall(page.read_text("utf-8")) != []


@pytest.mark.parametrize("value", ["1,3", [1, 3], (1, 3)])
def test_choices_can_be_given_as_python_values(value):
    assert np.array_equal(own(head=value).weights, own().weights[:, [1, 3]])
    assert own(head=2, layer=0, reduce="mean").weights.shape == (1, 1, 3, 3)
    labelled = own(labels=["O", "ANIMAL", "O"])
    assert [token.label for token in labelled.main.key_tokens] == [None, "ANIMAL", None]


def test_a_file_that_is_not_there_is_told():
    with pytest.raises(InputError, match=r"there is no file 'nope\.npz'"):
        load("nope.npz")
