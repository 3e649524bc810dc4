"""One head in its own numbers, against what the model's modules themselves put out."""

import numpy as np
import pytest
import torch

from attnviz.core.effects import HeadAt
from attnviz.core.errors import AttentionError
from attnviz.core.query import Query
from attnviz.features.steps.head import record_head
from attnviz.features.steps.request import head_steps
from attnviz.models import attend_query
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.load.imports import quiet
from tests.hugging_face.test_families import inputs_of, make
from tests.hugging_face.tiny_families import UNLIKE, streams_of
from tests.hugging_face.tiny_models import but_slow

TEXT = "The professor published the red paper"
PAIR = "The red car is fast", "La voiture rouge"
OUTPUTS = {
    "bert": "attention.output.dense",
    "roberta": "attention.output.dense",
    "gpt2": "attn.c_proj",
    "llama": "self_attn.o_proj",
    "gemma2": "self_attn.o_proj",
    "t5": "EncDecAttention.o",
    "bart": "encoder_attn.out_proj",
    "marian": "encoder_attn.out_proj",
}


def query_of(kind: str) -> Query:
    return Query(*PAIR, "cross") if kind in ("t5", "bart", "marian") else Query(TEXT)


def worked(model, kind, layer, head):
    query = query_of(kind)
    attention = attend_query(model, query)
    which = HeadAt(attention.main.stream, layer, int(head))
    return attention, head_steps(attention, which, model.head_arithmetic(query, which))


@pytest.mark.core
@pytest.mark.parametrize("kind", but_slow(OUTPUTS))
def test_all_heads_add_what_the_projection_puts_out(kind, loaded):
    model = loaded(kind)
    encoded = encode(model, query_of(kind))
    modules = encoded.part.named_modules()
    module = [found for path, found in modules if path.endswith(OUTPUTS[kind])][1]
    found = []
    handle = module.register_forward_hook(lambda _m, _i, output: found.append(output))
    with torch.no_grad():
        encoded.part(**model.tensors(encoded.inputs, encoded.part))
    handle.remove()
    (output,) = found
    expected = output[0] - module.bias if module.bias is not None else output[0]
    attention = attend_query(model, query_of(kind))
    heads = [worked(model, kind, "1", head)[1] for head in attention.main.heads]
    added = sum(steps["added"] for steps in heads)
    np.testing.assert_allclose(added, expected.detach().numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", but_slow(OUTPUTS))
def test_each_number_is_made_as_its_formula_says(kind, loaded):
    attention, steps = worked(loaded(kind), kind, "1", "1")
    np.testing.assert_allclose(steps["weights"], attention.main.weights[1, 1], atol=1e-5)
    for side in ("query", "key", "value"):
        matrix = steps.matrix(side)
        if matrix.formula.startswith("projected"):
            matrix = steps.matrix(f"projected_{side}")
            turned = np.linalg.norm(steps[side], axis=1)
            np.testing.assert_allclose(np.linalg.norm(matrix.values, axis=1), turned, rtol=1e-4)
        source, weight, *bias = (steps[name] for name in _in_order(matrix))
        made = source @ weight + (bias[0] if bias else 0)
        np.testing.assert_allclose(made, matrix.values, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        steps["weights"] @ steps["value"], steps["head_output"], rtol=0, atol=1e-5
    )
    assert steps.compared["head_output"] < 1e-5
    assert "layer_input" in [matrix.name for matrix in steps]


def _in_order(matrix):
    """The operands of "source @ weight + bias" in that order."""
    words = matrix.formula.replace("@", " ").replace("+", " ").split()
    return [word for word in words if word in matrix.operands]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_plain_weights_are_a_softmax(kind, loaded):
    _, steps = worked(loaded(kind), kind, "0", "1")
    names = [matrix.name for matrix in steps]
    mask = steps["mask"] if "mask" in names else np.ones_like(steps["weights"], dtype=bool)
    powers = np.exp(steps["scaled_scores"]) * mask
    expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(steps["weights"], expected, rtol=0, atol=1e-5)
    assert ("mask" in names) == (kind != "bert")
    model = loaded(kind)
    encoded = encode(model, Query(TEXT))
    inputs = model.tensors(encoded.inputs, encoded.part)
    with torch.no_grad():
        states = encoded.part(**inputs, output_hidden_states=True).hidden_states
    np.testing.assert_allclose(steps["layer_input"], states[0][0], rtol=0, atol=1e-6)


def test_families_turn_and_add_and_stay_as_they_were(loaded):
    assert (
        "a position bias"
        not in worked(loaded("bert"), "bert", "0", "0")[1].matrix("weights").formula
    )
    assert (
        "a soft cap of" in worked(loaded("gemma2"), "gemma2", "0", "0")[1].matrix("weights").formula
    )
    _, steps = worked(loaded("llama"), "llama", "0", "0")
    assert steps.matrix("query").formula == "projected_query, its features turned by position"
    np.testing.assert_allclose(steps["query"][0], steps["projected_query"][0], atol=1e-6)
    assert abs(steps["query"][2] - steps["projected_query"][2]).max() > 1e-3
    model = loaded("bert")
    before = attend_query(model, Query(TEXT)).main.weights
    hooks = [len(module._forward_pre_hooks) for module in model.model.modules()]
    worked(model, "bert", "0", "0")
    assert [len(module._forward_pre_hooks) for module in model.model.modules()] == hooks
    np.testing.assert_array_equal(attend_query(model, Query(TEXT)).main.weights, before)


def test_a_kernel_that_is_told_no_scale_divides_by_the_root_of_the_size(loaded, monkeypatch):
    def scaled():
        parts = model.head_arithmetic(Query("The cat"), HeadAt("causal", "0", 0)).parts
        return next(part.value for part in parts if part.name == "scaled_scores")

    model = loaded("llama")
    told = scaled()
    for module in (one for one in model.model.modules() if hasattr(one, "scaling")):
        monkeypatch.setattr(module, "scaling", None)
    np.testing.assert_allclose(scaled(), told, atol=1e-6)


PROBED = [
    name
    for name, family in UNLIKE.items()
    if family.route == "probe"
    and not {*family.kind.split()} & {"image", "speech", "windows", "joint"}
    and name != "recurrent_gemma"  # which has no attention in its first layers
]


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("name", PROBED)
def test_any_family_shows_what_its_head_puts_out(name):
    with quiet():
        model, _ = make(name)
    stream = streams_of(name)[0]
    axes = dict.fromkeys(streams_of(name), ("text", "text"))
    asked = EncodedQuery(model, inputs_of(name), {}, axes, None)
    try:
        found = record_head(asked, HeadAt(stream, "0", 1))
    except AttentionError:  # a layer of another kind comes first
        found = record_head(asked, HeadAt(stream, "1", 1))
    parts = {part.name: part.value for part in found.parts}
    np.testing.assert_allclose(parts["head_output"], found.references["head_output"], atol=1e-4)
    for side in ("query", "key", "value"):
        told = any(note.startswith(f"{side} is as the kernel gets it") for note in found.notes)
        assert (f"w_{side}" in parts) != told
    assert ("added" in parts) != any(note.startswith("no linear map") for note in found.notes)
