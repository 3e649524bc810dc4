"""Models whose attention is NaN or infinite: refused by layer and head, never shown as zeros."""

from collections.abc import Callable

import pytest
import torch

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention
from attnviz.core.errors import NotFiniteError
from attnviz.core.query import Query
from attnviz.models.hugging_face.capture.probe import broken_head
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend, gradients, values
from tests.hugging_face.tiny_models import reweigh

TEXT = "The red car is fast."
KINDS = {
    "bert": "encoder.layer.1.attention.self.query.weight",
    "gpt2": "transformer.h.1.attn.c_attn.weight",
    "llama": "model.layers.1.self_attn.q_proj.weight",
    "t5": "encoder.block.1.layer.0.SelfAttention.q.weight",
}
STREAMS = {"bert": "self", "gpt2": "causal", "llama": "causal", "t5": "encoder"}
Break = Callable[[torch.Tensor], torch.Tensor]
WAYS: dict[str, Break] = {
    "NaN": lambda weights: weights.index_fill(-1, torch.tensor([1]), float("nan")),
    "infinite": lambda weights: weights.index_fill(0, torch.tensor([1]), float("inf")),
    "overflowing": lambda weights: weights.sign() * 3e38,
}


@pytest.fixture
def broken(copy_of):
    """A tiny model one of whose parameters is spoilt."""

    def make(kind, name, way, dtype=None):
        folder = copy_of(kind)
        reweigh(folder, lambda its, one: way(one.clone()) if its == name else one)
        return load_model(str(folder), device="cpu", dtype=dtype)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "way"),
    [*(("bert", way) for way in WAYS), *((kind, "NaN") for kind in list(KINDS)[1:])],
)
def test_the_first_layer_that_is_not_finite_is_named(kind, way, broken):
    stream = f"layer 1 head 0 \\(stream '{STREAMS[kind]}'\\) is NaN or infinite$"
    with pytest.raises(NotFiniteError, match=stream):
        attend(broken(kind, KINDS[kind], WAYS[way]), TEXT)


def test_lenses_refuse_it_and_overflow_is_named(broken):
    model = broken("bert", KINDS["bert"], WAYS["NaN"])
    for ask in (gradients, values):
        with pytest.raises(NotFiniteError, match="layer 1 head 0"):
            ask(model, TEXT)
    model = broken("bert", KINDS["bert"], lambda weights: weights * 1e6, "float16")
    with pytest.raises(NotFiniteError, match="overflow in float16, --dtype float32 has room"):
        attend(model, TEXT)


def test_in_a_batch_one_text_fails(broken, loaded):
    texts = ["blue", "the red car", "fast", "a student", "paper", "and"]
    (place,) = loaded("bert").tokenizer("red", add_special_tokens=False)["input_ids"]
    model = broken(
        "bert",
        "embeddings.word_embeddings.weight",
        lambda weights: weights.index_fill(0, torch.tensor([place]), float("nan")),
    )
    found = list(model.attend([Query(text) for text in texts]))
    assert [isinstance(item, NotFiniteError) for item in found] == [False, True, *[False] * 4]
    for item in found:
        assert not isinstance(item, Attention) or item.weights.sum(-1) == pytest.approx(1.0)


def _call(query, key, mask):
    def kernel(module, query, key, value, mask, **options):
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, scale=options["scaling"], enable_gqa=True
        )
        return output.transpose(1, 2), None

    value, options = torch.ones_like(key), {"scaling": 0.5}
    output = kernel(None, query, key, value, mask, **options)[0]
    return AttentionCall(query, key, value, mask, output, kernel=kernel, options=options)


def test_broken_heads_are_found_and_hidden_rows_empty():
    for head in (0, 3):
        query, key = torch.ones(1, 4, 3, 4), torch.ones(1, 2, 3, 4)
        query[0, head, 1, 0] = torch.nan
        assert broken_head(_call(query, key, None)) == head
        query[0, head, 1, 0], key[0, head // 2, 2, 1] = 1, torch.inf
        assert broken_head(_call(query, key, None)) == head // 2 * 2
    query, key = torch.ones(1, 4, 3, 4), torch.ones(1, 2, 3, 4)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[..., 1, :] = False
    for scale in (1.0, 1e30):
        call = _call(query * scale, key * scale * torch.tensor([[[[1.0]], [[-1.0]]]]), mask)
        expected = None if scale == 1 else 0
        assert broken_head(call) == expected
    query, key = torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)
    query[0, 1, 2] = -1e38
    call = _call(query, key * 1e30, None)
    assert call.output.isfinite().all()
    assert broken_head(call) == 1
