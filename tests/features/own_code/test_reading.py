"""Streams, layers and heads of passes: two stacks, shared modules, several modules of a layer."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

import attnviz as attnviz_api
from attnviz.core.errors import AttentionError
from attnviz.core.options import Origin
from attnviz.features.own_code.opening import try_reading
from attnviz.features.own_code.reading import layers_of, watch_pass
from attnviz.models.hugging_face.capture.region import ALL_TOKENS, Region
from attnviz.models.open import open_source
from tests.features.own_code import folders

SOURCE = "the red car"


def matrices(model, ids, target):
    """The shares of each module in float64, by its path."""
    slow = deepcopy(model).double()
    with torch.no_grad():
        slow(torch.tensor([ids]), decoder_input_ids=torch.tensor([target]))
    return {
        path: part.shares[0].numpy()
        for path, part in slow.named_modules()
        if hasattr(part, "shares")
    }


@pytest.mark.parametrize("names", [("front", "back"), ("encoder", "decoder")])
@pytest.mark.parametrize("target", ["the professor is red now", "the paper is"])
def test_two_stacks_are_told_apart_by_lengths_inputs_and_masks(names, target, tmp_path):
    """The second target has as many tokens as the source: only inputs and masks differ."""
    folder = folders.two_stacks_folder(tmp_path / names[0], *names)
    result = attnviz_api.attend(SOURCE, target, model=str(folder), allow="code")
    assert [item.stream for item in result.maps] == ["cross", "encoder", "decoder"]
    source = open_source(Origin(model=str(folder), allow="code"), "cross")
    ids, own = source.tokenizer(SOURCE)["input_ids"], source.tokenizer(target)["input_ids"]
    truth = matrices(source.model, ids, [2, *own[:-1]])
    front, back = names
    for stream, paths in {
        "encoder": [f"{front}.mixes.{n}" for n in range(2)],
        "decoder": [f"{back}.{n}.own" for n in range(3)],
        "cross": [f"{back}.{n}.other" for n in range(3)],
    }.items():
        item = result.map_of(stream)
        assert item.layers == tuple(map(str, range(len(paths))))
        assert np.abs(item.weights - np.stack([truth[path] for path in paths])).max() < 1e-5
    alone = attnviz_api.attend(SOURCE, model=str(folder), allow="code")
    assert [item.stream for item in alone.maps] == ["encoder"]
    np.testing.assert_allclose(alone.weights, result.map_of("encoder").weights, atol=1e-6)


def test_two_stacks_write_the_likeliest_target(tmp_path):
    folder = folders.two_stacks_folder(tmp_path / "two")
    result = attnviz_api.attend(
        SOURCE, model=str(folder), allow="code", command="cross", generate=4
    )
    source = open_source(Origin(model=str(folder), allow="code"), "cross")
    ids, target = source.tokenizer(SOURCE)["input_ids"], [2]
    with torch.no_grad():
        for _ in range(4):
            given = torch.tensor([target])
            logits = source.model(torch.tensor([ids]), decoder_input_ids=given).logits
            target.append(int(logits[0, -1].argmax()))
    assert [token.piece[0] for token in result.main.query_tokens] == target


class SmallConfig(PreTrainedConfig):
    model_type = "small"


class Attend(nn.Module):
    """Attention of several kinds, with its shares of the last call."""

    def __init__(self, kind="plain"):
        super().__init__()
        self.kind = kind
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.memory = nn.Parameter(torch.randn(2, 8))
        self.shares = []

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.kind == "memory":
            k, v = (torch.cat([self.memory[None], one], 1) for one in (k, v))
        # Batch and heads in one axis, which only the product of sizes tells apart.
        q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2).reshape(-1, one.shape[1], 4)
                   for one in (q, k, v))  # fmt: skip
        shares = torch.softmax(torch.bmm(q, k.mT) / 2, -1)
        self.shares.append(shares.detach())
        return x + torch.bmm(shares, v).view(1, 2, -1, 4).transpose(1, 2).flatten(2)


class Small(PreTrainedModel):
    config_class = SmallConfig

    def __init__(self, plan):
        super().__init__(SmallConfig())
        self.words = nn.Embedding(20, 8)
        self.parts = nn.ModuleDict({name: Attend(kind) for name, kind, _ in plan})
        self.order = [name for name, _, times in plan for _ in range(times)]
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        x = self.words(input_ids)
        for name in self.order:
            x = self.parts[name](x)
        return BaseModelOutput(x)


def read(plan, region=ALL_TOKENS):
    torch.manual_seed(0)
    model = Small(plan).eval()
    reading = watch_pass(model, {"input_ids": torch.arange(6)[None]}, region)
    captures, notes = layers_of(reading, model, {"self": (6, 6)})
    return model, captures, notes


def test_a_module_for_all_layers_is_as_many_layers():
    model, (layers,), notes = read([("shared", "plain", 3)])
    assert (layers.layers, notes) == (("0", "1", "2"), ())
    truth = torch.stack(model.parts["shared"].shares).numpy()
    assert np.abs(layers.weights - truth).max() < 1e-6


def test_modules_called_several_times_are_named_by_their_calls():
    _, (layers,), _ = read([("one", "plain", 2), ("two", "plain", 1)])
    assert layers.layers == ("parts.one · call 1", "parts.one · call 2", "parts.two · call 1")


def test_heads_on_the_axis_of_a_batch_are_the_heads_of_the_one_text():
    model, (layers,), notes = read([("0", "plain", 1), ("1", "plain", 1)])
    assert (layers.weights.shape, notes) == ((2, 2, 6, 6), ())
    truth = torch.stack([model.parts[name].shares[0] for name in "01"]).numpy()
    assert np.abs(layers.weights - truth).max() < 1e-6
    _, (blocks,), _ = read([("0", "plain", 1)], Region(max_size=3))
    pooled = truth[:1].reshape(1, 2, 3, 2, 3, 2).mean(3).sum(4)
    assert np.abs(blocks.weights - pooled).max() < 1e-6
    assert len(blocks.links[0]) == 2


def test_keys_that_are_no_tokens_are_left_out_with_a_note():
    _, (layers,), notes = read([("0", "plain", 1), ("1", "memory", 1)])
    assert layers.weights.shape == (1, 2, 6, 6)
    assert notes == (
        "the attention of 'parts.1' is of 6 × 8 places, and the text has 6 tokens: it is not shown",
    )
    with pytest.raises(AttentionError, match=r"'parts\.0' is of 6 × 8 places"):
        read([("0", "memory", 1)])


def test_a_trial_tells_masks_and_stacks():
    torch.manual_seed(0)
    trial, reading, inputs = try_reading(Small([("0", "plain", 1)]).eval(), 20)
    assert (trial.causal, trial.two_stacks, trial.heads, trial.predicts) == (False, False, 2, False)
    assert (trial.calls_kernel, trial.takes_mask) == (False, True)
    assert len(reading.calls) == 1
    assert set(inputs) == {"input_ids", "attention_mask"}
