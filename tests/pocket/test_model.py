"""The forward pass on two array types and an independent one, and the stored weights."""

import json
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor
from torch.nn import functional as oracle

from attnviz.core.errors import ModelError
from attnviz.mechanisms.relative import sinusoidal_positions
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.model import (
    FOLDER,
    embed_pieces,
    predict_pieces,
    run_decoder,
    run_encoder,
)
from tests.pocket.small import SIZES, random_weights
from training.finish import in_planes

SOURCE = np.array([[7, 9, 30, 2], [8, 2, 0, 0]])
TARGET = np.array([[4, 11, 12], [3, 13, 0]])
MASK = (SOURCE != 0)[:, None, None, :]


def run(convert: Any) -> tuple[Any, Any, list[Any], list[Any], list[Any]]:
    weights = {name: convert(array) for name, array in random_weights().items()}
    table = weights["embedding.weight"]
    source = embed_pieces(table[convert(SOURCE)], convert(sinusoidal_positions(4, SIZES.size)))
    memory, encoder = run_encoder(weights, SIZES, source, mask=convert(MASK))
    target = embed_pieces(table[convert(TARGET)], convert(sinusoidal_positions(3, SIZES.size)))
    states, own, cross = run_decoder(weights, SIZES, target, memory, mask=convert(MASK))
    return memory, predict_pieces(weights, states), encoder, own, cross


def test_numpy_torch_and_another_network_agree():
    for one, other in zip(run(np.asarray), run(torch.from_numpy), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-5)
    np.testing.assert_allclose(run(np.asarray)[1], Independent().scores().numpy(), atol=2e-4)


class Independent:
    """The same network out of torch's own parts, as the warm start's description has it."""

    def __init__(self) -> None:
        self.weights = {
            name: torch.from_numpy(array).double() for name, array in random_weights().items()
        }

    def linear(self, name: str, inputs: Tensor) -> Tensor:
        return oracle.linear(inputs, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, name: str, inputs: Tensor) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return oracle.layer_norm(inputs, (SIZES.size,), weight, bias, 1e-5)

    def attend(self, name: str, inputs: Tensor, memory: Tensor, **mask: Any) -> Tensor:
        def heads(part: str, given: Tensor) -> Tensor:
            return self.linear(f"{name}.{part}", given).unflatten(-1, (SIZES.heads, -1))

        query, key, value = heads("query", inputs), heads("key", memory), heads("value", memory)
        mixed = oracle.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), **mask
        )
        return self.linear(f"{name}.output", mixed.transpose(1, 2).flatten(-2))

    def feed_forward(self, layer: str, inputs: Tensor) -> Tensor:
        normal = self.norm(f"{layer}.feed_forward_norm", inputs)
        inner = oracle.gelu(self.linear(f"{layer}.feed_forward.in", normal), approximate="tanh")
        return self.linear(f"{layer}.feed_forward.out", inner)

    def embed(self, ids: Tensor) -> Tensor:
        waves = torch.from_numpy(sinusoidal_positions(ids.shape[1], SIZES.size)).double()
        return self.weights["embedding.weight"][ids] * SIZES.size**0.5 * 0.5 + waves

    def scores(self) -> Tensor:
        mask = torch.from_numpy(MASK)
        state = self.embed(torch.from_numpy(SOURCE))
        for layer in ("encoder.0", "encoder.1"):
            normal = self.norm(f"{layer}.self_attention_norm", state)
            state = state + self.attend(f"{layer}.self_attention", normal, normal, attn_mask=mask)
            state = state + self.feed_forward(layer, state)
        memory = self.norm("encoder_norm", state)
        state = self.embed(torch.from_numpy(TARGET))
        for layer in ("decoder.0", "decoder.1"):
            normal = self.norm(f"{layer}.self_attention_norm", state)
            state = state + self.attend(f"{layer}.self_attention", normal, normal, is_causal=True)
            normal = self.norm(f"{layer}.cross_attention_norm", state)
            state = state + self.attend(f"{layer}.cross_attention", normal, memory, attn_mask=mask)
            state = state + self.feed_forward(layer, state)
        return self.norm("decoder_norm", state) @ self.weights["embedding.weight"].T


def test_a_prefix_alone_has_the_same_states():
    weights = random_weights()
    table = weights["embedding.weight"]
    memory, _ = run_encoder(
        weights, SIZES, embed_pieces(table[SOURCE[0]], sinusoidal_positions(4, 12))
    )
    ids = np.array([4, 11, 12, 13, 14])

    def states(count: int) -> Any:
        inputs = embed_pieces(table[ids[:count]], sinusoidal_positions(count, 12))
        return run_decoder(weights, SIZES, inputs, memory)[0]

    whole = states(5)
    for count in range(1, 6):
        np.testing.assert_allclose(states(count)[-1], whole[count - 1], atol=1e-5)


PATH = FOLDER / "weights.safetensors"


def test_arrays_are_those_of_safetensors_when_used(tmp_path):
    planes, stored = load_file(PATH), StoredWeights(PATH)
    joined = {name: np.stack([*one], -1).view("<f2")[..., 0] for name, one in planes.items()}
    save_file(joined, tmp_path / "joined.safetensors")
    made = sha256((tmp_path / "joined.safetensors").read_bytes()).hexdigest()
    assert made[:12] == json.loads((FOLDER / "config.json").read_text())["revision"]
    assert all(np.array_equal(one, planes[name]) for name, one in in_planes(joined).items())
    expected = load_file(tmp_path / "joined.safetensors")
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
