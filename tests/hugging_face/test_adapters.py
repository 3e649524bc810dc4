"""Adapters on their models: weights as peft's own forward pass gives them, and what is refused."""

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.core.errors import ModelError, UsageError
from tests.hugging_face.tiny_models import BUILDERS
from tests.invoke import attnviz as shell

peft = pytest.importorskip("peft", reason="pip install -e '.[dev]'")

# Calls of peft to what transformers has renamed.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]

TEXT = "the cat sat on the mat"
LORA: dict[str, Any] = {"init_lora_weights": False}
KINDS: dict[str, tuple[str, str, peft.PeftConfig]] = {
    "gpt2": (
        "gpt2",
        "AutoModelForCausalLM",
        peft.LoraConfig(
            target_modules=["c_attn", "c_proj"], task_type="CAUSAL_LM", fan_in_fan_out=True, **LORA
        ),
    ),
    "llama by a pattern": (
        "llama",
        "AutoModelForCausalLM",
        peft.LoraConfig(target_modules=r"model\.layers\.[01]\.self_attn\.[qo]_proj", **LORA),
    ),
    "bert": ("bert", "AutoModel", peft.LoraConfig(target_modules=["query", "dense"], **LORA)),
    "bert with a classifier": (
        "bert",
        "AutoModelForSequenceClassification",
        peft.LoraConfig(target_modules=["query", "value"], task_type="SEQ_CLS", **LORA),
    ),
    "t5 scaled": (
        "t5",
        "AutoModelForSeq2SeqLM",
        peft.IA3Config(target_modules=["k", "v"], feedforward_modules=[], init_ia3_weights=False),
    ),
}


def trained(folder, kind):
    """A model's folder, its adapter's, and the adapted model as peft runs it."""
    builder, loader, config = KINDS[kind]
    base, adapter = folder / "base", folder / "adapter"
    BUILDERS[builder](base)
    torch.manual_seed(1)
    model = getattr(transformers, loader).from_pretrained(base, attn_implementation="eager")
    adapted = peft.get_peft_model(model, deepcopy(config))  # which names its model
    adapted.save_pretrained(adapter)
    return base, adapter, adapted.eval()


def eager(model, base):
    """The weights that transformers gives out, (layers, heads, queries, keys)."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        found = model(**inputs, output_attentions=True).attentions
    return torch.cat(found).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_is_read_as_peft_runs_it(tmp_path, kind):
    base, adapter, model = trained(tmp_path, kind)
    found = attnviz.attend(TEXT, model=str(base), adapter=str(adapter))
    wanted = eager(model, base)
    np.testing.assert_allclose(found.weights, wanted, atol=1e-5)
    with model.disable_adapter():
        assert np.abs(eager(model, base) - wanted).max() > 1e-3
    assert found.provenance.title == "base + adapter"
    left_out = ["the adapter also trained classifier, which is left out"]
    assert [*found.provenance.notes] == left_out * (kind == "bert with a classifier")


@pytest.mark.parametrize("kind", ["gpt2", "llama by a pattern"])
def test_what_peft_wrapped_is_the_merged_model(tmp_path, kind):
    base, adapter, model = trained(tmp_path, kind)
    model.get_base_model().set_attn_implementation("sdpa")
    before = {name: one.clone() for name, one in model.state_dict().items()}
    held = [id(one) for one in model.parameters()]
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    for lens in ("raw", "norm", "effect"):
        merged = attnviz.attend(TEXT, model=str(base), adapter=str(adapter), lens=lens, check=0)
        wrapped = attnviz.attend(TEXT, model=model, tokenizer=tokenizer, lens=lens, check=0)
        np.testing.assert_allclose(wrapped.weights, merged.weights, rtol=1e-5, atol=2e-5)
    assert [id(one) for one in model.parameters()] == held
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_an_adapter_alone_is_compared_with_its_model(tmp_path):
    base, adapter, _ = trained(tmp_path, "gpt2")
    alone = attnviz.attend(TEXT, adapter=str(adapter))
    np.testing.assert_array_equal(
        alone.weights, attnviz.attend(TEXT, model=str(base), adapter=str(adapter)).weights
    )
    done = shell("compare", TEXT, "--model", str(base), "--adapter-b", str(adapter))
    assert done.status == 0
    assert done.text.startswith("A  base · causal")
    assert "B  base + adapter · causal" in done.text


def test_what_cannot_be_merged_is_one_line(tmp_path):
    base, adapter, _ = trained(tmp_path, "gpt2")
    other = BUILDERS["bert"](tmp_path / "other")
    with pytest.raises(ModelError, match="does not fit the model: Target modules"):
        attnviz.attend(TEXT, model=str(other), adapter=str(adapter))
    with pytest.raises(ModelError, match=f"holds an adapter only: --adapter {adapter}"):
        attnviz.attend(TEXT, model=str(adapter))
    with pytest.raises(ModelError, match=r"is no adapter: it has no adapter_config\.json"):
        attnviz.attend(TEXT, model=str(base), adapter=str(base))
    with pytest.raises(UsageError, match="--adapter changes a Hugging Face model"):
        attnviz.attend(TEXT, adapter=str(adapter), model="pocket")
    (adapter / "adapter_model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ModelError, match=r"is not a complete safetensors file|is damaged"):
        attnviz.attend(TEXT, model=str(base), adapter=str(adapter))
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match="holds an adapter's configuration but no"):
        attnviz.attend(TEXT, model=str(base), adapter=str(adapter))
    torch.save({}, adapter / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"as a pickle .'adapter_model.bin'.*--allow pickle"):
        attnviz.attend(TEXT, model=str(base), adapter=str(adapter))
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": 0})
    )
    with pytest.raises(ModelError, match="does not say which model it is for"):
        attnviz.attend(TEXT, adapter=str(adapter))
    base = BUILDERS["gpt2"](tmp_path / "base")
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    config = peft.PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    peft.get_peft_model(model, config).save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelError, match=r"learns a prompt .PREFIX_TUNING."):
        attnviz.attend(TEXT, model=str(base), adapter=str(tmp_path / "prompt"))
