"""Models of transformers are seen through the kernels they call, fused or by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from attnviz import watch

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 32,
}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "bert": (SIZES, {}, ("self",)),
    "llama": ({**SIZES, "num_key_value_heads": 2}, {}, ("causal",)),
    "gpt2": (
        {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 30, "n_positions": 32},
        {"bos_token_id": 0, "eos_token_id": 0},
        ("causal",),
    ),
}


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_transformers_is_seen(kind, implementation):
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(1)
    sizes, special, streams = KINDS[kind]
    model, eager = (
        AutoModel.from_config(
            AutoConfig.for_model(kind, **sizes, **special), attn_implementation=name
        ).eval()
        for name in (implementation, "eager")
    )
    eager.load_state_dict(model.state_dict())
    ids = torch.randint(30, (2, 7))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    with torch.no_grad():
        before = model(ids, attention_mask=mask)[0]
        with watch(model, batch=1) as seen:
            after = model(ids, attention_mask=mask)[0]
        truth = eager(ids, attention_mask=mask, output_attentions=True).attentions
    assert torch.equal(before, after)
    assert tuple(item.stream for item in seen.attention().maps) == streams
    assert np.abs(seen.attention().weights - torch.stack(truth)[:, 1].numpy()).max() < 1e-5
    assert len(seen.attention().main.layers) == 2
    assert seen.log.softmaxes == (0 if implementation == "sdpa" else 2)
