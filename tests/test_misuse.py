"""Functions of Python given what they do not take: one line that says so, never another's error."""

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import attnviz
from attnviz import AttnvizError
from tests.hugging_face.tiny_models import gpt2

SAMPLES = Path(__file__).parents[1] / "sample_inputs"
TEXT, SHAPES = "The cat sat", str(SAMPLES / "shapes.png")


class Foreign:
    """A model of another library, which has modules of its own kind."""

    modules = (1,)


VALUES: dict[str, Any] = {
    "None": None, "zero": 0, "negative": -1, "huge": 10**30, "a half": 1.5, "nan": float("nan"),
    "infinite": float("inf"), "empty": "", "x": "x", "surrogate": "\ud800", "nul": "\0",
    "no list": [], "numbers": [1], "texts": ["a"], "nothings": [None], "no dict": {},
    "dict": {"a": 1}, "set": set(), "pair": (1, 2), "bytes": b"abc", "folder": ".",
    "objects": np.array([None, 1], dtype=object), "array": np.zeros((2, 2)), "True": True,
    "scalar": np.float32(1), "tensor": torch.zeros(2), "module": torch.nn.Linear(2, 2),
    "kind": torch.nn.Linear, "function": len, "iterator": iter([]), "object": object(), "i": 1j,
    "foreign": Foreign(), "mock": MagicMock(),
}  # fmt: skip
USUAL: dict[str, tuple[Any, ...]] = {
    "ablate": (TEXT,),
    "align": ([("a b", "c d")],),
    "attend": (TEXT,),
    "attend_many": ([TEXT],),
    "audio": (str(SAMPLES / "vowels.wav"),),
    "compare": (TEXT,),
    "from_dict": ({},),
    "from_numpy": (np.eye(2), ["a", "b"]),
    "heads": (TEXT,),
    "image": (SHAPES,),
    "lesson": ("scaling",),
    "load": ("no.npz",),
    "steps": (TEXT,),
    "why": (TEXT,),
    "explain": (TEXT,),
    "match": (TEXT, "The dog sat"),
    "cache": (TEXT,),
    "sources": (TEXT, "sample_inputs/sentences.txt"),
    "watch": (torch.nn.MultiheadAttention(4, 2),),
}
FAST = ("from_dict", "from_numpy", "load", "watch", "attend", "lesson")
SPENDS = ("workers", "engine")
"""What starts processes where it is right."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written after all lies in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def foreign_error(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """What a call raises that is no error of attnviz in one line; empty: nothing."""
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError:
        return ""  # Python's own, of a call that has too much or too little
    try:
        found = function(*arguments, **options)
        if isinstance(found, Iterator):
            deque(found, 0)
        elif isinstance(found, AbstractContextManager):
            with found:
                pass
    except AttnvizError as error:
        return "" if str(error).strip() and "\n" not in str(error) else f"lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def calls_of(name: str) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """A function with each value in each place, and by each name."""
    usual = USUAL[name]
    parameters = inspect.signature(getattr(attnviz, name)).parameters.values()
    named = [item.name for item in parameters if item.kind is item.KEYWORD_ONLY]
    for what, value in VALUES.items():
        for place in range(len(usual)):
            yield f"{place} {what}", (*usual[:place], value, *usual[place + 1 :]), {}
        yield f"{len(usual)} {what}", (*usual, value), {}
        for option in named:
            if option not in SPENDS or not isinstance(value, int):
                yield f"{option}={what}", usual, {option: value}


@pytest.mark.slow
@pytest.mark.usefixtures("few_references")
@pytest.mark.filterwarnings("ignore")  # of numpy, about what it is given
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in USUAL]
)
def test_a_wrong_value_of_any_parameter_is_one_line(name):
    function = getattr(attnviz, name)
    wrong = {
        what: said
        for what, arguments, options in calls_of(name)
        if (said := foreign_error(function, *arguments, **options))
    }
    assert not wrong, "\n".join(f"{what}: {said}" for what, said in wrong.items())


def test_every_function_is_tried():
    others = {"unload", "ablate_heads", "callbacks"}  # nothing to give; below; a module
    functions = {name for name in attnviz.__all__ if name.islower()}
    assert functions - others == USUAL.keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_reader_in_memory_is_one_line(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = gpt2(tmp_path / "gpt2")
    model, right = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    wrong = {}
    for what, value in VALUES.items():
        asked: dict[str, tuple[Any, ...]] = {
            "tokenizer": (attnviz.attend, (TEXT,), {"model": model, "tokenizer": value}),
            "processor": (attnviz.attend, (TEXT,), {"model": model, "processor": value}),
            "model": (attnviz.attend, (TEXT,), {"model": value, "tokenizer": right}),
            "heads of": (attnviz.heads, (TEXT,), {"model": value, "tokenizer": right}),
            "picture": (attnviz.image, (SHAPES,), {"model": model, "processor": value}),
            "ablate_heads": (attnviz.ablate_heads, (value, [(0, 0)]), {}),
            "heads": (attnviz.ablate_heads, (model, value), {}),
            "head": (attnviz.ablate_heads, (model, [value]), {}),
            "by": (attnviz.ablate_heads, (model, [(0, 0)]), {"by": value}),
        }
        for name, (function, arguments, options) in asked.items():
            if said := foreign_error(function, *arguments, **options):
                wrong[f"{name}={what}"] = said
    assert not wrong, "\n".join(f"{what}: {said}" for what, said in wrong.items())
