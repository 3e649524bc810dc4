"""Checkpoints that numpy runs, against transformers' own eager weights."""

import json
import re
import shutil
import string
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModel
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.utils import logging

from attnviz.core.attention_map import PROBABILITIES
from attnviz.core.errors import InputError, UsageError
from attnviz.core.notices import details_to
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.features.vision import light_vision
from attnviz.features.vision.architectures import VISION_ARCHITECTURES
from attnviz.features.vision.light_vision import LightVisionModel, load_light_processor
from attnviz.features.vision.pictures import pixels, seen_box
from attnviz.models import attend_query
from attnviz.models.hugging_face import light_model
from attnviz.models.hugging_face.inputs import light_tokenizer
from attnviz.models.hugging_face.inputs.encoding import tokenize_pair
from attnviz.models.hugging_face.inputs.light_tokenizer import GENERIC, TOKENS, load_light_tokenizer
from attnviz.models.hugging_face.inputs.tokenization import tokenize
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.hugging_face.load.family import reading_limit
from attnviz.models.light.architecture import COMMON, FREE, LISTS
from attnviz.models.light.architectures import ARCHITECTURES as TEXT_ARCHITECTURES
from attnviz.models.light.network import UnknownArchitecture
from attnviz.models.open import open_source
from tests.features.vision.tiny_vision import MIDDLE, build, picture
from tests.hugging_face.ask import about
from tests.hugging_face.tiny_models import but_slow, byte_pieces, rewrite
from tests.invoke import attnviz, imported

ARCHITECTURES = TEXT_ARCHITECTURES | VISION_ARCHITECTURES

pytestmark = pytest.mark.models

TEXT = "The cat sat on the mat, and the dog didn't."


@pytest.fixture(autouse=True)
def any_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """These networks have a tokenizer of the tests, whatever their type."""
    monkeypatch.setattr(light_tokenizer, "DISBELIEVING", ())


SIZE = {"vocab_size": 340, "max_position_embeddings": 120, "pad_token_id": 1}
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")


Fields = dict[str, Any]
"""Values of a configuration by key; a tuple holds several to choose from."""


def common(act: str = "hidden_act", **more: Any) -> Fields:
    """Sizes that most architectures name alike."""
    usual = {
        "hidden_size": (24, 48),
        "num_hidden_layers": (1, 3),
        "num_attention_heads": (2, 4),
        "intermediate_size": (20, 64),
        act: ACTIVATIONS,
    }
    return {**SIZE, **usual, **more}


def first_of(fields: Fields) -> Fields:
    """The first of several values of each field."""
    return {key: one[0] if isinstance(one, tuple) else one for key, one in fields.items()}


def drawn_from(fields: Fields) -> st.SearchStrategy[Fields]:
    """One of several values of each field, by chance."""
    several = {key: one if isinstance(one, tuple) else (one,) for key, one in fields.items()}
    return st.fixed_dictionaries({key: st.sampled_from(one) for key, one in several.items()})


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
VISION = {**NORM, "image_size": (32, 48), "patch_size": (8, 16), "qkv_bias": (True, False)}
PAIRED = {
    **SIZE,
    "d_model": (24, 48),
    **{f"{side}_layers": (1, 2) for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": (2, 4) for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": (20, 64) for side in ("encoder", "decoder")},
    "activation_function": ACTIVATIONS,
    "scale_embedding": (False, True),
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}
SCALED = (
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
     "rope_theta": 10000.0},
    {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, "mscale": 0.7,
     "mscale_all_dim": 0.3, "beta_fast": 8.0, "truncate": False, "rope_theta": 500.0},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
     "attention_factor": 1.3, "rope_theta": 10000.0},
    {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 2048,
     "short_factor": [1.0, 1.5, 2.0], "long_factor": [4.0] * 3, "rope_theta": 10000.0},
)  # fmt: skip
"""Positions scaled for longer texts, for heads of six features."""
KINDS: dict[str, Fields] = {
    "bert": common(**NORM),
    "roberta": common(**NORM, pad_token_id=(1, 3)),
    "xlm-roberta": common(**NORM),
    "distilbert": dict(
        SIZE, dim=(24, 48), n_layers=(1, 3), n_heads=(2, 4), hidden_dim=(20, 64),
        activation=("gelu", "relu"), sinusoidal_pos_embds=(False, True),
    ),
    "electra": common(**NORM, embedding_size=(24, 10)),
    "gpt2": dict(
        {"vocab_size": 340}, n_positions=120, n_embd=(24, 48), n_layer=(1, 3), n_head=(2, 4),
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
        num_hidden_layers=(2, 7),
    ),
    "opt": dict(
        SIZE, hidden_size=24, word_embed_proj_dim=24, num_hidden_layers=(1, 3),
        num_attention_heads=(2, 4), ffn_dim=(20, 64), activation_function=("relu", "gelu"),
        do_layer_norm_before=(True, False),
    ),
    "gpt_neox": common(
        **NORM, num_attention_heads=(2, 3), attention_bias=(True, False),
        use_parallel_residual=(True, False),
        rope_parameters=(
            {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
            {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        ),
    ),
    "bart": PAIRED,
    "marian": PAIRED,
    "vit": {name: one for name, one in common(**VISION).items() if name not in SIZE},
    "dinov2": {
        name: one for name, one in common(**VISION, mlp_ratio=(1, 4)).items()
        if name not in (*SIZE, "intermediate_size")
    },
}  # fmt: skip
"""Random configurations of each architecture within the table."""
LIGHT = ("bert", "gpt2", "gemma2", "bart", "vit")
"""One of each kind, with grouped heads, windows and caps in one: those of the fast tier."""
PROCESSORS: dict[str, Any] = {"vit": ViTImageProcessorPil, "dinov2": BitImageProcessorPil}
"""The processors of those that read pictures."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_pieces()


def save(kind: str, fields: Fields, tokenizer: Any, folder: Path, **how: Any) -> Any:
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
    reader_of(model, tokenizer).save_pretrained(folder)
    return model


def read_alike(model: Any, ids: list[int]) -> dict[str, Any]:
    """The inputs of these ids as a text, and as a target too where the model reads two."""
    given, config = {"input_ids": torch.tensor([ids])}, model.config
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.tensor([[config.decoder_start_token_id, *ids]])
    return given


def reader_of(model: Any, tokenizer: Any) -> Any:
    """The tokenizer, or the processor of a model that reads pictures."""
    made = PROCESSORS.get(model.config.model_type)
    side = {"height": 32, "width": 32}
    return made(**MIDDLE if made is BitImageProcessorPil else {"size": side}) if made else tokenizer


def eager_weights(model: Any, tokenizer: Any, text: str = TEXT) -> Any:
    """The weights that transformers gives out, (layers, heads, queries, keys)."""
    reader, more = reader_of(model, tokenizer), {}
    given = read_alike(model, tokenizer(text)["input_ids"])
    if reader is not tokenizer:
        given = reader(picture(), return_tensors="pt").to(model.dtype)
        more = {"interpolate_pos_encoding": True} if model.config.model_type == "vit" else {}
    with torch.no_grad():
        output = model(**given, **more, output_attentions=True)
    if not model.config.is_encoder_decoder:
        return torch.cat(output.attentions).numpy()
    names = (f"{stream}_attentions" for stream in ("cross", "encoder", "decoder"))
    return torch.cat([one.flatten() for name in names for one in output[name]]).numpy()


def query_of(kind: str, text: str = TEXT) -> tuple[Any, Any]:
    """What a model of this architecture is asked, and of which kind it is."""
    if kind in PROCESSORS:
        return about(picture()), "picture"
    return (Query(text, text, "cross"), "cross") if KINDS[kind] is PAIRED else (Query(text), "self")


def all_weights(attention: Any) -> Any:
    """The weights of a map, or those of all maps in a row."""
    maps = [item.weights for item in attention.maps]
    return maps[0] if len(maps) == 1 else np.concatenate([one.ravel() for one in maps])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return (tmp_path_factory.mktemp("model") for _ in iter(int, 1))


@pytest.mark.parametrize("kind", but_slow(KINDS, LIGHT))
@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=[*HealthCheck])  # fmt: skip
@given(data=st.data())
def test_its_weights_are_those_of_transformers(kind, data, tokenizer, folders):
    folder = next(folders)
    model = save(kind, data.draw(drawn_from(KINDS[kind])), tokenizer, folder)
    query, asked = query_of(kind)
    source = open_source(Origin(model=str(folder), device="light"), asked)
    assert isinstance(source, LightVisionModel if kind in PROCESSORS else LightModel)
    assert asked == "picture" or source.limit == reading_limit(model, tokenizer)
    found = all_weights(attend_query(source, query))
    single, double = eager_weights(model, tokenizer), eager_weights(model.double(), tokenizer)
    off = np.abs(found - double).max()
    limit = 4 * np.abs(single - double).max()
    assert off <= max(1e-5, limit)
    assert found.std() > 0.01


@pytest.mark.parametrize("given", SCALED, ids=str)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_scaled_positions_are_those_of_transformers(kind, given, tokenizer, folders):
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "max_position_embeddings": 256}
    if kind == "gpt_neox":
        given = {**given, "partial_rotary_factor": 1.0}
    fields = {**first_of(KINDS[kind]), **sizes, "rope_parameters": given}
    folder, text = next(folders), TEXT * 6
    model = save(kind, fields, tokenizer, folder)
    source = open_source(Origin(model=str(folder), device="light"), "self")
    found = attend_query(source, Query(text)).weights
    assert found.shape[-1] > 100
    single = eager_weights(model, tokenizer, text)
    double = eager_weights(model.double(), tokenizer, text)
    assert np.abs(found - double).max() <= max(1e-5, 2 * np.abs(single - double).max())


def test_what_the_table_takes_and_leaves_to_transformers():
    assert KINDS.keys() == ARCHITECTURES.keys()
    pairs = {kind: row.encoder for kind, row in ARCHITECTURES.items() if row.encoder}
    assert [*pairs] == [kind for kind, fields in KINDS.items() if fields is PAIRED]
    for kind, odd in (
        *((kind, {"rope_parameters": PART}) for kind in ("llama", "mistral", "qwen2", "qwen3")),
        ("gemma2", {"rope_parameters": PART}),
        ("mistral", {"sliding_window": 0}),
        ("gemma2", {"attn_logit_softcapping": 0.0}),
        ("gemma3_text", {"_sliding_window_pattern": 2, "layer_types": None}),
    ):
        told = CONFIG_MAPPING[kind](**first_of(KINDS[kind])).to_dict()
        told.pop("_sliding_window_pattern", None)
        ARCHITECTURES[kind].shape_of(told)
        with pytest.raises(UnknownArchitecture):
            ARCHITECTURES[kind].shape_of({**told, **odd})


@pytest.mark.parametrize(
    ("kind", "row"),
    [(kind, one) for kind in KINDS
     for one in (ARCHITECTURES[kind], ARCHITECTURES[kind].encoder) if one],
    ids=lambda one: one if isinstance(one, str) else one.positions,
)  # fmt: skip
def test_keys_are_known_or_fall_back(kind, row):
    told = CONFIG_MAPPING[kind](**first_of(KINDS[kind])).to_dict()
    shape = row.shape_of(told)
    heeded = {row.activation, *row.keys.values(), *row.choices, *COMMON}
    for key in told:
        for other in ("unheard of", {"unheard": "of"}, 12345):
            try:
                changed = row.shape_of({**told, key: other}) != shape
            except (UnknownArchitecture, TypeError, ValueError, AttributeError):
                changed = True
            assert changed or key in {*FREE.split(), *LISTS, *row.others.split()} - heeded
    with pytest.raises(UnknownArchitecture, match="a key of tomorrow"):
        row.shape_of({**told, "a key of tomorrow": 1})


PART = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}


@pytest.mark.parametrize("kind", but_slow(KINDS, LIGHT))
def test_keys_that_are_ignored_change_nothing(kind, tokenizer, folders):
    fields = first_of(KINDS[kind])
    folder = next(folders)
    plain = eager_weights(save(kind, fields, tokenizer, folder), tokenizer)
    told = CONFIG_MAPPING[kind](**fields).to_dict()
    others = {
        key: one
        for key, one in told.items()
        if key in {*FREE.split()} - ARCHITECTURES[kind].choices.keys() and "token_id" not in key
    }
    for key, one in others.items():
        if isinstance(one, bool | float):
            given = {**fields, key: not one if isinstance(one, bool) else 0.25}
            found = eager_weights(save(kind, given, tokenizer, folder), tokenizer)
            np.testing.assert_array_equal(found, plain, key)


def ask(folder: Path, text: str = TEXT, **origin: Any) -> Any:
    """The source of a model in a folder, and its answer."""
    source = open_source(Origin(model=str(folder), **origin), "self")
    return source, attend_query(source, Query(text))


@pytest.fixture(scope="module")
def llama(tokenizer: Any, folders: Iterator[Path]) -> Path:
    folder = next(folders)
    save("llama", first_of(KINDS["llama"]), tokenizer, folder)
    return folder


def test_queries_keys_and_values_are_transformers(llama):
    found, expected = (
        open_source(Origin(model=str(llama), device=name, keep_qk=True), "self")
        for name in ("light", "torch")
    )
    mine, theirs = (attend_query(source, Query(TEXT)) for source in (found, expected))
    assert replace(mine.main, weights=theirs.main.weights) == theirs.main
    for name in ("query", "key", "scale"):
        one, other = (getattr(by.projections["causal"], name) for by in (mine, theirs))
        np.testing.assert_allclose(one, other, atol=1e-5)
    products = [source.values(Query(TEXT)).products[0] for source in (found, expected)]
    np.testing.assert_allclose(*products, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_widened_as_it_is_read(dtype, tokenizer, folders):
    folder = next(folders)
    model = save("bert", first_of(KINDS["bert"]), tokenizer, folder, dtype=getattr(torch, dtype))
    source, found = ask(folder, device="light")
    assert {str(source.weights.raw(name).dtype) for name in source.weights} <= {"uint16", "float16"}
    np.testing.assert_allclose(found.weights, eager_weights(model.float(), tokenizer), atol=1e-5)


def test_keys_change_no_token_and_torch_is_asked(llama, tmp_path, monkeypatch):
    folder = shutil.copytree(llama, tmp_path / "model")
    keys = {"max_length": 4, "stride": 1, "truncation_strategy": "longest_first"}
    keys |= {"pad_to_multiple_of": 64, "pad_token_type_id": 1, "truncation_side": "left"}
    keys["bos_token"] = {"__type": "AddedToken", "content": "<s>", "lstrip": False}
    rewrite(folder / "tokenizer_config.json", **keys)
    (_, mine), (_, theirs) = (ask(folder, device=name) for name in ("light", "torch"))
    assert mine.main.query_tokens == theirs.main.query_tokens
    assert len(mine.main.query_tokens) > 4
    said = list[str]()
    with details_to(said.append):
        source, found = ask(llama)
    assert found.provenance.versions.keys() == {"numpy"}
    assert [one.split(":")[0].split(",")[0] for one in said] == ["numpy calculates"]
    with details_to(said.append):
        monkeypatch.setattr(light_model, "MOST_TOKENS", 3)
        assert "torch" in attend_query(source, Query(TEXT)).provenance.versions
    assert said[1] == "torch calculates, since a text has more than 3 tokens"


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ("config.json", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "scaled by"),
        (
            "config.json",
            {"rope_parameters": {**SCALED[-1], "original_max_position_embeddings": 99}},
            "turn more slowly in long texts",
        ),
        ("config.json", {"pretraining_tp": [1]}, "pretraining_tp"),
        ("config.json", {"architectures": ["LlamaForSequenceClassification"]}, "no head of"),
        ("config.json", {"num_hidden_layers": 2}, "lack 'layers.1"),
        ("config.json", {"intermediate_size": 21}, "has the shape"),
        ("tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens"),
        ("tokenizer_config.json", {"pad_token": "<new>"}, "no special token '<new>'"),
        ("tokenizer_config.json", {"bos_token": {"content": "<s>", "lstrip": 1}}, "files differ"),
        ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"}, "is a LlamaTokenizer"),
        ("tokenizer_config.json", {"added_tokens_decoder": {}}, "add different tokens"),
        ("tokenizer_config.json", {"of tomorrow": 1}, "of tomorrow"),
    ],
)
def test_what_the_table_does_not_know_is_refused(file, changes, why, llama, tmp_path):
    folder = shutil.copytree(llama, tmp_path / "model")
    rewrite(folder / file, **changes)
    with pytest.raises(UsageError, match=re.escape("--device light cannot do this, since")) as e:
        open_source(Origin(model=str(folder), device="light"), "self")
    assert why in str(e.value)


@pytest.mark.parametrize("size", [None, 1, 2])
def test_texts_of_one_length_share_passes(llama, size):
    source = open_source(Origin(model=str(llama)), "self")
    texts = ["The cat", "a mat", "", "the cat", "The dog sat.", "The mat", "a cat"]
    found = list(source.attend([Query(text) for text in texts], batch_size=size))
    for text, one in zip(texts, found, strict=True):
        if not text:
            assert isinstance(one, InputError)
            continue
        alone = attend_query(source, Query(text))
        assert one.text == text
        assert replace(one.main, weights=alone.main.weights) == alone.main
        np.testing.assert_allclose(one.weights, alone.weights, atol=1e-6)


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Classifiers of pictures by architecture, with the sizes of the table."""
    made = {}
    for kind, name in (("vit", "ViT"), ("dinov2", "Dinov2")):
        config = CONFIG_MAPPING[kind](
            **first_of(KINDS[kind]), id2label={0: "cat", 1: "dog", 2: "owl"}
        )
        reader = reader_of(SimpleNamespace(config=config), None)
        folder = tmp_path_factory.mktemp(kind)
        made[kind] = build(folder, f"{name}ForImageClassification", config, reader)
    return made


@pytest.mark.parametrize("kind", PROCESSORS)
@pytest.mark.parametrize("size", [None, (48, 32), (64, 64)])
def test_pictures_are_answered_as_by_transformers(kind, size, classifiers):
    found, expected = (
        open_source(Origin(model=str(classifiers[kind]), device=name), "picture")
        for name in ("light", "torch")
    )
    query = about(picture(), size=size)
    mine, theirs = (attend_query(source, query) for source in (found, expected))
    np.testing.assert_allclose(mine.weights, theirs.weights, atol=1e-5)
    assert replace(mine.main, weights=theirs.main.weights) == theirs.main
    assert (mine.seen, mine.decision) == (theirs.seen, theirs.decision)
    settings, others = (dict(one.provenance.settings) for one in (mine, theirs))
    shares = [one.pop(PROBABILITIES) for one in (settings, others)]
    assert shares[0] == pytest.approx(shares[1], abs=1e-4)
    assert {**settings, "attention": others["attention"]} == others
    products = [source.values(query).products[0] for source in (found, expected)]
    np.testing.assert_allclose(*products, atol=1e-3)


@pytest.mark.parametrize("changes", [
    *({"resample": number} for number in range(6)),
    {"do_rescale": False}, {"do_normalize": False}, {"do_convert_rgb": None},
    {"rescale_factor": 0.01, "image_std": [0.2, 3, 1.5]},
    {"size": {"height": 40, "width": 56}, "do_center_crop": False},
    {"size": {"shortest_edge": 33}, "crop_size": {"height": 31, "width": 32},
     "do_center_crop": True},
])  # fmt: skip
def test_pixels_are_those_of_transformers(changes, classifiers, tmp_path):
    for kind, folder in classifiers.items():
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        rewrite(tmp_path / "preprocessor_config.json", **changes)
        theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path)
        mine = load_light_processor(tmp_path)
        for shape in ((60, 40), (40, 60), (97, 41), (32, 32)):
            for size in (None, (48, 32)):
                given = picture(*shape)
                expected = np.asarray(pixels(theirs, given, size), np.float32)
                np.testing.assert_array_equal(pixels(mine, given, size), expected, kind)
                assert seen_box(mine, given, size) == seen_box(theirs, given, size)


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ("config.json", {"use_swiglu_ffn": True}, "use_swiglu_ffn"),
        ("config.json", {"image_size": [32, 32]}, "no number 'image_size'"),
        ("config.json", {"num_channels": 4}, "num_channels"),
        ("config.json", {"problem_type": "multi_label_classification"}, "classifier"),
        ("config.json", {"id2label": {"0": "cat"}}, "classifier"),
        ("preprocessor_config.json", {"do_pad": True}, "unknown field `do_pad`"),
        ("preprocessor_config.json", {"size": 32}, "Expected `object`, got `int`"),
        ("preprocessor_config.json", {"size": {"shortest_edge": 8}}, "not known"),
        ("preprocessor_config.json", {"image_std": [1, 0, 1]}, "not known"),
        ("preprocessor_config.json", {"resample": 9}, "not known"),
        ("preprocessor_config.json", {"image_processor_type": "X"}, "matching regex"),
        ("processor_config.json", {}, "other inputs"),
    ],
)
def test_odd_pictures_are_refused(file, changes, why, classifiers, tmp_path):
    folder = shutil.copytree(classifiers["dinov2"], tmp_path / "model")
    rewrite(folder / file, **changes)
    with pytest.raises(UsageError, match=re.escape(why)):
        open_source(Origin(model=str(folder), device="light"), "picture")


def test_a_picture_beyond_numpy_is_asked_of_torch(classifiers, monkeypatch):
    said = list[str]()
    with details_to(said.append):
        source = open_source(Origin(model=str(classifiers["dinov2"])), "picture")
        grey = attend_query(source, about(picture().convert("L")))
        monkeypatch.setattr(light_model, "MOST_TOKENS", 3)
        large = attend_query(source, about(picture()))
        monkeypatch.setattr(light_vision, "find_spec", lambda _: "torchvision is installed")
        open_source(Origin(model=str(classifiers["dinov2"])), "picture")
    assert all("torch" in one.provenance.versions for one in (grey, large))
    reasons = ["the picture is not of the colours", "torchvision or a processor of other inputs"]
    assert [reason in line for reason, line in zip(reasons, said[1:], strict=True)] == [True] * 2
    with pytest.raises(UnknownArchitecture, match="the picture has more than 3 tokens"):
        source._run(about(picture()), None)


def test_a_picture_is_answered_without_torch(classifiers, tmp_path):
    picture().save(tmp_path / "a.png")
    given = ("image", tmp_path / "a.png", "-m", classifiers["dinov2"], "-f", "json", "-v")
    loaded, done = imported(*given)
    assert not loaded & {"torch", "transformers", "safetensors"}
    assert "numpy calculates: attnviz runs Dinov2ForImageClassification" in done.err


WORDS = {
    token: number
    for number, token in enumerate(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
        + [mark + one for mark in ("", "##") for one in string.ascii_letters + string.punctuation]
    )
}
LETTERS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", "▁t", "▁th", "▁the"]


def tokenizer_of(name: str, **options: Any) -> Any:
    """A small tokenizer of a class of transformers."""
    kind, known = getattr(transformers, name), json.loads(byte_pieces().backend_tokenizer.to_str())
    if name.endswith("BertTokenizer"):
        return kind(vocab=WORDS, **options)
    if name == "GemmaTokenizer":
        vocab = {one: n for n, one in enumerate([*LETTERS, *string.ascii_letters])}
        return kind(vocab=vocab, merges=[("▁", "t"), ("▁t", "h"), ("▁th", "e")], **options)
    vocab, merges = known["model"]["vocab"], [tuple(one) for one in known["model"]["merges"]]
    vocab |= {one: 340 + n for n, one in enumerate(("<|endoftext|>", "<|padding|>", "<mask>"))}
    return kind(vocab=vocab, merges=merges, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in TOKENS]
    + [("BertTokenizer", {"do_lower_case": False}), ("GPT2Tokenizer", {"add_prefix_space": True})],
)
def test_its_tokens_are_those_of_transformers(name, options, tmp_path):
    theirs = tokenizer_of(name, **options)
    theirs.save_pretrained(tmp_path)
    mine = load_light_tokenizer(tmp_path, "")
    for text in (
        "The cat, the dog's Café — [MASK]<mask> <|endoftext|>!",
        "  two  \n 日本 🙂 ümlaut",
    ):
        assert tokenize(mine, text) == tokenize(theirs, text)
    if name in ("BertTokenizer", "RobertaTokenizer"):
        assert tokenize_pair(mine, "the cat", "A Dog") == tokenize_pair(theirs, "the cat", "A Dog")
    rewrite(tmp_path / "tokenizer.json", pre_tokenizer={"type": "Whitespace"})
    with pytest.raises(UnknownArchitecture, match="the pre_tokenizer of its tokenizer is not that"):
        load_light_tokenizer(tmp_path, "")


@pytest.mark.parametrize("name", GENERIC)
def test_a_class_not_believed_is_not_believed(name, tmp_path, monkeypatch):
    """Its own class builds other steps than the file has: numpy does not answer."""
    monkeypatch.undo()
    byte_pieces().save_pretrained(tmp_path)
    rewrite(tmp_path / "tokenizer.json", normalizer={"type": "Lowercase"})
    rewrite(tmp_path / "tokenizer_config.json", tokenizer_class=name)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__.startswith("Qwen2Tokenizer")
    load_light_tokenizer(tmp_path, "", "llama")
    with pytest.raises(UnknownArchitecture):
        load_light_tokenizer(tmp_path, "Qwen2Tokenizer", "qwen2")


@pytest.mark.minilm
@pytest.mark.core
def test_minilm_is_answered_without_torch(minilm):
    given = ("self", "the cat sat on the mat", "-m", minilm, "-f", "json", "-v")
    loaded, done = imported(*given)
    assert not loaded & {"torch", "transformers", "safetensors"}
    assert "numpy calculates: attnviz runs BertModel without torch" in done.err
    assert "torch" in imported(*given, "--device", "torch")[0]
    found, expected = (
        np.array(attnviz(*given, "--device", name).json()["maps"][0]["weights"])
        for name in ("light", "torch")
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (
        "--device light cannot do this, since gradients"
        in attnviz(*given, "--device", "light", "--lens", "gradient").mistake
    )
