"""`attnviz models --check`: what is said of a model, by its small files and a small copy."""

import shutil

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel

from attnviz.features.models.shrink import SmallCopy
from tests.hugging_face.tiny_models import rewrite
from tests.invoke import attnviz

ALL = ["rollout", "flow", "gradient", "effect", "logits", "norm"]


def check(folder):
    done = attnviz("models", "--check", folder, "-f", "json")
    assert (done.status, done.err) == (0, "")
    return done.json()


@pytest.mark.core
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "t5",
            {
                "architecture": "T5ForConditionalGeneration (t5)",
                "command": "cross, self",
                "route": "probe",
                "streams": ["cross", "encoder", "decoder"],
                "layers × heads": {"cross": [3, 4], "encoder": [2, 4], "decoder": [3, 4]},
                "lenses": ALL,
                "heads off": True,
                "why": True,
                "quantised": "no",
                "needs": "",
            },
        ),
        (
            "mamba",
            {
                "route": "implied",
                "streams": ["implied"],
                "lenses": [],
                "heads off": False,
                "why": False,
            },
        ),
        ("bert", {"route": "probe", "lenses": ["rollout", "flow", "norm"], "longest text": 32}),
        pytest.param("vit", {"command": "image", "lenses": ALL}, marks=pytest.mark.slow),
        pytest.param("whisper", {"command": "audio", "lenses": []}, marks=pytest.mark.slow),
    ],
)
def test_what_works_with_a_model_is_said(kind, said, folder_of, tmp_path):
    from tests.features.audio.tiny_speech import SPEECH_BUILDERS
    from tests.features.vision.tiny_vision import VISION_BUILDERS

    others = {**VISION_BUILDERS, **SPEECH_BUILDERS}
    folder = others[kind](tmp_path) if kind in others else folder_of(kind)
    found = check(folder)
    assert said.items() <= found.items()
    assert found["bytes in float32"] == 4 * found["parameters"]


@pytest.mark.slow
def test_what_is_missing_or_dangerous_is_said(copy_of):
    folder = copy_of("bert")
    file = folder / "model.safetensors"
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    file.write_bytes(file.read_bytes()[:header] + b"\xff" * (file.stat().st_size - header))
    assert check(folder)["parameters"] == check(folder)["bytes in float32"] // 4
    folder = copy_of("bert")
    for path in folder.glob("*token*"):
        path.unlink()
    assert "has no tokenizer" in check(folder)["reader"]
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert check(folder)["needs"] == "--allow pickle"
    (folder / "pytorch_model.bin").unlink()
    done = attnviz("models", "--check", folder)
    assert (done.status, "no weights" in done.mistake) == (1, True)
    shutil.rmtree(folder)
    assert attnviz("models", "--check", folder).status == 1
    assert attnviz("models", "pocket", "--check", folder).status == 2


def test_a_table_for_the_eye_and_cards_of_shipped(folder_of):
    lines = attnviz("models", "--check", folder_of("bert")).lines
    told = dict(line.split("  ", 1) for line in lines)
    assert told["layers × heads"].strip() == "self 3 × 4"
    assert told["heads off"].strip() == "no"
    done = attnviz("models", "--check", "pocket")
    assert (done.status, done.out) == (2, b"")
    assert "'attnviz models pocket' prints its card" in done.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "fnet"}, "'fnet' gives out no attention weights"),
        ({"model_type": "canine"}, "its characters attend in windows"),
        ({"model_type": "new", "auto_map": {}}, "needs Python code that comes with it"),
        ({"hidden_size": "wide"}, "cannot be loaded"),
    ],
)
def test_unreadable_models_are_one_line(changes, said, copy_of):
    folder = copy_of("bert")
    rewrite(folder / "config.json", **changes)
    done = attnviz("models", "--check", folder)
    assert (done.status, done.out) == (1, b"")
    assert said in done.mistake


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        ("llama", {"num_key_value_heads": 2, "pad_token_id": -1}),
        ("modernbert", {"global_attn_every_n_layers": 2, "pad_token_id": 0}),
        ("mamba2", {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 1}),
    ],
)
@pytest.mark.usefixtures("silence")
def test_odd_numbers_are_read(kind, entries, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 402}
    if kind != "mamba2":
        sizes |= {"intermediate_size": 48, "num_attention_heads": 4}
    config = CONFIG_MAPPING[kind](**sizes, **entries)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    assert any(sign in text for sign in (": -1", "__float__"))
    assert check(tmp_path)["route"] == ("implied" if kind == "mamba2" else "probe")


def read_twelve(model):
    return model(torch.arange(5, 17)[None])


def test_a_small_copy_keeps_kinds_and_equal_sizes():
    given = CONFIG_MAPPING["qwen3_next"]()
    small = SmallCopy(AutoModel.from_config, given, read_twelve).shrink(2_000_000)
    made = small.config
    assert given.layer_types[:4] == ["linear_attention"] * 3 + ["full_attention"]
    assert made.layer_types == ["linear_attention", "full_attention"]
    assert (made.num_hidden_layers, made.vocab_size) == (2, 1024)
    assert made.max_position_embeddings == 512 < given.max_position_embeddings
    assert given.linear_key_head_dim == given.linear_value_head_dim
    assert made.linear_key_head_dim == made.linear_value_head_dim
    assert sum(one.numel() for one in AutoModel.from_config(made).parameters()) == small.parameters
    assert small.parameters <= 2_000_000


@pytest.mark.slow
def test_sizes_that_must_add_up_are_found_by_a_run():
    given = CONFIG_MAPPING["qwen2_5_vl_text"]()  # its rotation turns 16, 24 and 24 pairs of a head
    made = SmallCopy(AutoModel.from_config, given, read_twelve).shrink(2_000_000).config
    assert made.hidden_size < given.hidden_size
    assert made.hidden_size // made.num_attention_heads == 2 * (16 + 24 + 24)
