"""What is seen of a model is what its parameters say, and the model does not notice."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnviz import Result, watch
from attnviz.core.attention_map import stream_of_call
from tests.features.watch import models
from tests.features.watch.models import HEADS, SIZE, by_hand, double, projected


def tokens(length: int = 6, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, SIZE)


MADE: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]], set[str]]] = {
    "causal decoder with a mask buffer": (
        lambda: models.Residual(models.CausalHeads(), models.CausalHeads()),
        lambda: (tokens(),),
        {"causal"},
    ),
    "decoder of single heads": (
        lambda: models.Residual(models.ListOfHeads()),
        lambda: (tokens(),),
        {"causal"},
    ),
    "encoder-decoder from scratch": (
        models.EncoderDecoder,
        lambda: (torch.randint(20, (2, 5)), torch.randint(20, (2, 5))),
        {"self", "causal", "cross"},
    ),
    "additive attention over a recurrent encoder": (
        lambda: models.Recurrent(models.Additive()),
        lambda: (tokens(),),
        {"cross"},
    ),
    "additive attention over columns": (
        lambda: models.Recurrent(models.AdditiveColumn()),
        lambda: (tokens(),),
        {"cross"},
    ),
    "vision transformer from scratch": (
        models.Patches,
        lambda: (torch.randn(2, 3, 8, 8),),
        {"self"},
    ),
    "perceiver": (models.Latents, lambda: (tokens(9),), {"self", "cross"}),
    "einsum everywhere": (models.EinsumHeads, lambda: (tokens(),), {"self"}),
    "einsum with shared keys": (models.EinsumShared, lambda: (tokens(),), {"self"}),
    "weights as the second factor": (
        models.KeysBefore,
        lambda: (torch.randn(2, SIZE, 2, 3),),
        {"self"},
    ),
    "batch and heads in one axis": (
        lambda: models.Residual(models.MergedHeads()),
        lambda: (tokens(),),
        {"self"},
    ),
    "sinks, masks behind the softmax": (models.Sinks, lambda: (tokens(),), {"causal"}),
    "grouped heads": (lambda: models.FusedCross(groups=1), lambda: (tokens(),), {"self"}),
    "no projections, no batch": (models.NoProjections, lambda: (tokens()[0],), {"self"}),
}


def seen_by_layer(result: Result) -> dict[str, np.ndarray]:
    """Weights by layer, and by the number of the call where there were several: "attend#2"."""
    return {
        f"{layer}#{call[5:]}" if call else layer: weights
        for item in result.maps
        for call, _ in [stream_of_call(item.stream)]
        for layer, weights in zip(item.layers, item.weights, strict=True)
    }


def expected(
    model: nn.Module, weigh: Callable[..., Any], inputs: tuple[Any, ...], item: int = 0
) -> dict[str, np.ndarray]:
    """The weights of each call by its module and number, worked out from what modules are given."""
    given: dict[str, list[np.ndarray]] = {}
    hooks = []
    for name, module in model.named_modules():
        if hasattr(module, "weights") or isinstance(module, nn.MultiheadAttention):
            calls = given.setdefault(name or type(model).__name__, [])

            def note(module: Any, args: Any, kwargs: Any, calls: list[Any] = calls) -> None:
                calls.append(weigh(module, *args, **kwargs)[item])

            hooks.append(module.register_forward_pre_hook(note, with_kwargs=True))
    model(*inputs)
    for hook in hooks:
        hook.remove()
    return {
        f"{path}#{number}" if len(calls) > 1 else path: weights
        for path, calls in given.items()
        for number, weights in enumerate(calls, 1)
    }


def check(
    model: nn.Module, inputs: tuple[Any, ...], weigh: Callable[..., Any], off: float = 1e-5
) -> Result:
    """The result, where the model gave the same bits and the weights are those expected."""
    truth = expected(model, weigh, inputs)
    before = model(*inputs)
    with watch(model) as seen:
        after = model(*inputs)
    assert torch.equal(before, after)
    found = seen_by_layer(seen.attention())
    assert sorted(found) == sorted(truth)
    for layer, weights in truth.items():
        assert found[layer].shape == weights.shape
        assert np.abs(found[layer] - weights).max() < off
    assert "checked" in seen.attention().provenance.settings
    assert not seen.log.failures
    return seen.attention()


@pytest.mark.slow
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", MADE)
def test_models_written_by_hand_are_seen_as_they_attend(name, grad):
    torch.manual_seed(1)
    make, inputs, streams = MADE[name]
    with nullcontext() if grad else torch.inference_mode():
        result = check(make().eval(), inputs(), lambda module, *args: module.weights(*args))
    assert {stream_of_call(item.stream)[1] for item in result.maps} == streams


@pytest.mark.slow
@pytest.mark.parametrize(("grad", "item"), [(True, 0), (False, 2)])
@pytest.mark.parametrize("way", models.WAYS)
def test_each_softmax_is_one_map_of_all_its_heads(way, grad, item):
    torch.manual_seed(1)
    model, x = models.Written(way).eval(), tokens(5, 3)
    with nullcontext() if grad else torch.inference_mode():
        before = model(x)
        with watch(model, batch=item) as seen:
            after = model(x)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other)
    result = seen.attention()
    assert [part.layers for part in result.maps] == [("Written",)]
    assert result.maps[0].stream == "self"
    assert result.provenance.notes == ()
    assert "checked" in result.provenance.settings
    truth = model.weights(x)[item]
    assert result.weights[0].shape == truth.shape
    assert np.abs(result.weights[0] - truth).max() < 1e-5
    assert max(kept.off for kept in seen.log.captures) < 1e-4


def test_noise_unknown_heads_and_dropout():
    query, key, value = torch.randn(3, 1, 2, 5, 4)
    torch.manual_seed(3)
    truth = nn.functional.gumbel_softmax(query @ key.mT, dim=-1)
    torch.manual_seed(3)
    with watch() as seen:
        nn.functional.gumbel_softmax(query @ key.mT) @ value
    assert np.array_equal(seen.attention().weights, truth.numpy())
    query, key = torch.randn(8, 5, 4), torch.randn(8, 5, 4)
    with watch() as seen:
        (query @ key.mT).softmax(-1) @ key
    assert seen.attention().weights.shape == (1, 1, 5, 5)
    assert "the number of heads is not known" in seen.attention().provenance.notes[0]
    query, key, value = models.split(*torch.randn(3, 2, 5, SIZE))
    with watch() as seen:
        weights = nn.functional.dropout((query @ key.mT).softmax(-1), 0.5)
        _ = weights[..., 3:] @ value[..., 3:, :] + weights[..., :3] @ value[..., :3, :]
    (kept,) = seen.log.captures
    assert kept.had_dropout
    assert np.abs(kept.weights - (query @ key.mT).softmax(-1)[0].numpy()).max() < 1e-6
    with watch() as seen:
        weights = (query @ key.mT).softmax(-1)
        _ = nn.functional.dropout(weights, 0.5).mul_(0.5) @ value
    assert torch.equal(weights, (query @ key.mT).softmax(-1))  # the model's own stay as they are
    assert np.abs(seen.attention().weights[0] - weights[0].numpy() / 2).max() < 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch, of flex_attention that is not compiled
def test_flex_attention_outside_compile_is_seen():
    torch.manual_seed(1)
    with torch.no_grad():
        result = check(models.Flexible(), (tokens(),), lambda module, x: module.weights(x))
    assert [item.stream for item in result.maps] == ["causal"]


def test_a_cache_gives_one_map_for_each_step():
    torch.manual_seed(1)
    model, x = models.Cached(), tokens(4)
    whole = model.weights(x)[0]
    with watch(model) as seen:
        model(x)
    steps = seen_by_layer(seen.attention())
    assert list(steps) == [f"Cached#{number}" for number in (1, 2, 3, 4)]
    for number, weights in enumerate(steps.values()):
        assert np.abs(weights[:, 0] - whole[:, number, : number + 1]).max() < 1e-5


def weigh_torch(module: Any, query: Any, key: Any, value: Any, **options: Any) -> np.ndarray:
    """The weights of nn.MultiheadAttention, from its parameters."""
    if query.ndim == 2:
        query, key = query[None], key[None]
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    weight, bias = module.in_proj_weight, module.in_proj_bias
    sides = []
    for number, x in enumerate((query, key)):
        layer = nn.Linear(x.shape[-1], module.embed_dim, bias=bias is not None)
        named = (module.q_proj_weight, module.k_proj_weight)[number]
        part = slice(number * module.embed_dim, (number + 1) * module.embed_dim)
        layer.weight.data = named.data if weight is None else weight.data[part]
        if bias is not None:
            layer.bias.data = bias.data[part]
        sides.append(projected(x, layer, module.num_heads))
    query, key = sides
    batch, heads, length, size = query.shape
    extra = 0
    if module.bias_k is not None:
        one = double(module.bias_k).reshape(1, heads, 1, size).repeat(batch, 0)
        key, extra = np.concatenate([key, one], 2), extra + 1
    if module.add_zero_attn:
        key, extra = np.concatenate([key, np.zeros((batch, heads, 1, size))], 2), extra + 1
    bias = np.zeros((batch, heads, length, key.shape[2]))
    seen = bias[..., : key.shape[2] - extra]
    mask, padding = options.get("attn_mask"), options.get("key_padding_mask")
    if mask is not None:
        seen += added(mask).reshape(-1, heads if mask.ndim == 3 else 1, *mask.shape[-2:])
    if padding is not None:
        seen += added(padding)[:, None, None]
    return by_hand(query, key, bias)


def added(mask: torch.Tensor) -> np.ndarray:
    return np.where(mask.numpy(), -np.inf, 0.0) if mask.dtype == torch.bool else mask.numpy()


CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "batch first": ({"batch_first": True}, {}),
    "boolean mask": ({"batch_first": True}, {"attn_mask": CAUSAL}),
    "added mask": ({}, {"attn_mask": torch.randn(5, 5)}),
    "mask a head": ({"batch_first": True}, {"attn_mask": torch.randn(2 * HEADS, 5, 5)}),
    "padding": ({"batch_first": True}, {"key_padding_mask": PADDED}),
    "padding and mask": ({"batch_first": True}, {"key_padding_mask": PADDED, "attn_mask": CAUSAL}),
    "zero attention": ({"add_zero_attn": True}, {}),
    "biases": ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": CAUSAL}),
    "no bias": ({"bias": False}, {}),
    "other sizes": ({"kdim": 7, "vdim": 9, "batch_first": True}, {}),
    "mean weights": ({}, {"average_attn_weights": True}),
    "weights a head": ({}, {"average_attn_weights": False}),
}


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(
    ("mode", "weights"), [("train", False), ("eval", True), ("no grad", False)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_s_own_module_is_seen_in_every_layout(layout, mode, weights):
    torch.manual_seed(2)
    made, called = LAYOUTS[layout]
    options = {**called, "need_weights": weights}

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(SIZE, HEADS, **made).train(mode == "train")

        def forward(self, *sides: Any) -> Any:
            return self.inner(*sides, **options)[0]

    shape = (2, 5) if made.get("batch_first") else (5, 2)
    query = torch.randn(*shape, SIZE)
    key, value = query, query
    if "kdim" in made:
        key, value = torch.randn(*shape, 7), torch.randn(*shape, 9)
    with nullcontext() if mode != "no grad" else torch.no_grad():
        model = Holder().train(mode == "train")
        result = check(model, (query, key, value), weigh_torch)
    streams = {"boolean mask": "causal", "padding and mask": "causal", "other sizes": "cross"}
    if layout not in ("zero attention", "biases"):  # which have keys of their own
        assert result.maps[0].stream == streams.get(layout, "self")


def test_a_sequence_without_a_batch_is_seen():
    torch.manual_seed(3)
    x = torch.randn(5, SIZE)

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(SIZE, HEADS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, x, x)[0]

    check(Holder(), (x,), weigh_torch)


STACKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]], set[str]]] = {
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(SIZE, HEADS, 16, dropout=0.0, batch_first=True), 2
        ),
        lambda: (tokens(),),
        {"self"},
    ),
    "decoder": (
        lambda: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(SIZE, HEADS, 16, dropout=0.0, batch_first=True), 2
        ),
        lambda: (tokens(5), tokens(5)),
        {"self", "cross"},
    ),
    "transformer": (
        lambda: nn.Transformer(SIZE, HEADS, 1, 2, 16, dropout=0.0),
        lambda: (torch.randn(5, 2, SIZE), torch.randn(4, 2, SIZE)),
        {"self", "cross"},
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("mode", ["train", "eval", "no grad"])
@pytest.mark.parametrize("name", STACKS)
def test_torch_s_own_transformers_are_seen_fused_too(name, mode):
    torch.manual_seed(4)
    make, inputs, streams = STACKS[name]
    with nullcontext() if mode != "no grad" else torch.no_grad():
        result = check(make().train(mode == "train"), inputs(), weigh_torch)
    assert {item.stream for item in result.maps} == streams


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_a_fused_encoder_gives_for_padding_stays():
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(SIZE, HEADS, 16, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), tokens(5)
    with torch.no_grad():
        before = model(x, src_key_padding_mask=PADDED)
        with watch(model, batch=1) as seen:
            after = model(x, src_key_padding_mask=PADDED)
    assert (before[1, 3:] == 0).all()
    assert torch.equal(before, after)
    assert seen.attention().maps[0].weights[..., 3:].max() == 0
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_in_bfloat16_they_are_seen_to_a_hundredth(name):
    torch.manual_seed(6)
    make, inputs, _ = MADE[name]
    model = make().eval().to(torch.bfloat16)
    given = tuple(x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs())
    if name == "sinks, masks behind the softmax":
        pytest.skip("the model itself wants float32")
    check(model, given, lambda module, *args: module.weights(*args), off=2e-2)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_torch_s_transformer_is_seen_in_bfloat16():
    torch.manual_seed(7)
    make, inputs, _ = STACKS["transformer"]
    given = tuple(x.to(torch.bfloat16) for x in inputs())
    check(make().to(torch.bfloat16), given, weigh_torch, off=1e-2)


PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[..., Any]]] = {
    "@": ((2, 4, 5, 6), (2, 4, 6, 3), lambda w, v: w @ v),
    "values shared by the heads": ((2, 4, 5, 6), (2, 1, 6, 3), torch.matmul),
    "values shared by the batch": ((2, 4, 5, 6), (6, 3), torch.matmul),
    "weights shared by the batch": ((5, 6), (2, 4, 6, 3), torch.matmul),
    "one query": ((6,), (6, 3), torch.matmul),
    "one number a key": ((5, 6), (6,), torch.mv),
    "by name": ((5, 6), (6, 3), lambda w, v: torch.matmul(input=w, other=v)),
    "added to": ((5, 6), (6, 3), lambda w, v: torch.addmm(torch.ones(3), w, v, beta=2, alpha=3)),
    "turned": ((4, 5, 6), (4, 6, 3), lambda w, v: torch.bmm(v.transpose(1, 2), w.mT)),
    "turned, one query": ((6,), (6, 3), lambda w, v: v.T @ w),
    "taken apart": ((5, 6), (6, 3), lambda w, v: torch.cat([row @ v for row in w.split(5)])),
    "no arrow": ((5, 6), (6, 3), lambda w, v: torch.einsum("xk,kz", w, v)),
    "a list": ((4, 5, 6), (4, 6, 3), lambda w, v: torch.einsum("bqk,bkd->bqd", [w, v])),
    "ellipsis": ((2, 4, 5, 6), (4, 6, 3), lambda w, v: torch.einsum("...qk,...kd->...qd", w, v)),
    "keys first": ((4, 5, 6), (4, 6, 3), lambda w, v: torch.einsum("bkq,bkd->dqb", w.mT, v)),
    "values first": ((4, 5, 6), (4, 6, 3), lambda w, v: torch.einsum("bkd,bqk->qbd", v, w)),
    "two sizes": ((5, 6), (6, 3, 2), lambda w, v: torch.einsum("qk,kde->qde", w, v)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_whatever_the_product_the_weights_are_found_in_it(name):
    torch.manual_seed(8)
    shape, other, product = PRODUCTS[name]
    scores, values = torch.randn(shape), torch.randn(other)
    with watch() as seen:
        product(scores.softmax(-1), values)
    assert not seen.log.failures
    (kept,) = seen.log.captures
    truth = scores.double().softmax(-1).numpy()
    while truth.ndim < 4 and len(other) < 4:
        truth = truth[:, None] if truth.ndim == 3 else truth[None]
    assert np.abs(kept.weights - truth[(0,) * (truth.ndim - 3)]).max() < 1e-6
    assert kept.off is not None
    assert kept.off < 1e-5
