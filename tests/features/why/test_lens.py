"""The logit lens: each family against its own modules by hand, its picture, page and data."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz.core.query import Query
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.tiny_models import (
    ENDS,
    SIZES,
    WIDE,
    but_slow,
    byte_pieces,
    save,
    t5,
)

LM = ("--model", "pocket-lm")
DOGS = "Tom likes dogs. Mary likes cats. Tom likes"
TEXT, PAIR = "The red car is fast, and the blue car", ("The red car is fast", "La voiture rouge")


class Family:
    """Where a family keeps its layers, what its attention adds, and how its head reads a state."""

    def __init__(self, layers: str, adds: str, norm: str, head: str, **sizes: Any) -> None:
        self.layers, self.adds, self.norm, self.head = layers, adds.split(), norm, head
        self.scale, self.by = sizes.pop("scale", None), sizes.pop("by", 1.0)
        self.sizes = sizes


LLAMA = {"num_key_value_heads": 2, **WIDE}
USUAL = ("model.layers", "self_attn", "model.norm", "lm_head")
GEMMA = ("model.layers", "post_attention_layernorm", "model.norm", "lm_head")
FAMILIES = {
    "LlamaForCausalLM": Family(*USUAL, **LLAMA),
    "Qwen3ForCausalLM": Family(*USUAL, head_dim=8, **LLAMA),
    "Gemma2ForCausalLM": Family(
        *GEMMA,
        **LLAMA,
        head_dim=8,
        final_logit_softcapping=0.7,
        scale=lambda logits, _: 0.7 * torch.tanh(logits / 0.7),
    ),
    "Gemma3ForCausalLM": Family(*GEMMA, head_dim=8, sliding_window=4, **LLAMA),
    "CohereForCausalLM": Family(
        *USUAL, **LLAMA, logit_scale=0.3, scale=lambda logits, _: 0.3 * logits
    ),
    "GraniteForCausalLM": Family(
        *USUAL,
        **LLAMA,
        logits_scaling=3.0,
        residual_multiplier=0.4,
        embedding_multiplier=2.0,
        scale=lambda logits, _: logits / 3,
        by=0.4,
    ),
    "GPT2LMHeadModel": Family(
        *("transformer.h", "attn", "transformer.ln_f", "lm_head"), n_embd=32, n_layer=3, n_head=4
    ),
    "GPTNeoXForCausalLM": Family(
        *("gpt_neox.layers", "attention", "gpt_neox.final_layer_norm", "lm_head"), **WIDE
    ),
    "PhiForCausalLM": Family(
        *("model.layers", "self_attn", "model.final_layernorm", "lm_head"), **WIDE
    ),
    "OPTForCausalLM": Family(
        *("model.decoder.layers", "self_attn", "model.decoder.final_layer_norm", "lm_head"),
        **SIZES,
        ffn_dim=48,
        word_embed_proj_dim=32,
    ),
    "BloomForCausalLM": Family(
        *("transformer.h", "self_attention.dense", "transformer.ln_f", "lm_head"), **SIZES
    ),
    "MixtralForCausalLM": Family(*USUAL, **LLAMA, num_local_experts=4, num_experts_per_tok=2),
    "T5ForConditionalGeneration": Family(
        "decoder.block",
        "layer.0.SelfAttention layer.1.EncDecAttention",
        "decoder.final_layer_norm",
        "lm_head",
        scale=lambda logits, model: logits * model.config.d_model**-0.5,
    ),
}
FAST = ("GPT2LMHeadModel", "Gemma2ForCausalLM", "GraniteForCausalLM", "T5ForConditionalGeneration")


def made(folder: Path, name: str) -> Path:
    """A tiny checkpoint of a family, with random weights."""
    if name.startswith("T5"):
        return t5(folder)
    config = getattr(transformers, name).config_class(
        **FAMILIES[name].sizes, vocab_size=340, **ENDS
    )
    return save(folder, name, byte_pieces(), config)


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def by_hand(model: Any, family: Family, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """Logits after each layer, and those of attention alone, by the family's own modules."""
    states, added = [], defaultdict(lambda: 0.0)
    layers = model.get_submodule(family.layers)
    hooks = []
    for number, layer in enumerate(layers):
        hooks.append(
            layer.register_forward_pre_hook(
                lambda _, args, kwargs: states.append(args[0] if args else kwargs["hidden_states"]),
                with_kwargs=True,
            )
        )

        def add(*call: Any, number: int = number) -> None:
            added[number] = added[number] + family.by * first(call[-1])

        hooks += [layer.get_submodule(path).register_forward_hook(add) for path in family.adds]
    hooks.append(layers[-1].register_forward_hook(lambda *call: states.append(first(call[-1]))))
    with torch.no_grad():
        model(**inputs, use_cache=False)
        for hook in hooks:
            hook.remove()
        alone = [states[0]]
        for number in range(len(layers)):
            alone.append(alone[-1] + added[number])

        def read(state: Any) -> Any:
            logits = model.get_submodule(family.head)(model.get_submodule(family.norm)(state))
            return (family.scale(logits, model) if family.scale else logits)[0].numpy()

        return [read(one) for one in states], [read(one) for one in (*alone, states[-1])]


@pytest.mark.models
@pytest.mark.parametrize("name", but_slow(FAMILIES, FAST))
def test_the_lens_is_that_of_the_models_own_modules(tmp_path, name):
    folder = made(tmp_path, name)
    source, plain = (
        load_model(str(folder), device="cpu", with_head=True),
        getattr(transformers, name).from_pretrained(folder).eval(),
    )
    is_pair = name.startswith("T5")
    query = Query(*PAIR, "cross") if is_pair else Query(TEXT)
    encoding = source._encode(query)
    inputs = {key: torch.tensor([list(row)]) for key, row in encoding.inputs.items()}
    each, alone = by_hand(plain, FAMILIES[name], inputs)
    assert abs(each[0] - each[-1]).max() > 0.01
    assert abs(alone[-2] - alone[-1]).max() > 0.01
    for expected, only in ((each, False), (alone, True)):
        stream = source.read_stream(query, lambda tokens: range(len(tokens)), attention_only=only)
        assert len(stream.states) == len(expected)
        for state, logits in zip(stream.states, expected, strict=True):
            some = slice(1, 3)
            np.testing.assert_allclose(stream.predict(state, some), logits[some], atol=1e-5)
            every = stream.predict(state, slice(0, len(logits)))
            np.testing.assert_allclose(every, logits, atol=1e-5)
