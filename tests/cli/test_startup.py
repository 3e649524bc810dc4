"""What is not needed is not imported, and a shell can complete names."""

from functools import partial
from pathlib import Path

import pytest

from tests.invoke import OWN, attnviz, fresh, imported

HEAVY = {"torch", "transformers", "matplotlib"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("models",), ("models", "--mechanisms")]
)
def test_listing_and_help_import_nothing_heavy(arguments):
    loaded, done = imported(*arguments)
    assert done.status in (0, 2)
    assert not loaded & (HEAVY | {"numpy"})
    assert "attnviz" in loaded


@pytest.mark.slow
@pytest.mark.parametrize("command", ["self", "heads"])
def test_an_own_layer_needs_no_torch(command):
    loaded, done = imported(command, "a b c", *OWN)
    assert done.status == 0
    assert not loaded & HEAVY


POCKET = ("--model", "pocket", "-q")
LM = ("--model", "pocket-lm", "-q")
SAMPLES = Path(__file__).parents[2] / "sample_inputs"
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.core
@pytest.mark.parametrize(
    "arguments",
    [
        ("steps",),
        ("ablate", "The cat sat", "--head", "2.0", "--target", "2", *POCKET),
        slow(("cross", "It.", *POCKET)),
        slow(("heads", "The cat sat", *POCKET)),
        slow(("self", "The cat sat", "--lens", "norm", *POCKET)),
        ("heads", "The cat sat", *LM),
        slow(("self", "The cat sat", "--generate", "3", *LM)),
        slow(("image", SAMPLES / "shapes.png", "-q")),
        slow(("heads", "--input", SAMPLES, "-f", "json", "-q")),
    ],
    ids=str,
)
def test_a_model_inside_needs_no_torch(arguments):
    loaded, done = imported(*arguments)
    assert done.status == 0, done.err
    assert not loaded & (HEAVY | {"scipy", "safetensors", "array_api_compat"})
    assert "numpy" in loaded


@pytest.mark.slow
def test_rendering_and_completion_need_no_torch(tmp_path):
    saved = attnviz("self", "a b", *OWN, "-f", "npz").out
    loaded, done = imported("render", "-", "--grid", tmp_path / "g.png", stdin=saved)
    assert done.status == 0
    assert not loaded & {"torch", "transformers"}
    assert {"numpy", "matplotlib"} <= loaded, "the probe sees no import"
    assert (tmp_path / "g.png").exists()
    assert completed("attnviz", "mo") == ["models"]
    assert {"causal", "causal-linear"} <= set(completed("attnviz", "self", "--mechanism", "c"))
    assert completed("attnviz", "self", "--mechanism", "m") == ["multi-head", "multi-query"]
    assert completed("attnviz", "self", "--for") == ["--format"]
    assert completed("attnviz", "self", "-f", "js") == ["json", "jsonl"]


def completed(*words: str) -> list[str]:
    done = fresh(
        _ATTNVIZ_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(words),
        COMP_CWORD=str(len(words) - 1),
    )
    assert done.status == 0
    return done.lines


def test_completion_imports_nothing_heavy(monkeypatch):
    monkeypatch.setenv("_ATTNVIZ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "attnviz self --mechanism multi-h")
    monkeypatch.setenv("COMP_CWORD", "3")
    loaded, done = imported()
    assert done.text.strip() == "multi-head"
    assert not loaded & (HEAVY | {"numpy"})
