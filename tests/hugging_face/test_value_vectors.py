"""Norms against every vector written out, from the families' own modules by name."""

import numpy as np
import pytest
import torch
import transformers

from attnviz.core.errors import AttentionError, ModelError
from attnviz.core.query import Query
from attnviz.features.lenses.norm import norms, norms_by_head
from attnviz.models.hugging_face import eager as eager_pass
from attnviz.models.hugging_face.capture import kernel
from attnviz.models.hugging_face.inputs.encoding import encode
from tests.hugging_face.ask import attend, gradients, values

TEXT = "The professor published the red paper"
PAIR = "The red car is fast", "La voiture rouge"
SELF = {
    "bert": ("attention.self.value", "attention.output.dense"),
    "roberta": ("attention.self.value", "attention.output.dense"),
    "gpt2": ("attn.c_attn", "attn.c_proj"),
    "llama": ("self_attn.v_proj", "self_attn.o_proj"),
    "gemma2": ("self_attn.v_proj", "self_attn.o_proj"),
}
CROSS = {
    "t5": ("EncDecAttention.v", "EncDecAttention.o"),
    "bart": ("encoder_attn.v_proj", "encoder_attn.out_proj"),
    "marian": ("encoder_attn.v_proj", "encoder_attn.out_proj"),
}


def vectors(found, names, inputs, weights):
    """fₕ(xⱼ) of every layer, shape (layers, heads, keys, size), from what the modules gave."""
    heard = {}
    value_name, output_name = names
    modules = dict(found.named_modules())
    for path in modules:
        if path.endswith(value_name):
            modules[path].register_forward_hook(
                lambda _module, _inputs, output, path=path: heard.update({path: output})
            )
    with torch.no_grad():
        output = found(**inputs, output_attentions=True)
    layers = []
    for path, value in heard.items():
        projection = modules[path.removesuffix(value_name) + output_name]
        linear = isinstance(projection, torch.nn.Linear)
        matrix = (projection.weight.T if linear else projection.weight).detach().double()
        value = value[0].double()
        if "c_attn" in value_name:
            value = value[:, -matrix.shape[0] :]
        heads = weights.shape[1]
        size = matrix.shape[0] // heads
        value = value.reshape(len(value), -1, size)
        value = value.repeat_interleave(heads // value.shape[1], dim=1)
        layers.append(torch.einsum("jhd,hdo->hjo", value, matrix.reshape(heads, size, -1)))
    return torch.stack(layers).numpy(), output


def check(transformed, place, made):
    weights = transformed.attention.maps[place].weights
    added = weights[..., None].astype(float) * made[:, :, None]
    products = transformed.products[place]
    together = np.linalg.norm(added.sum(axis=1), axis=-1)
    np.testing.assert_allclose(norms(weights, products), together, atol=1e-5)
    np.testing.assert_allclose(
        norms_by_head(weights, products), np.linalg.norm(added, axis=-1), atol=1e-5
    )
    assert transformed.projected


@pytest.mark.core
@pytest.mark.parametrize("kind", SELF)
def test_they_are_the_lengths_of_what_each_head_adds(kind, folder_of, loaded):
    model = loaded(kind)
    found = transformers.AutoModel.from_pretrained(folder_of(kind), attn_implementation="eager")
    transformed = values(model, TEXT)
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"]])
    weights = transformed.attention.weights
    made, output = vectors(found.eval(), SELF[kind], {"input_ids": ids}, weights)
    expected = torch.cat(output.attentions).numpy()
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    check(transformed, 0, made)


@pytest.mark.parametrize("kind", CROSS)
def test_across_a_pair_too(kind, folder_of, loaded):
    model = loaded(kind)
    found = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder_of(kind), attn_implementation="eager"
    )
    transformed = model.values(Query(*PAIR, "cross"))
    encoded = encode(model, Query(*PAIR, "cross"))
    inputs = model.tensors(encoded.inputs, model.model)
    assert len(encoded.tokens["target"]) == transformed.attention.weights.shape[2]
    made, _ = vectors(found.eval(), CROSS[kind], inputs, transformed.attention.weights)
    check(transformed, 0, made)
    assert [item.stream for item in transformed.attention.maps] == ["cross", "encoder", "decoder"]


def test_passes_leave_the_model_and_odd_outputs(loaded, monkeypatch):
    model = loaded("bert")
    before = attend(model, TEXT).weights
    values(model, TEXT)
    np.testing.assert_array_equal(attend(model, TEXT).weights, before)
    monkeypatch.setattr(eager_pass, "projection_of", lambda *_: None)
    transformed = values(loaded("llama"), TEXT)
    assert not transformed.projected
    heads = transformed.attention.weights.shape[1]
    apart = transformed.products[0][..., ~np.eye(heads, dtype=bool)]
    assert not apart.any()
    from contextlib import contextmanager

    @contextmanager
    def unseen(look):
        yield

    monkeypatch.setattr(kernel, "watch_kernels", unseen)
    with pytest.raises(AttentionError, match="keeps its values to itself"):
        values(loaded("bert"), TEXT)


@pytest.mark.parametrize("ask", [values, gradients])
def test_windows_and_too_much_are_refused(ask, loaded, monkeypatch):
    from attnviz.models.hugging_face.load.family import NOT_WEIGHTS

    monkeypatch.setitem(NOT_WEIGHTS, "llama", "it attends in windows")
    with pytest.raises(AttentionError, match="it attends in windows"):
        ask(loaded("llama"), TEXT)
    from attnviz.models.hugging_face.load import devices

    model = loaded("gpt2")
    monkeypatch.setattr(devices, "free_bytes", lambda device: 100)
    with pytest.raises(ModelError, match=r"3 layers × 4 heads .*shorter text"):
        ask(model, TEXT)


@pytest.mark.minilm
def test_special_tokens_are_looked_at_more(minilm):
    from attnviz.features.lenses.norm import norm
    from attnviz.models.hugging_face.text_model import load_model

    model = load_model(str(minilm), device="cpu")
    transformed = values(model, "the professor who supervised the student published the paper")
    looked, added = (
        weights[:, 1:-1][:, :, [0, -1]].sum(axis=-1).mean(axis=-1)
        for weights in (transformed.attention.weights.mean(axis=1), norm(transformed).weights[:, 0])
    )
    # Measured once; the finding is Kobayashi's (2020, section 4.2).
    np.testing.assert_allclose(looked, [0.30, 0.57, 0.62, 0.59, 0.55, 0.46], atol=0.01)
    np.testing.assert_allclose(added, [0.10, 0.14, 0.13, 0.11, 0.10, 0.07], atol=0.01)
