"""Tiles of whole rows: against indicators and against weights written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from attnviz.core.attention_call import AttentionCall
from attnviz.models.hugging_face.capture import passes, probe, scores
from attnviz.models.hugging_face.capture.blocks import _in_order
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions
from attnviz.models.hugging_face.capture.passes import CaptureSpec, read_call
from attnviz.models.hugging_face.capture.probe import pool_array, read_grid
from attnviz.models.hugging_face.capture.region import PooledGrid, Region, TokenBlocks, split_blocks
from attnviz.models.hugging_face.capture.scores import read_tiles
from tests.hugging_face.test_exact_links import HIDDEN, assert_same, brute_force
from tests.hugging_face.test_probe import Module, rounding, spelled_out

TOKENS, HEADS, SIZE = 50, 4, 6
POOLED = PooledGrid(split_blocks(0, TOKENS, 13), split_blocks(0, TOKENS, 10))
DISTANCE = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
CAUSAL = (DISTANCE >= 0)[None, None]
WINDOW = CAUSAL & (DISTANCE < 9)
PADDED = torch.arange(TOKENS)[None, None, None] < torch.tensor([50, 31])[:, None, None, None]
BIAS = torch.randn(1, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(2))
SINKS = torch.tensor([0.5, 1.0, 2.0, -1.0])


@pytest.fixture
def threads():
    """Two threads, which are two still when it ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_what_threads_read_is_in_order():
    spans = [slice(first, first + 1) for first in range(19)]
    assert [*_in_order(lambda span: [span.start], spans, 2)] == [[first] for first in range(19)]


def called(kernel=spelled_out, mask=None, groups=2, causal=False, texts=1, hidden=None, **options):
    """A call, whose kernel may do more than the call names."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(texts, count, TOKENS, SIZE, generator=generator)
        for count in (HEADS, groups, groups)
    )
    module = Module(HEADS // groups, causal)

    def asked(module, query, key, value, mask, **options):
        return kernel(module, query, key, value, mask, **options, **(hidden or {}))

    output = asked(module, query, key, value, mask, **options)[0]
    return AttentionCall(
        query, key, value, mask, output, kernel=asked, module=module, options=options
    )


def weights_of(call):
    """The weights as a plain kernel spells them out, shape (texts, heads, queries, keys)."""
    given = (call.query, call.key, call.value, call.mask)
    found = []
    for text in range(len(call.query)):
        own = [one if one is None else one[text % len(one)][None] for one in given]
        found.append(spelled_out(call.module, *own, **call.options)[1])
    return torch.cat(found)


@pytest.mark.slow
@pytest.mark.parametrize("tile", [2**20, 20 * TOKENS, 3 * TOKENS])
@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (None, {}),
        (None, {"causal": True}),
        (None, {"causal": True, "scaling": 0.7}),
        (PADDED, {"texts": 2}),
        (PADDED & CAUSAL, {"texts": 2}),
        (WINDOW, {}),
        (torch.zeros(WINDOW.shape).masked_fill(~WINDOW, torch.finfo(torch.float32).min), {}),
        (BIAS, {}),
        (None, {"position_bias": BIAS}),
        (None, {"softcap": 0.9}),
        (CAUSAL, {"s_aux": SINKS}),
    ],
)
@pytest.mark.usefixtures("threads")
def test_tiles_are_indicators_and_weights(mask, options, tile, monkeypatch):
    monkeypatch.setattr(scores, "TILE", tile)
    call = called(mask=mask, groups=4 if tile == 2**20 else 2, **options)
    found, links, _ = read_tiles(call, POOLED, 5, HIDDEN)
    torch.testing.assert_close(found, read_grid(call, POOLED), atol=1e-6, rtol=0)
    weights = weights_of(call).numpy()
    expected = np.stack([pool_array(text, POOLED) for text in weights])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    flat = weights.reshape(-1, TOKENS, TOKENS)
    assert_same(links, brute_force(flat, HIDDEN, 5), flat, rounding(call))


@pytest.mark.parametrize(
    "grid",
    [
        PooledGrid(TokenBlocks(0, TOKENS), TokenBlocks(0, TOKENS)),
        PooledGrid(TokenBlocks(7, 9), TokenBlocks(0, TOKENS)),
        PooledGrid(TokenBlocks(4, 33, 3), TokenBlocks(9, 40, 4)),
        PooledGrid(TokenBlocks(4, 33, 3), TokenBlocks(30, 50, 2)),
    ],
)
@pytest.mark.parametrize("causal", [True, False])
def test_a_part_of_the_text_is_read_in_tiles_too(causal, grid, monkeypatch):
    monkeypatch.setattr(scores, "TILE", 8 * TOKENS)
    call = called(sdpa_attention_forward, causal=causal)
    found, *_ = read_tiles(call, grid, 0, HIDDEN)
    np.testing.assert_allclose(found[0], pool_array(weights_of(call)[0].numpy(), grid), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "hidden",
    [{"softcap": 0.9}, {"s_aux": SINKS}, {"position_bias": BIAS}, {"position_bias": BIAS / 50}],
)
@pytest.mark.usefixtures("threads")
def test_a_kernel_that_does_more_is_asked(hidden, monkeypatch):
    call, asked = called(hidden=hidden), []
    monkeypatch.setattr(probe, "read_grid", lambda *given: (asked.append(1), read_grid(*given))[1])
    assert read_tiles(call, POOLED, 5, HIDDEN) is None
    found = read_call("layer", call, CaptureSpec(POOLED, 5, HIDDEN))
    weights = weights_of(replace(call, options=hidden))
    assert asked
    np.testing.assert_allclose(found.weights[0], pool_array(weights[0].numpy(), POOLED), atol=1e-6)
    assert_same(found.links, brute_force(weights[0].numpy(), HIDDEN, 5), weights[0], rounding(call))
    read_call("layer", called(), CaptureSpec(POOLED, 5, HIDDEN))
    assert len(asked) == 1


@pytest.mark.parametrize("value", [0, 1])
def test_values_that_are_alike_say_nothing(value):
    call = called(hidden={"position_bias": BIAS}, groups=4)
    values = call.value.clone()
    values[:, 1] = value
    call = replace(call, value=values, output=call.mix(values))
    assert read_tiles(call, POOLED, 0, HIDDEN) is None
    found = read_call("layer", call, CaptureSpec(POOLED, 5, HIDDEN))
    weights = weights_of(replace(call, options={"position_bias": BIAS}))[0].numpy()
    np.testing.assert_allclose(found.weights[0], pool_array(weights, POOLED), atol=1e-6)
    even = replace(call, value=torch.ones_like(values), output=torch.ones_like(call.output))
    assert read_tiles(even, POOLED, 0, HIDDEN) is None


def test_small_offs_ask_the_kernel_and_equal_links(monkeypatch):
    call = called(groups=4, hidden={"position_bias": BIAS * torch.eye(4)[3, :, None, None]})
    assert read_tiles(call, POOLED, 0, HIDDEN) is None
    few = PooledGrid(split_blocks(0, TOKENS, SIZE), split_blocks(0, TOKENS, SIZE))
    assert read_tiles(called(), few, 0, HIDDEN) is None
    assert read_tiles(called(), few, 1, HIDDEN)
    assert read_tiles(replace(called(), mask=torch.ones(1, TOKENS)), POOLED, 0, HIDDEN) is None
    monkeypatch.setattr(scores, "TILE", 4 * TOKENS)
    call = called()
    call = replace(call, key=torch.zeros_like(call.key))
    call = replace(call, output=call.mix(call.value))
    _, links, _ = read_tiles(call, POOLED, 3, IgnoredPositions(keys=(0,), itself=True))
    for head in links:
        assert [(cell.query, cell.key) for cell in head] == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_asks_the_kernel(dtype):
    hidden = (BIAS / 50).to(dtype)  # too small for an output in half precision to show
    call = called(hidden={"position_bias": hidden}, groups=4)
    call = replace(
        call, **{name: getattr(call, name).to(dtype) for name in ("query", "key", "value")}
    )
    call = replace(call, output=call.mix(call.value))
    assert read_tiles(call, POOLED, 0, HIDDEN) is None


@pytest.mark.usefixtures("threads")
def test_what_goes_wrong_in_a_thread_is_raised(monkeypatch):
    def failing(*_):
        raise MemoryError("of a thread")

    monkeypatch.setattr(scores, "TILE", 4 * TOKENS)
    monkeypatch.setattr(probe, "recompute_rows", failing)
    with pytest.raises(MemoryError, match="of a thread"):
        read_tiles(called(), POOLED, 0, HIDDEN)


def small_llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaModel(LlamaConfig(vocab_size=50, **sizes, **heads)).eval()


@pytest.mark.usefixtures("threads")
def test_a_model_computes_the_same_bits_while_it_is_read(monkeypatch):
    monkeypatch.setattr(scores, "TILE", 40 * 300)
    model = small_llama()
    given = {"input_ids": torch.randint(0, 50, (1, 300))}
    outputs = []
    model.register_forward_hook(lambda *args: outputs.append(args[2].last_hidden_state))
    with torch.no_grad():
        model(**given, use_cache=False)
    (read,) = capture(model, given, {"causal": (300, 300)}, region=Region(40, links=3))
    assert torch.equal(*outputs)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(**given, use_cache=False, output_attentions=True).attentions
    for layer, (weights,) in zip(read.weights, eager, strict=True):
        np.testing.assert_allclose(layer, pool_array(weights.numpy(), read.grid), atol=1e-6)


def test_tiles_stand_beside_a_kernel_that_is_asked(monkeypatch):
    model = small_llama()
    given, sides = {"input_ids": torch.randint(0, 50, (1, 40))}, {"causal": (40, 40)}
    (expected,) = capture(model, given, sides)
    tiles = iter((read_tiles, lambda *_, **__: None))
    monkeypatch.setattr(passes, "read_tiles", lambda *args, **how: next(tiles)(*args, **how))
    (read,) = capture(model, given, sides)
    assert read.layers == ("0", "1")
    np.testing.assert_allclose(read.weights, expected.weights, atol=1e-6)
