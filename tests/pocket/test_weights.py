"""Stored weights: every array as safetensors reads it, converted only when used."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from attnviz.core.errors import ModelError
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.model import FOLDER

PATH = FOLDER / "weights.safetensors"


def test_arrays_are_those_of_safetensors_when_used():
    expected, stored = load_file(PATH), StoredWeights(PATH)
    assert set(stored) == set(expected)
    assert len(stored) == len(expected)
    for name in ("embedding.weight", "decoder.3.cross_attention.key.bias"):
        np.testing.assert_array_equal(stored[name], expected[name].astype(np.float32))
    stored = StoredWeights(PATH)
    assert stored.arrays == {}
    rows = stored.rows("embedding.weight", np.array([7, 9]))
    assert stored.arrays == {}
    np.testing.assert_array_equal(rows, stored["embedding.weight"][[7, 9]])
    assert list(stored.arrays) == ["embedding.weight"]
    np.testing.assert_array_equal(stored.rows("embedding.weight", np.array([7, 9])), rows)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 12_000_000
    for dtype in ("float32", "float64"):
        assert StoredWeights(PATH, dtype)["encoder_norm.weight"].dtype == dtype


GOOD: dict[str, Any] = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "entry",
    [
        GOOD | {"shape": [2.0]},
        GOOD | {"shape": ["2"]},
        GOOD | {"shape": None},
        GOOD | {"shape": [-1]},
        GOOD | {"data_offsets": [0, 16]},
        GOOD | {"data_offsets": [8, 0]},
        GOOD | {"data_offsets": [0]},
        {"dtype": "F32"},
        7,
    ],
    ids=str,
)
def test_a_damaged_header_is_an_error_of_the_model(entry, tmp_path):
    path = tmp_path / "weights.safetensors"
    for one in (GOOD, entry):
        head = json.dumps({"a": one}).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
        if one is GOOD:
            np.testing.assert_array_equal(StoredWeights(path)["a"], [0, 0])
    with pytest.raises(ModelError, match="cannot be read"):
        StoredWeights(path)
