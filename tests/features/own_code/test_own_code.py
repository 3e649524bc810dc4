"""Models whose code is their own: read as `watch` reads, with tokens of their tokenizer."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import attnviz as attnviz_api
from attnviz.core import registry
from attnviz.core.errors import AttentionError, AttnvizError
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.features.own_code.source import OwnCodeModel
from attnviz.models.hugging_face.text_model import HuggingFaceModel
from attnviz.models.open import open_source
from tests.features.own_code import folders
from tests.hugging_face.tiny_models import rewrite
from tests.invoke import attnviz

TEXT = "the red car is the paper of who"
WAYS = ("matmul", "sdpa", "einsum", "bmm", "kernel")


def attend(folder, text=TEXT, **options):
    return attnviz_api.attend(text, model=str(folder), allow="code", **options)


def eager_weights(folder, text=TEXT, **sizes):
    """The matrices of transformers' own Llama with the same weights."""
    model = folders.llama_weights(**sizes)
    ids = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(text)["input_ids"]
    with torch.no_grad():
        layers = model(torch.tensor([ids]), output_attentions=True).attentions
    return torch.cat(layers).numpy(), model, ids


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The folder of a Llama whose attention is written by hand, by the way that it is written."""
    made = {}

    def find(way="matmul"):
        if way not in made:
            made[way] = folders.llama_folder(tmp_path_factory.mktemp("own") / way, way)
        return made[way]

    return find


def test_every_way_to_write_attention_gives_the_weights_of_transformers(llama):
    wrong = {}
    for way in WAYS:
        result = attend(llama(way))
        truth, *_ = eager_weights(llama(way))
        off = float(np.abs(result.weights - truth).max())
        tokens = ("[CLS]", "the", "red", "car", "is", "the", "paper", "[UNK]", "who", "[SEP]")
        settings = result.provenance.settings
        if not (off < 1e-5 and result.main.stream == "causal" and result.tokens == tokens):
            wrong[way] = off, result
        if way != "kernel" and "checked" not in settings:
            wrong[way] = settings
        assert result.main.layers == ("0", "1")
    assert wrong == {}


def test_code_that_calls_a_kernel_is_taken_apart_like_any_family(llama):
    source = open_source(Origin(model=str(llama("kernel")), allow="code"), "self", with_head=True)
    assert isinstance(source, HuggingFaceModel)
    for lens in ("gradient", "effect"):
        assert attend(llama("kernel"), lens=lens).lens_name == lens
    other = open_source(Origin(model=str(llama()), allow="code"), "self")
    assert isinstance(other, OwnCodeModel)
    assert other.family == "decoder-only"


def test_nothing_runs_that_is_not_allowed(tmp_path):
    folder = folders.llama_folder(tmp_path / "own", "matmul")
    (folder / "modeling_own.py").write_text("raise SystemExit('this must not run')")
    done = attnviz("self", "the red car", "--model", folder)
    assert (done.status, done.out) == (1, b"")
    assert "needs Python code that comes with it (architecture 'own-lm', in modeling_own.py)" in (
        done.mistake
    )
    assert "give --allow code if you trust it" in done.mistake

    facts = attnviz("models", "--check", folder, "-f", "json").json()
    assert facts["runs"] == ["modeling_own.py (OwnConfig, OwnForCausalLM)"]
    assert facts["architecture"] == "OwnForCausalLM (own-lm)"
    assert (facts["needs"], facts["stored as"]) == ("--allow code", "F32")
    assert facts["parameters"] == sum(one.numel() for one in folders.llama_weights().parameters())
    assert "runs only with --allow code" in facts["tried on"]


def test_what_cannot_be_taken_apart_says_so_in_a_line(llama, tmp_path):
    own = ("--model", llama(), "--allow", "code")
    said = {}
    for words, what in (
        (("self", TEXT, "--lens", "gradient"), "no effect or gradient is known"),
        (("self", TEXT, "--lens", "effect"), "cannot be switched off"),
        (("self", TEXT, "--lens", "norm"), "vectors that its weights add up are not known"),
        (("self", TEXT, "--lens", "logits"), "cannot be told apart"),
        (("ablate", TEXT), "cannot be switched off"),
        (("explain", TEXT), "cannot be switched off"),
        (("why", TEXT), "cannot be told apart"),
        (("why", TEXT, "--layers"), "cannot be told apart"),
        (("steps", TEXT), "matrices of its heads are not known"),
        (
            ("self", TEXT, "--keep-qk", "--html", tmp_path / "page.html"),
            "leave --keep-qk, --scores and --channels out",
        ),
        (("self", TEXT, "--pair", TEXT), "does not read sentence pairs"),
        (("cross", TEXT, TEXT), "has no cross-attention"),
    ):
        done = attnviz(*words, *own)
        if done.status not in (1, 2) or done.out or what not in done.mistake:
            said[words] = done.status, done.err
    assert said == {}
    for lens in ("rollout", "flow"):
        assert attend(llama(), lens=lens).lens_name == lens


def test_linear_attention_is_refused_with_the_reason_of_watch(llama):
    folder = llama("linear")
    with pytest.raises(AttentionError) as caught:
        attend(folder)
    model = open_source(Origin(model=str(folder), allow="code"), "self").model
    with attnviz_api.watch(model) as seen, torch.no_grad():
        model(torch.arange(5, 12)[None])
    with pytest.raises(AttentionError) as other:
        seen.attention()
    assert str(caught.value) == f"'own-lm' runs code of its own: {other.value}"


def test_many_texts_are_read_as_each_alone(llama):
    texts = [TEXT, "the car", "who published the red paper", "student", "the professor is red"]
    for way in ("sdpa", "bmm"):
        many = attnviz_api.attend_many(texts, model=str(llama(way)), allow="code")
        for text, result in zip(texts, many, strict=True):
            np.testing.assert_array_equal(result.weights, attend(llama(way), text).weights)
            truth, *_ = eager_weights(llama(way), text)
            assert np.abs(result.weights - truth).max() < 1e-5


def test_reading_changes_no_bit_of_the_output(llama):
    source = open_source(Origin(model=str(llama()), allow="code"), "self")
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        before = source.model(ids).logits
        list(source.attend([Query(TEXT)]))
        assert torch.equal(before, source.model(ids).logits)


def test_a_causal_model_writes_the_likeliest_tokens(llama):
    _, model, ids = eager_weights(llama(), "the red car")
    for _ in range(5):
        with torch.no_grad():
            ids = [*ids, int(model(torch.tensor([ids])).logits[0, -1].argmax())]
    result = attend(llama(), "the red car", generate=5)
    pieces = [token.piece[0] for token in result.main.query_tokens]
    assert pieces == ids[: len(pieces)]
    assert len(pieces) > 5
    truth = model(torch.tensor([pieces]), output_attentions=True).attentions
    assert np.abs(result.weights - torch.cat(truth).detach().numpy()).max() < 1e-5


def test_parts_and_blocks_of_a_text_are_those_of_its_matrices(llama):
    truth, *_ = eager_weights(llama())
    for way in ("sdpa", "matmul"):
        rows = attend(llama(way), rows="3-5").weights
        assert np.abs(rows - truth[:, :, 3:6]).max() < 1e-5
        blocks = attend(llama(way), max_size=5)
        assert blocks.main.blocks == (2, 2)
        summed = truth.reshape(2, 4, 5, 2, 5, 2).mean(3).sum(4)
        assert np.abs(blocks.weights - summed).max() < 1e-5
        assert any("blocks of 2" in note for note in blocks.notes)


@pytest.mark.slow
def test_any_class_of_the_map_is_loaded(tmp_path):
    kinds = {
        "AutoModel": "OwnModel",
        "AutoModelForMaskedLM": "OwnForCausalLM",
        "AutoModelForNothingKnown": "OwnForCausalLM",
    }
    for auto, kind in kinds.items():
        folder = folders.llama_folder(tmp_path / auto, "einsum")
        classes = {"AutoConfig": "modeling_own.OwnConfig", auto: f"modeling_own.{kind}"}
        rewrite(folder / "config.json", auto_map=classes)
        result = attend(folder)
        assert result.provenance.settings["architecture"] == kind
        assert np.abs(result.weights - eager_weights(folder)[0]).max() < 1e-5


def test_tied_weights_may_be_listed_as_in_older_code(tmp_path):
    folder = folders.llama_folder(tmp_path / "tied", "matmul", tie_word_embeddings=True)
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    origin = Origin(model=str(folder), allow="code", generate=3)
    model = open_source(origin, "self").model
    assert torch.equal(model.lm_head.weight, weights["model.embed_tokens.weight"])


def test_a_model_in_memory_is_read_too(llama):
    folder = llama("einsum")
    source = open_source(Origin(model=str(folder), allow="code"), "self")
    result = attnviz_api.attend(TEXT, model=source.model, tokenizer=source.tokenizer)
    assert np.abs(result.weights - eager_weights(folder)[0]).max() < 1e-5


def test_without_the_feature_the_refusal_stays(llama, monkeypatch):
    row = replace(registry.OWN_CODE, target="no_such_feature.opening:open_own_code")
    monkeypatch.setattr(registry, "OWN_CODE", row)
    with pytest.raises(AttnvizError, match="Unrecognized configuration class"):
        open_source(Origin(model=str(llama("sdpa")), allow="code"), "self")


def test_lines_of_json_hold_the_weights(llama):
    done = attnviz("self", TEXT, "--model", llama(), "--allow", "code", "-f", "jsonl", "-q")
    (line,) = done.lines
    (item,) = json.loads(line)["maps"]
    assert np.abs(np.array(item["weights"]) - eager_weights(llama())[0]).max() < 1e-5


def test_measures_of_a_long_text_are_of_all_its_weights(llama, monkeypatch):
    from attnviz.features.own_code import source as own_source

    monkeypatch.setattr(own_source, "DEFAULT_SIZE", 5)
    source = open_source(Origin(model=str(llama()), allow="code"), "self")
    truth, *_ = eager_weights(llama())
    pooled, whole = source.attend([Query(TEXT), Query(TEXT, in_blocks=lambda one: one)])
    assert pooled.main.blocks == (2, 2)
    assert np.abs(whole.weights - truth).max() < 1e-5
    monkeypatch.setattr(own_source, "MAP_BYTES", 0)
    (small,) = source.attend([Query(TEXT)])
    assert small.main.weights.shape[2] <= 64


@pytest.mark.slow
def test_heads_are_measured_and_lenses_left_out_by_name(llama):
    done = attnviz("heads", TEXT, "--model", llama(), "--allow", "code", "--no-repeat", "-f", "tsv")
    assert done.status == 0, done.err
    assert len(done.lines) == 1 + 8
    done = attnviz(
        "self", TEXT, "--model", llama(), "--allow", "code", "--lens", "all", "-f", "json"
    )
    assert done.status == 0, done.err
    for lens in ("gradient", "effect", "logits", "norm"):
        assert f"lens {lens} is left out: " in done.err
