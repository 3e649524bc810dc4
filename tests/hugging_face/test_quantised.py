"""Checkpoints that transformers loads quantised, against transformers' own eager weights."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.models.hugging_face.eager import map_of
from tests.hugging_face.tiny_models import WORDS, save, word_pieces

TEXT = " ".join(WORDS[:6])
HOWS = {
    "torchao": "torchao, Int8WeightOnlyConfig",
    "bnb8": "bitsandbytes, 8 bit",
    "bnb4": "bitsandbytes, 4 bit",
    "compressed": "compressed-tensors, 8 bit",
}


def quantise(plain, how, folder):
    """Write the model of a folder quantised into another."""
    if how == "compressed":
        pytest.importorskip("compressed_tensors")
        from compressed_tensors.compressors import ModelCompressor
        from compressed_tensors.quantization import (
            QuantizationArgs,
            QuantizationConfig,
            QuantizationScheme,
            apply_quantization_config,
        )

        weights = QuantizationArgs(num_bits=8, strategy="channel", symmetric=True)
        scheme = QuantizationScheme(targets=["Linear"], weights=weights)
        made = transformers.BertForSequenceClassification.from_pretrained(plain)
        apply_quantization_config(made, QuantizationConfig(config_groups={"all": scheme}))
        for part in made.modules():
            if hasattr(part, "weight_scale"):
                part.weight_scale.data = part.weight.abs().amax(1, keepdim=True) / 127
        compressor = ModelCompressor.from_pretrained_model(made)
        compressor.compress_model(made)
        made.save_pretrained(folder)
        compressor.update_config(str(folder))
    else:
        pytest.importorskip("torchao" if how == "torchao" else "bitsandbytes")
        if how == "torchao":
            from torchao.quantization import Int8WeightOnlyConfig

            config: Any = transformers.TorchAoConfig(Int8WeightOnlyConfig())
        else:
            # On a processor its kernels have no output of two classes.
            terms = {f"load_in_{how[-1]}bit": True, "llm_int8_skip_modules": ["classifier"]}
            config = transformers.BitsAndBytesConfig(**terms)
        transformers.BertForSequenceClassification.from_pretrained(
            plain, quantization_config=config, device_map="cpu"
        ).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(plain).save_pretrained(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"intermediate_size": 64, "max_position_embeddings": 32}
    config = transformers.BertConfig(vocab_size=26, **sizes, **more)
    folder = tmp_path_factory.mktemp("plain")
    return save(folder, "BertForSequenceClassification", word_pieces(), config)


@pytest.mark.filterwarnings("ignore")  # of torchao and bitsandbytes
@pytest.mark.parametrize("how", HOWS)
def test_quantised_weights_are_those_of_transformers(how, plain, tmp_path):
    quantise(plain, how, tmp_path)
    found = attnviz.attend(TEXT, model=str(tmp_path))
    own = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path, attn_implementation="eager"
    ).eval()
    ids = transformers.AutoTokenizer.from_pretrained(plain)(TEXT, return_tensors="pt")
    with torch.no_grad():
        weights = torch.cat(own(**ids, output_attentions=True).attentions).numpy()
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    assert found.provenance.settings["stored_as"] == HOWS[how]
    assert f"its weights are quantised ({HOWS[how]})" in found.provenance.notes[0]
    whole = transformers.BertForSequenceClassification.from_pretrained(plain)
    for (name, part), other in zip(own.named_modules(), whole.modules(), strict=True):
        if name.endswith("attention.output.dense"):
            matrix = map_of(part, torch.zeros(1, 3, 64))
            off = (matrix - other.weight.T).abs().max()
            assert 0 < off < (0.3 if how == "bnb4" else 0.03)
    for lens in ("norm", "gradient", "effect"):
        seen = attnviz.attend(TEXT, model=str(tmp_path), lens=lens, check=0)
        assert np.isfinite(seen.weights).all()
