"""Formulas against the attention modules of transformers whose models use them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from attnviz.mechanisms.dot_product import causal_mask, grouped_query, latent, multi_query
from attnviz.mechanisms.linear import delta_rule, gated_delta_rule, retention
from attnviz.mechanisms.relative import (
    alibi,
    global_window,
    relative,
    relative_bias,
    rotary,
    sliding_window,
)
from attnviz.mechanisms.weighing import differential, gated, sinks, soft_cap

SIZE, HEADS, LENGTH, HEAD = 16, 2, 7, 8
SMALL = {"hidden_size": SIZE, "num_attention_heads": HEADS, "attn_implementation": "eager"}

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture
def seeded():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def inputs(size: int = SIZE, length: int = LENGTH) -> torch.Tensor:
    return torch.randn(2, length, size)


def straight(layer: nn.Module, size: int = SIZE) -> None:
    """An output projection that changes nothing."""
    layer.weight.copy_(torch.eye(size))
    if getattr(layer, "bias", None) is not None:
        layer.bias.zero_()


def same(found: tuple, output: torch.Tensor, weights: torch.Tensor | None = None) -> None:
    torch.testing.assert_close(found[0], output, rtol=1e-6, atol=1e-6)
    if weights is not None:
        torch.testing.assert_close(found[1], weights, rtol=0, atol=1e-6)


def unturned(length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(1, length, HEAD), torch.zeros(1, length, HEAD)


def llama(groups: int = HEADS, heads: int = HEADS):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    config = LlamaConfig(**SMALL | {"num_attention_heads": heads}, num_key_value_heads=groups)
    module = LlamaAttention(config, 0)
    straight(module.o_proj)
    return module, LlamaRotaryEmbedding(config)


def test_rotary_in_halves_is_llamas():
    module, turning = llama()
    given = inputs()
    output, weights = module(given, turning(given, torch.arange(LENGTH)[None]), None)
    sides = (module.q_proj(given), module.k_proj(given), module.v_proj(given))
    same(rotary(*sides, heads=HEADS, pairs="halves"), output, weights)


def test_rotary_of_neighbours_is_gpt_js():
    from transformers import GPTJConfig, GPTJModel

    config = GPTJConfig(n_embd=SIZE, n_head=HEADS, rotary_dim=HEAD, n_positions=32, n_layer=1)
    config._attn_implementation = "eager"
    # In the model, for what the module is called with changes with the version of transformers.
    model, given, seen = GPTJModel(config).eval(), inputs(), []
    module, model.h[0].ln_1 = model.h[0].attn, torch.nn.Identity()
    straight(module.out_proj)
    module.register_forward_hook(lambda *call: seen.append(call[-1]))
    model(inputs_embeds=given)
    output, weights = seen[0][:2]
    sides = (module.q_proj(given), module.k_proj(given), module.v_proj(given))
    same(rotary(*sides, causal_mask(given, LENGTH, LENGTH), heads=HEADS), output, weights)


@pytest.mark.parametrize(("formula", "groups"), [(grouped_query, 2), (multi_query, 1)])
def test_shared_keys_are_llamas(formula, groups):
    module, _ = llama(groups, heads=4)
    given, half = inputs(), (torch.ones(1, LENGTH, 4), torch.zeros(1, LENGTH, 4))
    output, weights = module(given, half, None)
    sides = (module.q_proj(given), module.k_proj(given), module.v_proj(given))
    same(formula(*sides, heads=4), output, weights)


def test_the_latent_is_deepseeks():
    from transformers import DeepseekV2Config
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import (
        DeepseekV2Attention,
        DeepseekV2RotaryEmbedding,
    )

    sizes = {"qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": HEAD, "kv_lora_rank": 6}
    config = DeepseekV2Config(**SMALL, **sizes, num_key_value_heads=HEADS, q_lora_rank=None)
    module, given = DeepseekV2Attention(config, 0), inputs()
    straight(module.o_proj)
    module.kv_a_layernorm.weight.uniform_(0.5, 1.5)
    turning = DeepseekV2RotaryEmbedding(config)
    places = turning(given, torch.arange(LENGTH)[None])
    output, weights = module(given, None, position_embeddings=places)
    asked = module.q_proj.weight.reshape(HEADS, 10, SIZE)
    unfolded = module.kv_b_proj.weight.reshape(HEADS, 6 + HEAD, 6)
    down = module.kv_a_proj_with_mqa.weight
    found = latent(
        *[given] * 3,
        heads=HEADS,
        w_query=asked[:, :6].flatten(0, 1).T,
        w_turned_query=asked[:, 6:].flatten(0, 1).T,
        w_latent=down[:6].T,
        w_turned_key=down[6:].T,
        w_up_key=unfolded[:, :6].flatten(0, 1).T,
        w_up_value=unfolded[:, 6:].flatten(0, 1).T,
        latent_scale=module.kv_a_layernorm.weight,
    )
    same(found, output, weights)


def test_relative_keys_are_wav2vec2_berts():
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        **SMALL,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=2,
        right_max_position_embeddings=2,
    )
    module, given = Wav2Vec2BertSelfAttention(config).eval(), inputs()
    straight(module.linear_out)
    output, weights = module(given)[:2]
    sides = (module.linear_q(given), module.linear_k(given), module.linear_v(given))
    table = module.distance_embedding.weight
    same(relative(*sides, relative_key=table, heads=HEADS), output, weights)


@pytest.mark.parametrize("decoder", [False, True])
def test_the_ranges_of_distances_are_t5s(decoder):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=SIZE, d_kv=HEAD, num_heads=HEADS, is_decoder=decoder)
    config._attn_implementation = "eager"
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    module.relative_attention_bias.weight.normal_()
    straight(module.o)
    given = inputs(length=200)
    sides = (module.q(given), module.k(given), module.v(given))
    found = relative_bias(
        *sides, bias=module.relative_attention_bias.weight, heads=HEADS, both_ways=not decoder
    )
    apart = torch.arange(200) - torch.arange(200)[:, None]
    expected = module._relative_position_bucket(apart, bidirectional=not decoder)
    parts = {
        part.name: part.value
        for part in relative_bias.parts(
            *sides, bias=module.relative_attention_bias.weight, both_ways=not decoder, heads=HEADS
        )
    }
    assert torch.equal(parts["range"], expected)
    output = module(given)[0]
    torch.testing.assert_close(found[0], output, rtol=0, atol=1e-5)


@pytest.mark.parametrize("heads", [4, 6])
def test_penalties_of_distance_are_blooms_and_mpts(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    query, key, value = (torch.randn(1, LENGTH, 24) for _ in range(3))
    seen = causal_mask(query, LENGTH, LENGTH)
    output, weights = alibi(query, key, value, seen, heads=heads)
    split = [side.reshape(1, LENGTH, heads, -1).transpose(1, 2) for side in (query, key, value)]
    scores = split[0] @ split[1].transpose(-1, -2) / (24 / heads) ** 0.5
    bloom = build_alibi_tensor(torch.ones(1, LENGTH), heads, torch.float32)
    mpt = build_mpt_alibi_tensor(heads, LENGTH)
    for added in (bloom.reshape(1, heads, 1, LENGTH), mpt[None]):
        expected = (scores + added).masked_fill(~seen, -torch.inf).softmax(-1)
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
    joined = (expected @ split[2]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(output, joined, rtol=0, atol=1e-6)


def test_the_sliding_window_is_mistrals():
    from transformers import MistralConfig
    from transformers.masking_utils import create_sliding_window_causal_mask
    from transformers.models.mistral.modeling_mistral import MistralAttention

    config = MistralConfig(**SMALL, num_key_value_heads=HEADS, sliding_window=3)
    module, given = MistralAttention(config, 0), inputs()
    straight(module.o_proj)
    mask = create_sliding_window_causal_mask(config, given, None, None)
    output, weights = module(given, unturned(), mask)
    sides = (module.q_proj(given), module.k_proj(given), module.v_proj(given))
    triangle = causal_mask(given, LENGTH, LENGTH)
    same(sliding_window(*sides, triangle, heads=HEADS, window=2), output, weights)


def test_global_positions_are_longformers():
    from transformers import LongformerConfig, LongformerModel

    config = LongformerConfig(
        **SMALL | {"attn_implementation": "eager"},
        num_hidden_layers=1,
        intermediate_size=SIZE,
        attention_window=[4],
        vocab_size=20,
        max_position_embeddings=32,
        pad_token_id=1,
    )
    model = LongformerModel(config, add_pooling_layer=False).eval()
    module = model.encoder.layer[0].attention.self
    for name in ("query", "key", "value"):
        own = getattr(module, name)
        own.bias.normal_()
        getattr(module, f"{name}_global").load_state_dict(own.state_dict())
    seen = {}
    module.register_forward_hook(
        lambda _, given, kwargs, output: seen.update(
            given=given[0] if given else kwargs["hidden_states"], output=output[0]
        ),
        with_kwargs=True,
    )
    everywhere = torch.zeros(2, 8, dtype=torch.long)
    everywhere[:, 0] = 1
    model(torch.randint(2, 20, (2, 8)), global_attention_mask=everywhere)
    sides = (getattr(module, name)(seen["given"]) for name in ("query", "key", "value"))
    found = global_window(*sides, heads=HEADS, window=2, everywhere=1)
    torch.testing.assert_close(found[0], seen["output"], rtol=0, atol=1e-6)


def heads_of(query: torch.Tensor, heads: int = HEADS) -> torch.Tensor:
    return query.reshape(*query.shape[:2], heads, -1).transpose(1, 2)


def test_the_soft_cap_is_gemmas():
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    sides = [2 * inputs() for _ in range(3)]
    module = SimpleNamespace(num_key_value_groups=1, training=False)
    output, weights = eager_attention_forward(
        module, *map(heads_of, sides), None, scaling=HEAD**-0.5, softcap=2.0
    )
    same(soft_cap(*sides, heads=HEADS, cap=2.0), output.flatten(2), weights)


def test_sinks_are_gpt_osss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    sides, sink = [inputs() for _ in range(3)], torch.randn(HEADS)
    module = SimpleNamespace(num_key_value_groups=1, training=False, sinks=sink)
    output, weights = eager_attention_forward(
        module, *map(heads_of, sides), None, scaling=HEAD**-0.5
    )
    same(sinks(*sides, sink=sink, heads=HEADS), output.flatten(2), weights)


def test_the_difference_of_softmaxes_is_diff_llamas():
    from transformers import DiffLlamaConfig
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention

    config = DiffLlamaConfig(
        **SMALL | {"num_attention_heads": 4}, num_key_value_heads=4, lambda_std_dev=0.5
    )
    module, given = DiffLlamaAttention(config, 0), inputs()
    straight(module.o_proj)
    output = module(given, (torch.ones(1, LENGTH, 4), torch.zeros(1, LENGTH, 4)), None)[0]
    # heads 0 and 2 are a pair there, and 1 and 3; here a pair is one head's two halves
    order = torch.arange(SIZE).reshape(2, 2, 4).transpose(0, 1).flatten()
    projections = (module.q_proj, module.k_proj, module.v_proj)
    sides = (projection(given)[..., order] for projection in projections)
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    balance = torch.stack([getattr(module, name) for name in names])
    found = differential(*sides, balance=balance, heads=HEADS, start=module.lambda_init)
    # what their norm adds to the mean square is a setting
    torch.testing.assert_close(config.rms_norm_eps, 1e-5)
    torch.testing.assert_close(found[0], output, rtol=1e-6, atol=1e-6)


def test_the_gate_is_that_of_qwen3_next():
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    config = Qwen3NextConfig(**SMALL, num_key_value_heads=HEADS, head_dim=HEAD)
    module, given = Qwen3NextAttention(config, 0), inputs()
    straight(module.o_proj)
    module.q_norm, module.k_norm = nn.Identity(), nn.Identity()
    output, weights = module(given, unturned(), None)
    asked = module.q_proj(given).reshape(2, LENGTH, HEADS, 2 * HEAD)
    query, gate = asked[..., :HEAD].flatten(2), asked[..., HEAD:].flatten(2).sigmoid()
    sides = (query, module.k_proj(given), module.v_proj(given))
    same(gated(*sides, gate=gate, heads=HEADS), output, weights)


def test_retention_is_minimaxs_lightning_attention():
    from transformers import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    config = MiniMaxConfig(
        **SMALL, head_dim=HEAD, block_size=4, num_hidden_layers=2, num_key_value_heads=HEADS
    )
    module, given = MiniMaxLightningAttention(config, 0), inputs()
    straight(module.out_proj)
    module.norm = nn.Identity()
    module.output_gate.weight.zero_()  # a gate of one half
    output = 2 * module(given, None, None)[0]
    states = module.act_fn(module.qkv_proj(given)).reshape(2, LENGTH, HEADS, 3, HEAD)
    sides = (states[:, :, :, number].flatten(2) for number in range(3))
    keep = (-module.slope_rate).exp().flatten()
    found = retention(*sides, heads=HEADS, keep=keep, base=None)
    torch.testing.assert_close(found[0], output, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fading", [False, True])
def test_the_delta_rule_is_that_of_qwen3_next(fading):
    from transformers.models.qwen3_next.modeling_qwen3_next import (
        torch_chunk_gated_delta_rule,
        torch_recurrent_gated_delta_rule,
    )

    sides = [inputs() for _ in range(3)]
    beta, alpha = torch.rand(2, LENGTH, HEADS), torch.rand(2, LENGTH, HEADS) * 0.9 + 0.05
    by_position = [side.reshape(2, LENGTH, HEADS, HEAD) for side in sides]
    logs = alpha.log() if fading else torch.zeros_like(alpha)
    for rule in (torch_recurrent_gated_delta_rule, torch_chunk_gated_delta_rule):
        output, _ = rule(*by_position, g=logs, beta=beta, use_qk_l2norm_in_kernel=True)
        if fading:
            found = gated_delta_rule(*sides, beta=beta, alpha=alpha, heads=HEADS)
        else:
            found = delta_rule(*sides, beta=beta, heads=HEADS)
        torch.testing.assert_close(found[0], output.flatten(2), rtol=0, atol=2e-6)
        split = sides[2].reshape(2, LENGTH, HEADS, HEAD).transpose(1, 2)
        mixed = (found[1] @ split).transpose(1, 2).flatten(2)
        torch.testing.assert_close(mixed, found[0], rtol=0, atol=1e-6)
