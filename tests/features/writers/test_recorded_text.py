"""What each part writes, against sums, a slow loop over heads, and TransformerLens."""

import math
from dataclasses import replace
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from attnviz.core.effects import HeadAt
from attnviz.core.errors import AttentionError
from attnviz.core.query import Query
from attnviz.core.writers import SIDES, Writer
from attnviz.features.pocket_lm.language_model import FOLDER, load_pocket_lm
from attnviz.features.writers.links import contrast_of, explain_link, score_of, weigh
from attnviz.features.writers.recorded_text import RecordedText
from attnviz.models.hugging_face.capture.kernel import eager_copy
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.tiny_heads import asked, make

pytestmark = pytest.mark.models

SPLIT = {
    "gpt2": 1e-10,
    **dict.fromkeys(("phi", "gpt_neox", "opt", "bloom", "mpt", "falcon"), 1e-10),
    **dict.fromkeys(("bert", "roberta", "distilbert", "electra"), 1e-10),
    **dict.fromkeys(("bart", "t5", "marian", "whisper", "vit", "dinov2"), 1e-10),
    # Their norms and rotations calculate in float32 whatever the model's precision is.
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gptj"), 1e-5),
    "llama4_text": 1e-5,
    # Their experts multiply no float64.
    **dict.fromkeys(("gpt_oss", "qwen3_next", "deepseek_v32"), None),
}
"""Families, and how near their parts come to the sum in float64, relative to its size."""
CURVED = ("bert", "roberta", "distilbert", "electra", "gemma2")
"""Families whose head is not linear."""
FAST = ("llama", "t5", "gemma2")


def written(name, dtype=torch.float32):
    with quiet():
        question = asked(name, make(name).to(dtype))
        part = eager_copy(question.model)
        model = replace(question.encoding, part=part, inputs=question.inputs)
        return RecordedText(model)


def heads_of(text):
    for item in text.attention.maps:
        for layer in item.layers:
            for head in range(len(item.heads)):
                yield item, HeadAt(item.stream, layer, head)


def misses(text):
    """How far parts miss scores, and weights made of scores miss the model's: the worst heads."""
    sums, weights = [0.0], [0.0]
    for item, at in heads_of(text):
        sides = text.sides(at)
        own = item.weights[item.layers.index(at.layer), at.head]
        weights.append(np.abs(weigh(sides, score_of(sides)) - own).max())
        row = len(own) - 1
        contrast = contrast_of(sides, row, int(np.flatnonzero(sides.mask[row])[0]))
        total = (contrast * score_of(sides)).sum()
        total -= 0 if sides.position is None else (contrast * sides.position).sum()
        query, key = sides.query.astype(np.float64), sides.key.astype(np.float64)
        for side, direction in (("query", contrast @ key), ("key", contrast.T @ query)):
            parts = text.read(at, side, direction * sides.factor)
            size = max(abs(total), np.abs(parts).max(), 1e-3)
            sums.append(abs(parts.sum() - total) / size)
    return max(sums), max(weights)


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in SPLIT]
)
def test_parts_sum_to_scores_and_logits(name):
    for dtype, near in ((torch.float32, 1e-5), (torch.float64, SPLIT[name])):
        if near is None:
            continue
        text = written(name, dtype)
        parts, weights = misses(text)
        assert parts <= near
        assert weights <= 1e-5
        row = len(text.attention.main.query_tokens) - 1
        logits = text.logits(row)
        choice = int(logits.argmax())
        total = logits[choice] - logits.mean()
        missing = abs(text.logit_parts(row, choice).sum() - total)
        assert (missing > 1e-3 * abs(total)) == (name in CURVED)
        if name not in CURVED:
            assert missing <= near * max(abs(total), 1)


@pytest.mark.parametrize("name", ["gpt2", "gpt_oss", "bert", "bart"])
def test_each_part_is_what_its_writer_gives(name):
    """The gradient's gradient gives vectors whose products are the parts."""
    text = written(name)
    for item, side in product(text.attention.maps, SIDES):
        at = HeadAt(item.stream, item.layers[-1], 1)
        found = list(text.parts(at.stream, at.layer, side, range(len(text.writers))))
        direction = np.random.default_rng(0).normal(size=found[0][at.head].shape)
        products = [(part[at.head] * direction).sum() for part in found]
        np.testing.assert_allclose(text.read(at, side, direction), products, atol=2e-5)


def test_a_block_of_a_pair_is_named_by_its_side():
    blocks = [
        (one.stream, one.layer) for one in written("t5").writers if one.kind == "feed-forward"
    ]
    assert blocks == [("encoder", "0"), ("encoder", "1"), *(("decoder", n) for n in "012")]


def test_a_sink_stands_beside_scores_of_any_size():
    call: Any = SimpleNamespace(
        cap=None, mask=np.tril(np.ones((3, 3), bool)), sink=np.full((1, 1), 900.0)
    )
    shares = weigh(call, np.full((3, 3), 900.0))
    np.testing.assert_allclose(shares, call.mask / [[2], [3], [4]])


def test_grouped_heads_against_a_slow_loop():
    """Query heads share keys: from what hooks saw, writer after writer, head after head."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model = make("llama").double()
    model.config._attn_implementation = "eager"
    question, seen = asked("llama", model), {}
    for name, module in model.model.named_modules():
        if name.endswith(("o_proj", "mlp", "embed_tokens", "rotary_emb", "input_layernorm")):
            module.register_forward_hook(
                lambda m, i, o, name=name: seen.update({name: (i[0].detach(), o)})
            )
    with torch.no_grad():
        model(**question.inputs)
    layer, config = model.model.layers[1], model.config
    heads, groups, size = (
        config.num_attention_heads,
        config.num_key_value_heads,
        layer.self_attn.head_dim,
    )
    assert groups < heads
    fields = [seen["embed_tokens"][1][0]]
    mixed, matrix = (
        seen["layers.0.self_attn.o_proj"][0][0],
        model.model.layers[0].self_attn.o_proj.weight,
    )
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        fields.append(mixed[:, own] @ matrix[:, own].T)
    fields.append(seen["layers.0.mlp"][1][0])
    stream = seen["layers.1.input_layernorm"][0][0]
    scale = (stream.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
    scale = scale * layer.input_layernorm.weight
    cosine, sine = seen["rotary_emb"][1]
    text = written("llama", torch.float64)
    names = [writer.name for writer in text.writers]
    first = names.index("embedding")
    with torch.no_grad():
        for head in range(heads):
            group = head * groups // heads
            at = HeadAt("causal", "1", head)
            sides, row = text.sides(at), len(stream) - 1
            parts = text.read(at, "key", np.outer(np.eye(len(stream))[2], sides.query[row]))
            for number, field in enumerate(fields):
                key = (field * scale) @ layer.self_attn.k_proj.weight[
                    group * size : (group + 1) * size
                ].T
                turned = apply_rotary_pos_emb(key[None, None], key[None, None], cosine, sine)[1][
                    0, 0
                ]
                expected = float(turned[2] @ torch.as_tensor(sides.query[row]))
                assert parts[first + number] == pytest.approx(expected, rel=1e-6, abs=1e-6)


EXPERTS = (
    *("mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "granitemoe", "phimoe", "gpt_oss"),
    *("ernie4_5_moe", "deepseek_v2", "deepseek_v3"),
)


@pytest.fixture
def nan_memory(monkeypatch):
    """What torch and numpy do not write is NaN."""
    for module, name in product((torch, np), ("empty", "empty_like")):
        make_empty = getattr(module, name)

        def fill(*args, _make=make_empty, **how):
            cells = _make(*args, **how)
            if isinstance(cells, torch.Tensor):
                return cells.fill_(math.nan) if cells.is_floating_point() else cells
            return np.full_like(cells, math.nan) if cells.dtype.kind == "f" else cells

        monkeypatch.setattr(module, name, fill)


@pytest.mark.parametrize(
    "name", [n if n == "mixtral" else pytest.param(n, marks=pytest.mark.slow) for n in EXPERTS]
)
def test_experts_leave_what_is_left_without_a_writer(name, nan_memory):
    """The model's own second layer reads its input less one head's part; twice, bit for bit."""
    seen, text, model = [], written(name), make(name)
    at = HeadAt("causal", "1", 1)

    def spy(module, query, key, value, mask, **how):
        seen.append((module.layer_idx, query, key))
        own = import_module(type(module).__module__)
        return own.eager_attention_forward(module, query, key, value, mask, **how)

    AttentionInterface.register("spy", spy)
    AttentionMaskInterface.register("spy", eager_mask)
    model.config._attn_implementation = "spy"
    question = asked(name, model)
    first, second = model.model.layers[:2]
    inputs = []
    first.self_attn.o_proj.register_forward_pre_hook(lambda _, one: inputs.append(one[0]))
    heads = model.config.num_attention_heads
    for head in range(heads):

        def leave_out(_, args, head=head):
            size = inputs[-1].shape[-1] // heads
            own = torch.zeros_like(inputs[-1])
            own[..., head * size : (head + 1) * size] = inputs[-1][..., head * size :][..., :size]
            part = own @ first.self_attn.o_proj.weight.T
            return (args[0] - part * getattr(model.config, "residual_multiplier", 1), *args[1:])

        with torch.no_grad(), quiet():
            hook = second.register_forward_pre_hook(leave_out)
            model(**question.inputs)
            hook.remove()
        _, *sides = next(one for one in reversed(seen) if one[0] == 1)
        writer = text.writers.index(Writer("head", "causal", "0", head))
        for side, expected in zip(("query", "key"), sides, strict=True):
            one, other = (text.without(at, side, writer) for _ in range(2))
            assert np.array_equal(one, other)
            own = at.head * expected.shape[1] // heads
            np.testing.assert_allclose(one, expected[0, own], atol=2e-5)


@pytest.mark.parametrize("name", ["t5", "bloom", "mpt", "gpt2"])
def test_a_score_is_what_softmax_reads(name, monkeypatch):
    text, model, read = written(name), eager_copy(make(name)), []
    softmax = torch.nn.functional.softmax

    def record(scores, *args, **how):
        read.append(scores)
        return softmax(scores, *args, **how)

    monkeypatch.setattr(torch.nn.functional, "softmax", record)
    with torch.no_grad(), quiet():
        model(**asked(name, model).inputs)
    scores = [one[0].numpy() for one in read if one.ndim == 4]
    assert len(scores) >= len(text.attention.main.layers)
    first = text.attention.maps[0] if name != "t5" else text.attention.map_of("encoder")
    for layer, head in product(range(2), range(2)):
        sides = text.sides(HeadAt(first.stream, str(layer), head))
        own = np.where(sides.mask, scores[layer][head], 0)
        np.testing.assert_allclose(np.where(sides.mask, score_of(sides), 0), own, atol=1e-4)


def test_two_routes_agree_on_the_model_inside():
    """Numpy takes the layers apart one by one, torch by gradients through one linear pass."""
    query = Query("Tom likes dogs. Mary likes cats. Tom likes")
    inside, loaded = load_pocket_lm().trace_writers(query), load_model(str(FOLDER), with_head=True)
    with quiet():
        other = loaded.trace_writers(query)
    assert [one.name for one in inside.writers] == [one.name for one in other.writers]
    for at, link in ((HeadAt("causal", "2", 3), (10, 3)), (HeadAt("causal", "1", 1), (5, 4))):
        first, second = (explain_link(text, at, link) for text in (inside, other))
        for name in ("weight", "score", "contrast", "argument", "logit", "rank"):
            assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-4)
        for side in ("query", "key", "value"):
            known = {one.writer: one.value for one in getattr(first, side)}
            assert known == pytest.approx(
                {one.writer: one.value for one in getattr(second, side)}, abs=1e-4
            )
        assert [one[:2] for one in first.pairs[:3]] == [one[:2] for one in second.pairs[:3]]
        assert [one.token for one in first.arguments] == [one.token for one in second.arguments]
        for one, same in zip(first.checks, second.checks, strict=True):
            assert (one.side, one.writer) == (same.side, same.writer)
            assert one.expected == pytest.approx(same.expected, abs=1e-4)
            assert one.measured == pytest.approx(same.measured, abs=1e-4)
    for row in (3, 10):
        for one, same in zip(inside.layer_logits(row), other.layer_logits(row), strict=True):
            np.testing.assert_allclose(one, same, atol=1e-3)


@pytest.mark.parametrize("name", ["qwen3_next", "deepseek_v32", "falcon"])
def test_without_a_missing_writer_a_side_is_as_it_was(name):
    """A replay holds each leaf, products without a softmax included, and names layers truly."""
    text = written(name)
    for item, at in heads_of(text):
        for side in ("query", "key"):
            bias = text.writers.index(Writer("bias", item.stream))
            same = text.without(at, side, bias)  # no leaf is one of biases
            np.testing.assert_allclose(same, getattr(text.sides(at), side), atol=2e-5)
    layers = {one.layer for one in text.writers if one.kind == "feed-forward"}
    assert layers == {str(number) for number in range(len(layers))}


def test_writers_that_do_not_match_and_shared_modules():
    text = written("gpt2")
    text.recording.leaves.pop(0)
    text.of_leaf.pop(0)
    with pytest.raises(AttentionError, match="cannot split what"):
        explain_link(text, HeadAt("causal", "1", 0), (5, 2))
    # ALBERT runs one module for all layers: what each run wrote is its own.
    text = written("albert")
    names = [one.name for one in text.writers if one.kind == "feed-forward"]
    layers = text.attention.main.layers
    assert len(layers) > 1
    assert names == [f"feed-forward {layer}" for layer in layers]


def test_logits_as_transformer_lens_attributes_them():
    """A head's share of a logit with its bias, by TransformerLens' own attribution."""
    pytest.importorskip("transformer_lens")
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights

    model = make("gpt2")
    config = model.config
    lens = HookedTransformerConfig(
        n_layers=config.n_layer, d_model=config.n_embd, n_heads=config.n_head,
        d_head=config.n_embd // config.n_head, d_mlp=4 * config.n_embd, n_ctx=config.n_positions,
        d_vocab=config.vocab_size, act_fn="gelu_new", normalization_type="LN",
        eps=config.layer_norm_epsilon, attn_only=False,
    )  # fmt: skip
    hooked = HookedTransformer(lens)
    hooked.load_state_dict(convert_gpt2_weights(model, lens), strict=False)
    question, text = asked("gpt2", model), written("gpt2")
    with torch.no_grad():
        _, cache = hooked.run_with_cache(question.inputs["input_ids"])
        results = cache.stack_head_results(layer=-1, pos_slice=-1)
        scaled = cache.apply_ln_to_stack(results, layer=-1, pos_slice=-1) * hooked.ln_final.w
    row = len(text.attention.main.query_tokens) - 1
    choice = int(text.logits(row).argmax())
    direction = hooked.W_U[:, choice] - hooked.W_U.mean(-1)
    expected = (scaled[:, 0] @ direction).detach().numpy()
    parts = text.logit_parts(row, choice)
    own = [n for n, writer in enumerate(text.writers) if writer.kind == "head"]
    np.testing.assert_allclose(parts[own], expected, atol=1e-5)
