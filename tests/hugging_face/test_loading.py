"""What loading refuses by files and devices, in a line each, and what it says of the loaded."""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, ViTConfig

import attnviz as attnviz_api
from attnviz.core.errors import ModelError, UsageError
from attnviz.models.hugging_face.load import devices
from attnviz.models.hugging_face.load.checkpoint import check_folder
from attnviz.models.hugging_face.load.devices import has_accelerate
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend
from tests.hugging_face.tiny_models import reweigh, rewrite, save, word_pieces
from tests.invoke import attnviz


def refuse(folder, what, kind=ModelError, **options):
    with pytest.raises(kind, match=what) as caught:
        load_model(str(folder), device="cpu", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "bertt"}, "transformers [0-9.]+ does not know .* 'bertt'.*Did you mean"),
        (
            {"model_type": "own", "auto_map": {"AutoModel": "m.Own"}},
            "needs Python code .*--allow c",
        ),
        ({"num_hidden_layers": 5}, r"lacks 32 weights .*layer\.3.*they would be random"),
        ({"hidden_size": 64}, "cannot be loaded"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(changes, said, copy_of):
    folder = copy_of("bert")
    rewrite(folder / "config.json", **changes)
    (folder / "m.py").write_text("raise SystemExit('this must not run')")
    refuse(folder, said)


def test_code_runs_only_when_it_is_allowed(copy_of, monkeypatch, tmp_path):
    folder = copy_of("bert")
    rewrite(
        folder / "config.json", auto_map={"AutoModel": "modeling.Own", "AutoConfig": "modeling.Own"}
    )
    (folder / "modeling.py").write_text("raise SystemExit('this must not run')")
    assert load_model(str(folder), device="cpu").family == "encoder-only"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    folder = copy_of("bert")
    rewrite(
        folder / "config.json",
        model_type="own-model",
        auto_map={"AutoConfig": "modeling.OwnConfig"},
    )
    (folder / "modeling.py").write_text("raise ValueError('this ran')")
    refuse(folder, "cannot be loaded: this ran", allow_code=True)


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_model_without_its_tokenizer_is_refused(kind, copy_of):
    folder = copy_of(kind)
    for path in folder.glob("*token*"):
        path.unlink()
    refuse(folder, "has no tokenizer")


TEXT = "The red car is fast"


def test_a_tokenizer_may_lie_elsewhere(copy_of, folder_of):
    """The answers of a checkpoint without a tokenizer are those of the whole folder."""
    folder, whole = copy_of("gpt2"), folder_of("gpt2")
    for file in folder.glob("*token*"):
        file.unlink()
    usual = attnviz_api.attend(TEXT, model=whole, device="torch")
    own = AutoTokenizer.from_pretrained(whole)
    for tokenizer in (whole, str(whole), own):
        result = attnviz_api.attend(TEXT, model=folder, tokenizer=tokenizer)
        np.testing.assert_array_equal(result.weights, usual.weights)
        assert result.tokens == usual.tokens
        assert "tokenizer" in result.provenance.settings
    asked = ("explain", TEXT, "--model", folder, "--tokenizer", whole, "-f", "json", "-q")
    answer = attnviz(*asked).json()["answer"]
    assert answer == attnviz_api.explain(usual).to_json()["answer"]
    assert attnviz_api.explain(result).to_json()["answer"] == answer


def test_odd_tokenizers_are_refused(copy_of, folder_of, tmp_path):
    folder = copy_of("gpt2")
    (folder / "tokenizer.json").write_text("{")
    refuse(folder, "tokenizer of '.*' cannot be loaded")
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "vocab.json").write_text('{"a": 0, "b": 1}')
    refuse(folder, "tokenizer of .* cannot be loaded: .*merges")
    for words in (("self", "a"), ("image", "sample_inputs/shapes.png")):
        done = attnviz(*words, "--tokenizer", "b")
        assert "--tokenizer is for a Hugging Face model" in done.mistake
    whole = folder_of("gpt2")
    assert (
        "'b' is neither a folder nor"
        in attnviz("self", TEXT, "--model", whole, "--tokenizer", "b").mistake
    )
    assert (
        "has no tokenizer"
        in attnviz("self", TEXT, "--model", whole, "--tokenizer", tmp_path).mistake
    )
    with pytest.raises(UsageError, match="a text needs a tokenizer: a int reads none"):
        attnviz_api.attend(TEXT, model=whole, tokenizer=3)


def test_more_layers_fewer_and_pickles(copy_of, weights):
    folder = copy_of("bert")
    rewrite(folder / "config.json", num_hidden_layers=2)
    model = load_model(str(folder), device="cpu")
    assert (
        "holds 16 weights of layers that its configuration leaves out" in model.provenance.notes[0]
    )
    folder = copy_of("bert")
    reweigh(folder, lambda name, one: None if "pooler" in name else one)
    assert attend(load_model(str(folder), device="cpu"), "the car").weights.shape[0] == 3
    folder = copy_of("bert")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refuse(folder, "--allow pickle")
    assert attend(load_model(str(folder), device="cpu", allow_pickle=True), "the car").maps
    (folder / "pytorch_model.bin").write_bytes(b"nothing of the kind")
    refuse(folder, "cannot be loaded", allow_pickle=True)
    weights.rename(weights.parent / "pytorch_model.bin")
    refuse_folder(weights.parent, "as a pickle .*--allow pickle")
    assert check_folder(weights.parent, allow_pickle=True).is_pickle


def test_precision_is_full_unless_asked_for(copy_of, folder_of):
    folder = copy_of("bert")
    reweigh(folder, lambda _, one: one.bfloat16())
    rewrite(folder / "config.json", dtype="bfloat16")
    full = load_model(str(folder), device="cpu")
    assert (full.provenance.dtype, full.provenance.settings["stored_as"]) == ("float32", "BF16")
    rows = attend(full, "the professor who").weights.sum(-1)
    assert abs(rows - 1).max() < 1e-6
    asked = load_model(str(folder), device="cpu", dtype="bfloat16")
    assert asked.provenance.dtype == "bfloat16"
    assert "computed in bfloat16" in asked.provenance.notes[0]
    assert attend(asked, "the professor who").weights.dtype == "float32"
    full, half = (load_model(str(folder_of("llama")), device="cpu") for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        found = attnviz_api.attend("the red car", model=half.model, tokenizer=half.tokenizer)
    assert found.provenance.dtype == "bfloat16"
    assert "computed in bfloat16" in found.provenance.notes[0]
    expected = attend(full, "the red car")
    assert abs(found.main.weights - expected.weights).max() < 5e-2  # as the note says
    double = load_model(str(folder_of("llama")), device="cpu", dtype="float64")
    assert attend(double, "a b c").provenance.dtype == "float64"


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flash_attention_3", "sdpa", "eager"])
def test_a_kernel_of_the_configuration(kernel, copy_of):
    folder = copy_of("llama")
    expected = attend(load_model(str(folder), device="cpu"), "the red car")
    rewrite(folder / "config.json", attn_implementation=kernel, output_attentions=True)
    found = load_model(str(folder), device="cpu")
    assert abs(attend(found, "the red car").weights - expected.weights).max() < 1e-6
    said = [note for note in found.provenance.notes if f"asks for {kernel}" in note]
    assert bool(said) == kernel.startswith("flash")


def test_unknown_devices_images_and_memory_are_refused(folder_of, tmp_path, monkeypatch):
    for option, value in (("device", "gpu"), ("dtype", "float31")):
        with pytest.raises(UsageError, match=rf"unknown {option} '{value}': choose from"):
            load_model(str(folder_of("bert")), **{option: value})
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = ViTConfig(**sizes, intermediate_size=20, image_size=32)
    save(tmp_path, "ViTModel", word_pieces(), config)
    refuse(tmp_path, r"\(vit\) does not read text: it asks for 'pixel_values'")
    missing = "mps" if torch.cuda.is_available() else "cuda"
    with pytest.raises(UsageError, match=rf"device '{missing}' is not available here .*cpu"):
        load_model(str(folder_of("bert")), device=missing)
    monkeypatch.setattr(devices, "free_bytes", lambda device: 10)
    refuse(folder_of("bert"), "in float32 would take about .*and 0 MiB is free.*smaller model")


def test_the_provenance_names_the_weights(loaded, folder_of):
    provenance = loaded("llama").provenance
    assert provenance.source == "hugging face"
    assert provenance.model == str(folder_of("llama"))
    assert (provenance.trained, provenance.device, provenance.dtype) == (True, "cpu", "float32")
    assert provenance.settings == {
        "architecture": "LlamaModel",
        "model_type": "llama",
        "family": "decoder-only",
        "attention": "sdpa",
        "stored_as": "F32",
    }
    assert set(provenance.versions) == {"torch", "transformers"}
    folder = folder_of("bert")
    done = attnviz("self", "a b", "--causal", "--model", folder)
    assert (done.status, done.out) == (2, b"")
    assert f"--causal changes nothing in '{folder}' (encoder-only)" in done.mistake


@pytest.mark.slow
def test_nothing_is_printed_whatever_happens(copy_of, folder_of):
    broken = copy_of("bert")
    rewrite(broken / "config.json", num_hidden_layers=5)
    code = f"""
from attnviz.core.errors import AttnvizError
from attnviz.core.query import Query
from attnviz.models import attend_query
from attnviz.models.hugging_face.text_model import load_model

def attempt(folder, **options):
    try:
        model = load_model(folder, device="cpu", **options)
        attend_query(model, Query("The professor. " * 30))
    except AttnvizError:
        pass
    else:
        if model.family == "encoder–decoder":
            attend_query(model, Query("The car", kind="cross"))

for folder in {[str(folder_of(kind)) for kind in ("t5", "mamba")] + [str(broken)]}:
    attempt(folder)
"""
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", "")


LATER = """
import sys, torch
from torch import compiler
from importlib.util import find_spec
from pathlib import Path
from attnviz.models.hugging_face.load.imports import quiet
with quiet():
    import transformers
    from transformers.models.bert import modeling_bert
    from transformers.utils.import_utils import define_import_structure
names = transformers.models._import_structure

@compiler.disable(recursive=False)
def compiled():
    return compiler.is_compiling()

@compiler.assume_constant_result
def one():
    return 1

assert compiled() is False
assert "torch._dynamo.eval_frame" not in sys.modules, "the compiler was imported"
run = torch.compile(lambda given: (compiled(), one(), given + 1), backend="eager")
assert run(torch.ones(1)) == (False, 1, torch.tensor([2.0]))
assert one._dynamo_marked_constant and torch._dynamo.config.suppress_errors is False
assert type(torch._dynamo) is type(sys) and torch._dynamo.__path__
from torch._dynamo import utils

folder = Path(transformers.__file__).parent / "models"
read = define_import_structure.__wrapped__(str(folder / "__init__.py"))
found = [(key, set(names)) for part in read.values() for key, names in part.items()]
assert len(found) > 500 and all(wanted <= set(names[key]) for key, wanted in found)
assert {key for key, _ in found} == set(names)
"""


@pytest.mark.slow
def test_the_compiler_loads_when_needed():
    if find_spec("torchao"):
        pytest.skip("transformers imports torchao, which loads the compiler")
    done = subprocess.run(
        [sys.executable, "-c", LATER], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_spreading_is_refused_in_one_line(folder_of, monkeypatch):
    monkeypatch.setattr(devices, "has_accelerate", lambda: False)
    done = attnviz("self", "the car", "--model", folder_of("bert"), "--device", "spread")
    assert done.status == 1
    said = "--device spread needs the package accelerate: pip install 'attnviz[big]'"
    assert done.mistake == said
    done = attnviz("self", "the car", "--device", "spread")
    said = "--device spread is for large models: --model ID_OR_FOLDER"
    assert (done.status, done.mistake) == (2, said)


@pytest.mark.skipif(not has_accelerate(), reason="accelerate is not installed")
def test_a_spread_model_gives_the_same_weights(folder_of, loaded):
    text = "The professor published."
    for kind in ("bert", "llama"):
        # On a machine with one device all of the model ends up there.
        spread = attend(load_model(str(folder_of(kind)), device_map="auto"), text)
        np.testing.assert_allclose(spread.weights, attend(loaded(kind), text).weights, atol=1e-5)
        assert spread.provenance.device == "cpu"


def refuse_folder(folder, what, **allowed):
    with pytest.raises(ModelError, match=what) as caught:
        check_folder(folder, **allowed)
    assert "\n" not in str(caught.value)


@pytest.fixture
def weights(copy_of):
    return copy_of("bert") / "model.safetensors"


def split(folder):
    """Leave an index of two files, of which one is there."""
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    names = {"x": "a.safetensors", "y": "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def test_whole_folders_and_no_models_are_told(folder_of, copy_of, tmp_path):
    found = check_folder(folder_of("bert"))
    assert found.config["model_type"] == "bert"
    assert found.dtypes == ("F32",)
    assert not found.is_pickle
    assert found.numbers > 26 * 32
    refuse_folder(tmp_path, "no config.json: it is empty")
    (tmp_path / "adapter_config.json").write_text("{}")
    refuse_folder(tmp_path, "an adapter only")
    (tmp_path / "adapter_config.json").unlink()
    refuse_folder(copy_of("bert").parent, "did you mean '.*bert'")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": 3}'])
def test_a_configuration_must_name_its_architecture(text, weights):
    (weights.parent / "config.json").write_text(text)
    refuse_folder(weights.parent, "not valid JSON" if text == "{" else "names no 'model_type'")


SPOILT = {
    "no weights: it has config.json": lambda file: file.unlink(),
    "is empty": lambda file: file.write_bytes(b""),
    "Git LFS pointer": lambda file: file.write_text("version https://git-lfs.github.com/spec/v1"),
    "not a complete safetensors file": lambda file: file.write_text("<html>404</html>" * 9),
    "lacks 1 of the 2 files .*: b.safetensors": lambda file: split(file.parent),
}


@pytest.mark.parametrize("said", SPOILT)
def test_spoilt_weights_are_refused(said, weights):
    SPOILT[said](weights)
    refuse_folder(weights.parent, said)


@pytest.mark.parametrize("kept", [5, 100, -7])
def test_a_file_cut_short_is_refused(kept, weights):
    weights.write_bytes(weights.read_bytes()[:kept])
    refuse_folder(weights.parent, "is damaged" if kept < 0 else "not a complete safetensors file")
