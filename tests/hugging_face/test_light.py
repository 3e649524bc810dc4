"""Checkpoints that numpy runs, against transformers' own eager weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModel
from transformers.utils import logging

from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.models import attend_query
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.open import open_source
from tests.hugging_face.tiny_models import byte_pieces

pytestmark = pytest.mark.models

TEXT = "The cat sat on the mat, and the dog didn't."
SIZE = {"vocab_size": 340, "max_position_embeddings": 120, "pad_token_id": 1}
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")


def numbers(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Configurations: each field is a strategy, several values, or one."""

    def choose(field: Any) -> st.SearchStrategy[Any]:
        if isinstance(field, st.SearchStrategy):
            return field
        return st.sampled_from(field if isinstance(field, tuple) else (field,))

    return st.fixed_dictionaries({name: choose(field) for name, field in fields.items()})


def common(act: str = "hidden_act", **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Sizes that most architectures name alike."""
    usual = {
        "hidden_size": (24, 48),
        "num_hidden_layers": (1, 3),
        "num_attention_heads": (2, 4),
        "intermediate_size": (20, 64),
        act: ACTIVATIONS,
    }
    return numbers(**{**SIZE, **usual, **more})


NORM = {"layer_norm_eps": (1e-12, 1e-3)}
GROUPED = {
    "num_key_value_heads": (1, 2),
    "head_dim": (6, 8),
    "rms_norm_eps": (1e-6, 1e-3),
    "rope_parameters": (
        {"rope_type": "default", "rope_theta": 500.0},
        {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
            "rope_theta": 10000.0,
        },
    ),
}
GEMMA = {
    **GROUPED,
    "sliding_window": (3, 50),
    "query_pre_attn_scalar": (16, 24),
    "attention_bias": (False, True),
}
KINDS = {
    "bert": common(**NORM),
    "roberta": common(**NORM, pad_token_id=(1, 3)),
    "xlm-roberta": common(**NORM),
    "distilbert": numbers(
        **SIZE, dim=(24, 48), n_layers=(1, 3), n_heads=(2, 4), hidden_dim=(20, 64),
        activation=("gelu", "relu"), sinusoidal_pos_embds=(False, True),
    ),
    "electra": common(**NORM, embedding_size=(24, 10)),
    "gpt2": numbers(
        vocab_size=340, n_positions=120, n_embd=(24, 48), n_layer=(1, 3), n_head=(2, 4),
        n_inner=(None, 20), activation_function=ACTIVATIONS, layer_norm_epsilon=(1e-5, 1e-3),
    ),
    "llama": common(**GROUPED, attention_bias=(False, True), mlp_bias=(False, True)),
    "mistral": common(**GROUPED, sliding_window=(None, 3, 50)),
    "qwen2": common(**{name: one for name, one in GROUPED.items() if name != "head_dim"}),
    "qwen3": common(**GROUPED, attention_bias=(False, True)),
    "gemma2": common("hidden_activation", **GEMMA, attn_logit_softcapping=(0.5, 50.0)),
    "gemma3_text": common(
        "hidden_activation",
        **{
            **GEMMA,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        layer_types=st.none(),
        num_hidden_layers=(2, 7),
    ),
    "opt": numbers(
        **SIZE, hidden_size=24, word_embed_proj_dim=24, num_hidden_layers=(1, 3),
        num_attention_heads=(2, 4), ffn_dim=(20, 64), activation_function=("relu", "gelu"),
        do_layer_norm_before=(True, False),
    ),
    "gpt_neox": common(
        **NORM, num_attention_heads=(2, 3), attention_bias=(True, False), use_parallel_residual=(True, False),
        rope_parameters=(
            {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
            {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        ),
    ),
}  # fmt: skip
"""Random configurations of each architecture within the table."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_pieces()


def save(kind: str, fields: dict[str, Any], tokenizer: Any, folder: Path, **how: Any) -> Any:
    """A random model in a folder, with weights large enough for heads to differ."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**fields)
    model = AutoModel.from_config(config, attn_implementation="eager", **how).eval()
    with torch.no_grad():
        for name, one in model.named_parameters():
            drawn = torch.randn(one.shape, dtype=torch.float32)
            scale = 0.3 if one.ndim == 1 else one.shape[-1] ** -0.5 * 1.5
            one.copy_(drawn * scale + (one.ndim == 1 and "norm" in name.lower()))
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def eager_weights(model: Any, tokenizer: Any, text: str = TEXT) -> Any:
    """The weights that transformers gives out, (layers, heads, queries, keys)."""
    with torch.no_grad():
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        return torch.cat(model(input_ids=ids, output_attentions=True).attentions).numpy()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return (tmp_path_factory.mktemp("model") for _ in iter(int, 1))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=[*HealthCheck])  # fmt: skip
@given(data=st.data())
def test_its_weights_are_those_of_transformers(
    kind: str, data: st.DataObject, tokenizer: Any, folders: Iterator[Path]
) -> None:
    folder = next(folders)
    fields = data.draw(KINDS[kind])
    fields = {name: one for name, one in fields.items() if name != "layer_types"}
    model = save(kind, fields, tokenizer, folder)
    source = open_source(Origin(model=str(folder), arithmetic="light"), "self")
    assert isinstance(source, LightModel)
    found = attend_query(source, Query(TEXT)).weights
    single, double = eager_weights(model, tokenizer), eager_weights(model.double(), tokenizer)
    off = np.abs(found - double).max()
    limit = 4 * np.abs(single - double).max()
    assert off <= max(1e-5, limit)
    assert found.std() > 0.01
