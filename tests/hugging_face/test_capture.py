"""Weights against transformers' own, and what is refused as no weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, BertConfig

from attnviz.core.errors import AttentionError, ModelError
from attnviz.models.hugging_face.capture import passes as readings
from attnviz.models.hugging_face.capture import region
from attnviz.models.hugging_face.capture.capture import group
from attnviz.models.hugging_face.capture.passes import layer_numbers, read_layers
from tests.hugging_face.ask import attend, cross
from tests.hugging_face.tiny_models import but_slow
from tests.precision import both, check_as_near

TEXT = "The professor who supervised the student published the paper."
FLOAT32 = SimpleNamespace(config=BertConfig(), dtype=torch.float32)
SELF = {
    "bert": "self",
    "roberta": "self",
    "gpt2": "causal",
    "llama": "causal",
    "gemma2": "causal",
    "t5": "encoder",
    "byt5": "encoder",
    "bart": "encoder",
    "marian": "encoder",
}
WRITERS = ["t5", "byt5", "bart", "marian", "m2m_100"]


def stacked(layers):
    return torch.cat([layer.detach() for layer in layers]).numpy()


@pytest.mark.parametrize("kind", but_slow(SELF))
def test_self_attention_equals_what_transformers_hands_over(kind, folder_of, loaded):
    model = loaded(kind)
    own = AutoModel.from_pretrained(folder_of(kind), attn_implementation="eager").eval()
    own = own.get_encoder() if own.config.is_encoder_decoder else own
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"]])

    def read(own):
        return [stacked(own(input_ids=ids, output_attentions=True).attentions)]

    attention = attend(model, TEXT)
    assert [item.stream for item in attention.maps] == [SELF[kind]]
    assert len(attention.tokens) == ids.shape[1]
    check_as_near([attention.weights], *both(own, read))
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.slow
def test_cross_attention_equals_what_transformers_hands_over(kind, folder_of, loaded):
    model = loaded(kind)
    attention = cross(model, "The red car is fast", "La voiture rouge est rapide")
    own = AutoModelForSeq2SeqLM.from_pretrained(folder_of(kind), attn_implementation="eager").eval()
    source = torch.tensor([model.tokenizer("The red car is fast")["input_ids"]])
    labels = model.tokenizer("La voiture rouge est rapide")["input_ids"]
    ends = labels[-1] == model.tokenizer.eos_token_id
    start = own.config.decoder_start_token_id
    target = torch.tensor([[start, *(labels[:-1] if ends else labels)]])
    streams = ("cross", "encoder", "decoder")

    def read(own):
        output = own(input_ids=source, decoder_input_ids=target, output_attentions=True)
        return [stacked(getattr(output, f"{stream}_attentions")) for stream in streams]

    check_as_near([attention.stream(stream).weights for stream in streams], *both(own, read))
    assert attention.main.stream == "cross"
    assert attention.main.query_side == "target"
    assert attention.main.key_side == "source"


def test_a_sliding_window_hides_what_lies_before_it(loaded):
    weights = attend(loaded("gemma2"), TEXT).weights
    assert np.tril(weights[0], -4).max() == 0
    assert np.tril(weights[1], -4).max() > 0


def test_a_single_token_of_a_decoder_is_called_causal(loaded):
    assert attend(loaded("gpt2"), "a").main.stream == "causal"


def test_an_architecture_without_attention_is_refused(loaded):
    with pytest.raises(AttentionError, match=r"'mamba' gives out no attention weights"):
        attend(loaded("mamba"), TEXT)


@pytest.mark.parametrize("nothing", [None, (), (None, None)])
def test_no_layers_of_any_kind_are_refused(nothing):
    with pytest.raises(AttentionError, match=r"no attention"):
        read_layers(nothing, FLOAT32, (2, 2), "self")


def test_windows_are_refused_by_their_shape():
    with pytest.raises(AttentionError, match=r"layer 0 .*\(1, 2, 3, 5\).*windows"):
        read_layers((torch.zeros(1, 2, 3, 5),), FLOAT32, (3, 3), "self")


def test_of_another_shape_it_is_said_which_one_was_expected():
    with pytest.raises(AttentionError, match=r"not \(1, heads, 2 queries, 4 keys\)"):
        read_layers((torch.zeros(1, 2, 3, 5),), FLOAT32, (2, 4), "self")


@pytest.mark.parametrize("value", [-0.5, 0.6])
def test_scores_are_refused_by_their_range(value):
    with pytest.raises(AttentionError, match=r"these are not attention weights"):
        read_layers((torch.full((1, 1, 2, 2), value),), FLOAT32, (2, 2), "self")


def test_rows_may_sum_to_less_than_one():
    arrays = read_layers((torch.full((1, 1, 2, 2), 0.1),), FLOAT32, (2, 2), "self")
    assert arrays["0"].sum() == pytest.approx(0.4)


def test_layers_with_different_heads_become_maps_of_their_own():
    arrays = {str(number): np.ones((heads, 2, 2)) for number, heads in enumerate([4, 4, 2, 4])}
    runs = [(item.layers, item.weights.shape) for item in group("self", arrays)]
    assert runs == [(("0", "1"), (2, 4, 2, 2)), (("2",), (1, 2, 2, 2)), (("3",), (1, 4, 2, 2))]


def test_layers_that_are_not_attention_keep_their_numbers_free():
    config = BertConfig()
    config.layer_types = ["linear_attention", "full_attention", "mamba", "sliding_attention"]
    assert layer_numbers(config, ["a", "b"]) == ["1", "3"]
    assert layer_numbers(config, [None, "a", None, "b"]) == ["1", "3"]


def test_more_attention_than_memory_is_refused_before_the_model_runs(loaded, monkeypatch):
    model = loaded("bert")
    monkeypatch.setattr(region, "free_bytes", lambda device: 100)
    monkeypatch.setattr(readings, "read_calls", None)
    with pytest.raises(ModelError, match=r"12 heads × .*would take about .* is free: free some"):
        attend(model, TEXT)
