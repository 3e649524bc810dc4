"""Folders of small models whose code is their own, as they lie on a hub."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.hugging_face.tiny_models import word_pieces

LLAMA = """
import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PretrainedConfig
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput


class OwnConfig(PretrainedConfig):
    model_type = "own-lm"

    def __init__(self, way="matmul", causal=True, n_heads=4, n_layers=2, d_model=32, inner=48,
                 vocab_size=26, heads_kv=2, **more):
        self.way, self.causal, self.n_heads, self.n_layers = way, causal, n_heads, n_layers
        self.d_model, self.inner, self.vocab_size = d_model, inner, vocab_size
        self.heads_kv = heads_kv
        super().__init__(**more)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def turn(x):
    one, two = x.chunk(2, -1)
    return torch.cat([-two, one], -1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, size = config, config.d_model // config.n_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k_proj = nn.Linear(config.d_model, config.heads_kv * size, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.heads_kv * size, bias=False)
        self.o_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        rates = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        self.register_buffer("rates", rates, persistent=False)
        self.places = torch.arange(2048).float()

    def forward(self, x, hidden):
        own, (batch, length, _) = self.config, x.shape
        size = own.d_model // own.n_heads
        q, k, v = (p(x).view(batch, length, -1, size).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        angles = self.places[:length, None] * self.rates
        cos, sin = (f(torch.cat([angles, angles], -1)) for f in (torch.cos, torch.sin))
        q, k = (one * cos + turn(one) * sin for one in (q, k))
        k, v = (one.repeat_interleave(own.n_heads // own.heads_kv, 1) for one in (k, v))
        if own.way == "sdpa":
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)
        elif own.way == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / size**0.5
            shares = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            out = torch.einsum("bhqk,bhkd->bhqd", shares, v)
        elif own.way == "bmm":
            q, k, v = (one.reshape(-1, length, size) for one in (q, k, v))
            scores = torch.baddbmm(torch.zeros(1), q, k.transpose(1, 2), beta=0, alpha=size**-0.5)
            shares = torch.softmax(scores.masked_fill(hidden, -1e9), -1, dtype=torch.float32)
            out = torch.bmm(shares, v).view(batch, own.n_heads, length, size)
        elif own.way == "kernel":
            from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

            run = ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", None)
            mask = torch.zeros(1, 1, length, length).masked_fill(hidden, float("-inf"))
            out = run(self, q, k, v, mask, scaling=size**-0.5, is_causal=False)[0].transpose(1, 2)
        elif own.way == "linear":
            q, k = F.elu(q) + 1, F.elu(k) + 1
            out = (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(2, keepdim=True).transpose(-1, -2))
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) * size**-0.5
            shares = F.softmax(scores + torch.where(hidden, -1e30, 0.0), dim=-1)
            out = F.dropout(shares, p=0.1, training=self.training) @ v
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.inner, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.inner, bias=False)
        self.down_proj = nn.Linear(config.inner, config.d_model, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = Attention(config), Mlp(config)
        self.input_layernorm = Norm(config.d_model)
        self.post_attention_layernorm = Norm(config.d_model)

    def forward(self, x, hidden):
        x = x + self.self_attn(self.input_layernorm(x), hidden)
        return x + self.mlp(self.post_attention_layernorm(x))


class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = Norm(config.d_model)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **more):
        x, length = self.embed_tokens(input_ids), input_ids.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1) & self.config.causal
        if attention_mask is not None:
            hidden = hidden | (attention_mask == 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, hidden)
        return BaseModelOutput(self.norm(x))


class OwnForCausalLM(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, config):
        super().__init__(config)
        self.model = OwnModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def tie_weights(self):
        pass

    def forward(self, input_ids, attention_mask=None, **more):
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids, attention_mask)[0]))
"""
"""The Llama shape with attention written by hand, with the names of its weights in transformers;
the class with a head is written for transformers 4."""

CAUSAL_LM = {
    "AutoConfig": "modeling_own.OwnConfig",
    "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
}


def llama_weights(seed: int = 0, **sizes: int) -> Any:
    """A LlamaForCausalLM of transformers with random weights, run eagerly."""
    from transformers import LlamaConfig, LlamaForCausalLM

    own = {"n_layers": 2, "n_heads": 4, "heads_kv": 2, "d_model": 32, "inner": 48} | sizes
    config = LlamaConfig(
        vocab_size=26,
        hidden_size=own["d_model"],
        intermediate_size=own["inner"],
        num_hidden_layers=own["n_layers"],
        num_attention_heads=own["n_heads"],
        num_key_value_heads=own["heads_kv"],
        attn_implementation="eager",
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for one in model.parameters():
            if one.ndim > 1:
                one.normal_(std=0.3)
    return model


def write(
    folder: Path,
    code: str,
    weights: dict[str, Any],
    classes: dict[str, str],
    architecture: str,
    **config: Any,
) -> Path:
    """A folder of a model: its code, weights, tokenizer and configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "modeling_own.py").write_text(code)
    save_file({name: one.clone() for name, one in weights.items()}, folder / "model.safetensors")
    word_pieces().save_pretrained(folder)
    entries = {"architectures": [architecture], "auto_map": classes, **config}
    (folder / "config.json").write_text(json.dumps(entries))
    return folder


def llama_folder(folder: Path, way: str, *, seed: int = 0, **config: Any) -> Path:
    """A folder with the weights of `llama_weights`, whose attention is written in some way."""
    weights = llama_weights(seed).state_dict()
    own = {"model_type": "own-lm", "way": way, "tie_word_embeddings": False, **config}
    return write(folder, LLAMA, weights, CAUSAL_LM, "OwnForCausalLM", **own)


LLADA = """
import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PretrainedConfig
from transformers.modeling_outputs import CausalLMOutputWithPast


class OwnConfig(PretrainedConfig):
    model_type = "own-llada"

    def __init__(self, d_model=32, n_heads=4, n_layers=2, vocab_size=26, mask_token_id=4, **more):
        self.d_model, self.n_heads, self.n_layers = d_model, n_heads, n_layers
        self.vocab_size, self.mask_token_id = vocab_size, mask_token_id
        super().__init__(**more)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, size = config, config.d_model
        self.q_proj, self.k_proj, self.v_proj, self.attn_out = (
            nn.Linear(size, size, bias=False) for _ in range(4))
        self.attn_norm, self.ff_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.ff_proj, self.ff_out = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x, attention_bias=None):
        y, (batch, length, size) = self.attn_norm(x), x.shape
        q, k, v = (p(y).view(batch, length, self.config.n_heads, -1).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, is_causal=False)
        x = x + self.attn_out(y.transpose(1, 2).reshape(batch, length, size))
        return x + self.ff_out(F.silu(self.ff_proj(self.ff_norm(x))))


class OwnInner(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.d_model),
            "wpe": nn.Embedding(64, config.d_model),
            "blocks": nn.ModuleList(Block(config) for _ in range(config.n_layers)),
            "ln_f": nn.LayerNorm(config.d_model),
            "ff_out": nn.Linear(config.d_model, config.vocab_size, bias=False),
        })

    def forward(self, ids):
        x = self.transformer.wte(ids) + self.transformer.wpe.weight[: ids.shape[1]]
        for block in self.transformer.blocks:
            x = block(x)
        return self.transformer.ff_out(self.transformer.ln_f(x))


class OwnModelLM(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"

    def __init__(self, config, model=None):
        super().__init__(config)
        self.model = OwnInner(config) if model is None else model

    def forward(self, input_ids=None, inputs_embeds=None, attention_mask=None, attention_bias=None,
                use_cache=None, output_attentions=None, return_dict=None):
        if use_cache is None:
            use_cache = False
        if output_attentions:
            raise ValueError("output_attentions is not yet supported in this model")
        return CausalLMOutputWithPast(logits=self.model(input_ids))

    def can_generate(self):
        return True

    def get_input_embeddings(self):
        return self.model.transformer.wte

    def tie_weights(self):
        pass
"""
"""The shape of LLaDA: written for transformers 4, without `post_init` and without matrices."""


def llada_folder(folder: Path, *, seed: int = 1, **config: Any) -> Path:
    """A folder of a model that denoises, with random weights."""
    weights, generator = dict[str, Any](), torch.Generator().manual_seed(seed)

    def draw(name: str, *shape: int, spread: float = 0.35) -> None:
        weights[f"model.transformer.{name}"] = torch.randn(*shape, generator=generator) * spread

    size, words = 32, 26
    draw("wte.weight", words, size, spread=1.0)
    draw("wpe.weight", 64, size, spread=0.7)
    for layer in range(2):
        for name in ("q_proj", "k_proj", "v_proj", "attn_out"):
            draw(f"blocks.{layer}.{name}.weight", size, size)
        for name in ("attn_norm", "ff_norm"):
            weights[f"model.transformer.blocks.{layer}.{name}.weight"] = torch.ones(size)
            weights[f"model.transformer.blocks.{layer}.{name}.bias"] = torch.zeros(size)
        for name, shape in (("ff_proj", (2 * size, size)), ("ff_out", (size, 2 * size))):
            draw(f"blocks.{layer}.{name}.weight", *shape)
            draw(f"blocks.{layer}.{name}.bias", shape[0])
    weights["model.transformer.ln_f.weight"] = torch.ones(size)
    weights["model.transformer.ln_f.bias"] = torch.zeros(size)
    draw("ff_out.weight", words, size)
    classes = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnModelLM",
    }
    own = {"model_type": "own-llada", "mask_token_id": 4, **config}
    return write(folder, LLADA, weights, classes, "OwnModelLM", **own)


TWO_STACKS = """
import torch
from torch import nn
from transformers import PreTrainedModel, PretrainedConfig
from transformers.modeling_outputs import Seq2SeqLMOutput


class OwnConfig(PretrainedConfig):
    model_type = "own-two"

    def __init__(self, size=24, heads=3, vocab_size=26, front="front", back="back", **more):
        self.size, self.heads, self.vocab_size = size, heads, vocab_size
        self.front, self.back = front, back
        super().__init__(**more)


class Mix(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.q, self.k, self.v, self.o = (nn.Linear(config.size, config.size) for _ in range(4))

    def forward(self, x, other=None, causal=False):
        other, size = x if other is None else other, x.shape[-1]
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (p(other).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.k, self.v))
        scores = q @ k.mT / (size / self.heads) ** 0.5
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        self.shares = scores.softmax(-1)
        return x + self.o((self.shares @ v).transpose(1, 2).flatten(2))


class Front(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mixes = nn.ModuleList(Mix(config) for _ in range(2))

    def forward(self, x):
        for mix in self.mixes:
            x = mix(x)
        return x


class Step(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.own, self.other = Mix(config), Mix(config)


class OwnSeq2Seq(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.size)
        self.places = nn.Embedding(40, config.size)
        setattr(self, config.front, Front(config))
        setattr(self, config.back, nn.ModuleList(Step(config) for _ in range(3)))
        self.head = nn.Linear(config.size, config.vocab_size, bias=False)

    def embed(self, ids):
        return self.words(ids) + self.places.weight[: ids.shape[1]]

    def forward(self, input_ids, attention_mask=None, decoder_input_ids=None):
        source = getattr(self, self.config.front)(self.embed(input_ids))
        x = self.embed(decoder_input_ids)
        for step in getattr(self, self.config.back):
            x = step.other(step.own(x, causal=True), source)
        return Seq2SeqLMOutput(logits=self.head(x))
"""


def two_stacks_folder(folder: Path, front: str = "front", back: str = "back") -> Path:
    """A folder of an encoder and a decoder, in modules of these names, with random weights."""
    weights, generator = dict[str, Any](), torch.Generator().manual_seed(3)
    mixes = [f"{front}.mixes.{n}" for n in range(2)]
    mixes += [f"{back}.{n}.{part}" for n in range(3) for part in ("own", "other")]
    for mix in mixes:
        for name in "qkvo":
            weights[f"{mix}.{name}.weight"] = torch.randn(24, 24, generator=generator) * 0.2
            weights[f"{mix}.{name}.bias"] = torch.zeros(24)
    weights["words.weight"] = torch.randn(26, 24, generator=generator) * 0.7
    weights["places.weight"] = torch.randn(40, 24, generator=generator)
    weights["head.weight"] = torch.randn(26, 24, generator=generator)
    classes = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForSeq2SeqLM": "modeling_own.OwnSeq2Seq",
    }
    own = {"model_type": "own-two", "front": front, "back": back, "decoder_start_token_id": 2}
    return write(folder, TWO_STACKS, weights, classes, "OwnSeq2Seq", eos_token_id=3, **own)
