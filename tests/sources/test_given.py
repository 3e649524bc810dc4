"""Numbers from a file: weights of any shape, projections, saved maps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Origin
from attnviz.core.registry import Command
from attnviz.models import Source
from attnviz.models.open import check_origin, open_source
from tests.asked import over_itself, over_source
from tests.samples import attention_of, self_map, weights_of


def source_of(path: Path, command: Command = "self", **options: Any) -> Source:
    return open_source(Origin(weights=path, **options), command)


def written(path: Path, **members: Any) -> Path:
    lists = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in members.items()}
    path.write_text(json.dumps(lists))
    return path


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (4, 2, 3, 3)])
def test_weights_of_two_to_four_axes_are_taken(tmp_path, shape):
    weights = weights_of((1,) * (4 - len(shape)) + shape).reshape(shape)  # type: ignore[arg-type]
    path = written(tmp_path / "m.json", weights=weights, tokens=["a", "b", "c"])
    attention = over_itself(source_of(path), "")
    assert attention.weights.shape == (1,) * (4 - len(shape)) + shape
    assert np.array_equal(attention.weights.reshape(shape), weights)
    assert attention.tokens == ("a", "b", "c")


def test_queries_and_keys_may_differ(tmp_path):
    weights = weights_of((1, 1, 2, 3))[0, 0]
    names = {"query_tokens": ["x", "y"], "key_tokens": ["a", "b", "c"]}
    path = written(tmp_path / "m.json", weights=weights, **names)
    item = over_source(source_of(path, "cross"), "", None).main
    assert [token.text for token in item.query_tokens] == ["x", "y"]
    assert [token.text for token in item.key_tokens] == ["a", "b", "c"]
    renamed = over_source(source_of(path, "cross"), "one two three", "un deux").main
    assert [token.text for token in renamed.key_tokens] == ["one", "two", "three"]
    path = written(tmp_path / "m.json", weights=[[1.0]], tokens=["maps"])
    assert over_itself(source_of(path), "").tokens == ("maps",)


def test_projections_attend_over_vectors_or_inputs(tmp_path):
    rng = np.random.default_rng(0)
    inputs, w_query, w_key = (
        rng.normal(size=(3, 4)),
        rng.normal(size=(4, 4)),
        rng.normal(size=(4, 4)),
    )
    path = written(tmp_path / "p.json", w_query=w_query, w_key=w_key, inputs=inputs, heads=2)
    attention = over_itself(source_of(path), "a b c")
    for head in range(2):
        part = slice(head * 2, head * 2 + 2)
        scores = (inputs @ w_query)[:, part] @ (inputs @ w_key)[:, part].T / np.sqrt(2)
        raised = np.exp(scores)
        expected = raised / raised.sum(axis=-1, keepdims=True)
        assert np.allclose(attention.weights[0, head], expected, atol=1e-6)
    assert attention.provenance.notes == ()
    seeded = written(tmp_path / "q.json", w_query=w_query, w_key=w_key)
    assert "seeded random" in over_itself(source_of(seeded), "a b c").provenance.notes[0]
    causal = over_itself(source_of(seeded, causal=True), "a b c").main
    assert causal.stream == "causal"
    assert not np.triu(causal.weights, 1).any()


@pytest.mark.parametrize(
    ("members", "text", "message"),
    [
        ({"weights": [[1.0]]}, "", "names no tokens: give a text, or store 'query_tokens'"),
        ({"weights": [[1.0]]}, "a b", "has weights for 1 query tokens, but there are 2: a b"),
        ({"weights": [1.0]}, "a", "'weights' in 'm.json' has 1 axes, not 2, 3 or 4"),
        ({"weights": [[[[[1.0]]]]]}, "a", "'weights' in 'm.json' has 5 axes, not 2, 3 or 4"),
        ({"weights": [[3.0]]}, "a", "these are scores, not weights after a softmax"),
        (
            {"w_query": [[1.0]]},
            "a",
            "neither 'weights' nor 'w_query' and 'w_key'; it holds w_query",
        ),
        ({}, "a", "it holds nothing"),
        ({"w_query": [[1.0]], "w_key": [[1.0, 2.0]]}, "a", "do not meet"),
        ({"w_query": [1.0], "w_key": [1.0]}, "a", "do not meet"),
        ({"w_query": [[1.0]], "w_key": [[1.0]], "inputs": [[1.0]]}, "a b", "2 tokens of size 1"),
        ({"w_query": [[1.0]], "w_key": [[1.0]], "heads": 0}, "a", "'heads' in 'm.json' is 0.0"),
        (
            {"w_query": [[1.0]], "w_key": [[1.0]], "heads": 2},
            "a",
            "must be one number that divides",
        ),
        ({"w_query": [[1.0]], "w_key": [[1.0]], "heads": [1]}, "a", "must be one number"),
        ({"w_query": [[1.0]], "w_key": [[1.0]], "heads": 0.5}, "a", "must be one number"),
    ],
)
def test_matrices_that_do_not_fit_say_why(members, text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(Path("m.json"), **members)
    with pytest.raises(AttnvizError) as caught:
        over_itself(source_of(Path("m.json")), text)
    assert message in str(caught.value)


def test_a_saved_map_is_played_back_with_its_place(tmp_path):
    from attnviz.storage.archive import dump_archive

    saved = attention_of(self_map(["a", "b"], 2, 2), text="a b")
    path = tmp_path / "saved.map"  # known by its content, not by its name
    path.write_bytes(dump_archive([saved]))
    attention = over_itself(source_of(path), "a b")
    assert np.array_equal(attention.weights, saved.weights)
    assert attention.provenance.settings["read from"] == "saved.map"
    with pytest.raises(InputError, match="other texts"):
        over_itself(source_of(path), "b a")


def test_origins_that_contradict_are_refused(tmp_path):
    for origin, command, message in (
        (Origin(model="a", weights=tmp_path), "self", "--model and --weights name two origins"),
        (Origin(mechanism="co"), "self", "mechanism 'co-parallel' is not for 'self'"),
    ):
        with pytest.raises(AttnvizError, match=message):
            check_origin(origin, command)  # type: ignore[arg-type]
