"""Exact effects of checkpoints that numpy runs, against those of transformers."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers.processors import TemplateProcessing
from transformers import CONFIG_MAPPING
from transformers.utils import logging

from attnviz.core.attention_map import PROBABILITIES
from attnviz.core.effects import HeadAt, Intervention
from attnviz.core.errors import UsageError
from attnviz.core.notices import details_to
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.core.writers import SIDES
from attnviz.features.ablate.parts import each_part, replacements, together
from attnviz.features.experiments import light
from attnviz.features.experiments.light import LightExperiment
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.writers.links import score_of, weigh
from attnviz.models import attend_query
from attnviz.models.hugging_face.inputs import generation
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.light.architectures import ARCHITECTURES
from attnviz.models.light.head import HEADS, OF_TEXTS
from attnviz.models.open import open_source
from tests.hugging_face.test_light import (
    KINDS,
    LIGHT,
    Fields,
    any_tokenizer,
    first_of,
    query_of,
    read_alike,
)
from tests.hugging_face.tiny_models import but_slow, byte_pieces
from tests.invoke import attnviz, imported

__all__ = ["any_tokenizer"]  # a fixture

pytestmark = pytest.mark.models

TEXT = "The cat sat on it."
ENDS = {"bos_token_id": 0, "eos_token_id": 2}
CASES: list[tuple[str, Fields]] = [
    *((kind, {}) for kind in HEADS),
    ("gpt2", {"tie_word_embeddings": False}),
    ("bert", {"tie_word_embeddings": False}),
    ("llama", {"tie_word_embeddings": True}),
    ("gemma3_text", {"final_logit_softcapping": 2.0}),
]
"""Each architecture, and both ways to store its embeddings and to cap its scores."""


def save(kind: str, folder: Path, *, model: str = "", **fields: Any) -> Any:
    """A random model with its head in a folder, with weights large enough for heads to differ."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{**first_of(KINDS[kind]), **ENDS, **fields})
    made: Any = getattr(transformers, model or HEADS[kind].model)(config).eval()
    with torch.no_grad():
        for name, one in made.named_parameters():
            if not one.requires_grad:  # the waves of Marian's positions
                continue
            scale = 0.3 if one.ndim == 1 else one.shape[-1] ** -0.5 * 1.5
            one.copy_(torch.randn(one.shape) * scale + (one.ndim == 1 and "norm" in name.lower()))
        for name, one in made.named_buffers():
            if name == "final_logits_bias":
                one.copy_(torch.randn(one.shape) * 0.3)
    logging.disable_progress_bar()
    made.save_pretrained(folder)
    byte_pieces().save_pretrained(folder)
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return (tmp_path_factory.mktemp("model") for _ in iter(int, 1))


@pytest.fixture(scope="module")
def gpt2(folders: Iterator[Path]) -> Path:
    folder = next(folders)
    save("gpt2", folder)
    return folder


def open_both(folder: Path, wanted: str | None = None, kind: str = "bert") -> list[Any]:
    """The experiment of numpy, and that of torch."""
    query, asked = query_of(kind, TEXT)
    sources = (
        open_source(Origin(model=str(folder), device=name), asked, with_head="exact")
        for name in ("light", "torch")
    )
    return [open_experiment(source, query, wanted) for source in sources]


@pytest.mark.parametrize(("kind", "fields"), but_slow(CASES, LIGHT))
def test_predictions_and_effects_are_those_of_transformers(kind, fields, folders, monkeypatch):
    monkeypatch.setattr(generation, "LONGEST", 12)
    folder = next(folders)
    model = save(kind, folder, **fields)
    mine, theirs = open_both(folder, kind=kind)
    assert isinstance(mine, LightExperiment)
    assert mine.outputs == theirs.outputs
    assert [mine.spell(n) for n in range(340)] == [theirs.spell(n) for n in range(340)]
    with torch.no_grad(), quiet():
        given = read_alike(model, byte_pieces()(TEXT)["input_ids"])
        scores = model(**given).logits[0].log_softmax(-1).numpy()
    (plain,) = mine.run([Intervention()])
    np.testing.assert_allclose(plain, scores[[one.row for one in mine.outputs]], atol=1e-4)
    for each, instead in (("heads", "mean"), ("tokens", "zero"), ("links", "zero")):
        parts = each_part(theirs.attention, each)  # type: ignore[arg-type]
        changes = [change for _, change in (*parts[::5], together(parts[:3]), *parts[-1:])]
        found = []
        for one in (mine, theirs):
            rows = replacements(instead, [one.head_outputs()], one.attention)  # type: ignore[arg-type]
            found.append(np.array([*one.run(changes, rows)]))
        np.testing.assert_allclose(*found, atol=1e-4, err_msg=each)
        assert np.nanmax(np.abs(found[0] - plain)) > 0.01
        changed = [one.changed_maps(changes[-1]).maps for one in (mine, theirs)]
        for own, other in zip(*changed, strict=True):
            np.testing.assert_allclose(own.weights, other.weights, atol=1e-5)
        assert mine.write(changes[-1]) == theirs.write(changes[-1])
    written = mine.write(Intervention())
    assert written == theirs.write(Intervention())
    assert (written is None) == (mine.attention.main.stream == "self")


def test_an_end_of_the_text_is_no_word_to_explain(folders):
    folder = next(folders)
    model = save("llama", folder)
    with torch.no_grad(), quiet():
        chances = model(torch.tensor([byte_pieces()(TEXT)["input_ids"]])).logits[0, -1].softmax(-1)
    first, second = chances.topk(2).indices.tolist()
    model.generation_config.eos_token_id = [2, first]
    model.save_pretrained(folder)
    expected = float(chances[second] / (1 - chances[[0, 1, 2, first]].sum()))
    for experiment in (*open_after(folder, None), *open_after(folder, "next:")):
        (output,) = experiment.outputs
        assert output.number == second
        assert f"says '{experiment.spell(first)}' here (p {chances[first]:.2f})" in output.note
        assert output.note in experiment.attention.provenance.notes
        ((plain,), (cut,)) = experiment.run(
            [Intervention(), Intervention(heads=(HeadAt("self", "1", 0),))]
        )
        assert np.exp(plain[second]) == pytest.approx(expected, rel=1e-4)
        assert np.exp(cut).sum() == pytest.approx(1, rel=1e-4)
        assert plain[first] == -np.inf == cut[first]
    # A tokenizer that puts its end token behind every text.
    tokenizer = byte_pieces()
    name = tokenizer.convert_ids_to_tokens(2)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {name}", special_tokens=[(name, 2)]
    )
    tokenizer.save_pretrained(folder)
    *_, experiment = open_after(folder, None)
    assert experiment.attention.main.query_tokens[-1].special
    (output,) = experiment.outputs
    assert (output.number, output.row) == (second, len(experiment.attention.main.query_tokens) - 2)
    assert (
        f"the text ends in '{name}': what the model says in its place is explained" in output.note
    )


def open_after(folder: Path, wanted: str | None) -> list[Any]:
    """What comes after the text: the experiment of numpy, and that of torch."""
    return [
        open_source(Origin(model=str(folder), device=name), "self", with_head="exact").experiment(
            Query(TEXT), wanted
        )
        for name in ("light", "torch")
    ]


@pytest.mark.parametrize("kind", HEADS)
def test_configurations_are_read_as_transformers_does(kind):
    usual = CONFIG_MAPPING[kind]()
    assert HEADS[kind].ties == usual.tie_word_embeddings
    assert HEADS[kind].cap == getattr(usual, "final_logit_softcapping", None)


def test_an_early_token_is_explained_without_later_links(folders):
    folder = next(folders)
    save("gemma2", folder)
    mine, theirs = open_both(folder, "2")
    changes = [change for _, change in each_part(theirs.attention, "links")]
    np.testing.assert_allclose(
        *(np.array([*one.run(changes)]) for one in (mine, theirs)), atol=1e-4
    )


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ("config.json", {"architectures": ["GPT2DoubleHeadsModel"]}, "no head of a GPT2Double"),
        ("config.json", {"tie_word_embeddings": 1}, "does not say how it predicts"),
        ("config.json", {"tie_word_embeddings": False}, "lack 'lm_head.weight'"),
        ("generation_config.json", {"repetition_penalty": 1.3}, "changes what it writes"),
        ("generation_config.json", {"eos_token_id": "</s>"}, "changes what it writes"),
        ("config.json", {"eos_token_id": "nowhere"}, "how its texts end"),
    ],
)
def test_what_the_table_of_heads_does_not_know_is_refused(file, changes, why, gpt2, tmp_path):
    folder = shutil.copytree(gpt2, tmp_path / "model")
    told = {**json.loads((folder / file).read_text()), **changes}
    if told.get("eos_token_id") == "nowhere":
        (folder / "generation_config.json").unlink()
        del told["eos_token_id"]
    (folder / file).write_text(json.dumps(told))
    with pytest.raises(UsageError, match=why):
        open_source(Origin(model=str(folder), device="light"), "self", with_head="exact")


def test_tied_weights_stored_twice_are_alike(gpt2, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(gpt2, tmp_path / "model")
    file = folder / "model.safetensors"
    weights = load_file(file)
    words = weights["transformer.wte.weight"]
    for own, name in ((words.clone(), "LightModel"), (words + 1, "HuggingFaceModel")):
        save_file({**weights, "lm_head.weight": own}, file, {"format": "pt"})
        source = open_source(Origin(model=str(folder)), "self", with_head="exact")
        assert type(source).__name__ == name


@pytest.mark.slow
@pytest.mark.core
def test_effects_are_measured_and_refused_without_torch(gpt2, tmp_path):
    loaded, done = imported("ablate", TEXT, "-m", gpt2, "--head", "0.1", "-v")
    assert not loaded & {"torch", "transformers", "safetensors"}
    assert "numpy calculates: attnviz runs GPT2LMHeadModel without torch" in done.err
    assert (
        done.text == attnviz("ablate", TEXT, "-m", gpt2, "--head", "0.1", "--device", "torch").text
    )
    folder = shutil.copytree(gpt2, tmp_path / "model")
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, "architectures": ["GPT2Model"]}))
    loaded, done = imported("ablate", TEXT, "-m", folder)
    assert not loaded & {"torch", "transformers"}
    assert done.status == 1
    assert done.mistake == attnviz("ablate", TEXT, "-m", folder, "--device", "torch").mistake
    assert "(GPT2Model) has no head" in done.mistake


def test_what_numpy_does_not_measure_is_left_to_torch(gpt2, monkeypatch):
    sources = (
        open_source(Origin(model=str(gpt2)), "self", with_head=how) for how in ("exact", True)
    )
    found, expected = (open_experiment(source, Query(TEXT)).gradients() for source in sources)
    np.testing.assert_array_equal(found[0], expected[0])
    monkeypatch.setattr(light, "MANY_LINKS", 1e6)
    said = list[str]()
    with details_to(said.append):
        source = open_source(Origin(model=str(gpt2)), "self", with_head="exact")
        experiment = open_experiment(source, Query(TEXT))
        for each, count in (("heads", 0), ("links", 1)):
            changes = [change for _, change in each_part(experiment.attention, each)]  # type: ignore[arg-type]
            list(experiment.run(changes))
            assert sum("links are many" in one for one in said) == count


def check_without(text: Any, other: Any, at: HeadAt) -> None:
    """A head's query and key without each writer but biases, every norm computed anew.

    Torch has one writer for the embeddings of both texts: the encoder reads its own alone.
    """
    names = [(one.stream if one.layer else "", one.name) for one in other.writers]
    sides, same = text.sides(at), other.sides(at)
    for number, one in enumerate(text.writers):
        if one.kind == "bias" or not (one.layer or one.stream == at.stream != "decoder"):
            continue
        writer = names.index((one.stream if one.layer else "", one.name))
        for side in ("query", "key"):
            scale = (sides.factor, same.factor) if side == "query" else (1, 1)
            mine, its = (
                route.without(at, side, n) for route, n in ((text, number), (other, writer))
            )
            near = 2e-4 * max(1.0, np.abs(its).max())
            np.testing.assert_allclose(mine * scale[0], its * scale[1], atol=near)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fields"), but_slow(CASES, LIGHT))
def test_what_is_written_is_what_torch_takes_apart(kind, fields, folders):
    """Two routes: numpy carries each writer through the layers, torch takes gradients."""
    folder = next(folders)
    save(kind, folder, **fields)
    query, asked = query_of(kind, TEXT)
    light, whole = (
        open_source(Origin(model=str(folder), device=how), asked, with_head="exact")
        for how in ("light", "torch")
    )
    with quiet():
        other = whole.trace_writers(query)  # type: ignore[attr-defined]
        if not HEADS[kind].is_linear or "final_logit_softcapping" in fields:
            light = open_source(Origin(model=str(folder), device="light"), asked)
        text = light.trace_writers(query)  # type: ignore[attr-defined]

    def by_name(one: Any, parts: Any) -> dict[tuple[str, str], float]:
        """Parts by writer; torch has one for the embeddings of both texts."""
        sums = defaultdict[tuple[str, str], float](float)
        for writer, part in zip(one.writers, parts, strict=True):
            sums[writer.stream if writer.layer else "", writer.name] += part
        return dict(sums)

    for item in text.attention.maps:
        for layer, head in product(item.layers, range(len(item.heads))):
            at = HeadAt(item.stream, layer, head)
            sides, same = text.sides(at), other.sides(at)
            own = item.weights[item.layers.index(layer), head]
            np.testing.assert_allclose(weigh(sides, score_of(sides)), own, atol=1e-5)
            np.testing.assert_array_equal(sides.mask, same.mask)
            for side in SIDES:
                shape = getattr(sides, side).shape
                direction = np.random.default_rng(head).normal(size=shape)
                parts, theirs = (one.read(at, side, direction) for one in (text, other))
                if side == "query":  # OPT scales queries before they meet keys
                    parts, theirs = parts * sides.factor, theirs * same.factor
                # Biases of feed-forward parts are their own here and there.
                near = 2e-4 * max(1.0, np.abs(parts).max())
                assert by_name(text, parts) == pytest.approx(by_name(other, theirs), abs=near)
        check_without(text, other, HeadAt(item.stream, item.layers[-1], 1))
    item = text.attention.main
    row = len(item.query_tokens) - 1
    if text.predicts(item.stream, row):
        choice = int(text.logits(row).argmax())
        parts, theirs = (one.logit_parts(row, choice) for one in (text, other))
        assert parts.sum() == pytest.approx(theirs.sum(), abs=1e-3)


RULES: list[Fields] = [
    {},
    {"no_repeat_ngram_size": 2, "min_length": 6},
    {"forced_bos_token_id": 7, "bad_words_ids": [[7], [9]], "num_beams": 4, "length_penalty": 2.0},
    {"eos_token_id": [2, 50], "forced_eos_token_id": None},
]
"""What generation_config.json may hold."""


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("kind", ["bart", "marian", "gpt2"])
def test_what_is_generated_is_what_transformers_writes(kind, rules, folders):
    folder = next(folders)
    save(kind, folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **rules}))
    asked = "self" if kind == "gpt2" else "cross"
    found, expected = (
        attend_query(
            open_source(Origin(model=str(folder), device=how, generate=12), asked),
            Query(TEXT, None, asked),  # type: ignore[arg-type]
        )
        for how in ("light", "torch")
    )
    for mine, theirs in zip(found.maps, expected.maps, strict=True):
        assert mine.query_tokens == theirs.query_tokens
        np.testing.assert_allclose(mine.weights, theirs.weights, atol=1e-5)
    assert (found.text, found.target) == (expected.text, expected.target)
    assert found.provenance.notes == expected.provenance.notes
    settings, others = (dict(one.provenance.settings) for one in (found, expected))
    assert {**settings, "attention": others["attention"]} == others


def test_unknown_generation_is_left_to_transformers(gpt2):
    loaded, done = imported("self", TEXT, "-m", gpt2, "--generate", "3", "-v")
    assert not loaded & {"torch", "transformers"}
    assert "numpy calculates: attnviz runs GPT2LMHeadModel without torch" in done.err
    with pytest.raises(UsageError, match="--generate 600 is a long text"):
        open_source(Origin(model=str(gpt2), device="light", generate=600), "self")


CLASSIFIERS = [
    (kind, ending, problem, count)
    for kind in OF_TEXTS
    for ending, problem, count in (
        ("ForSequenceClassification", None, 3),
        ("ForSequenceClassification", "multi_label_classification", 3),
        ("ForSequenceClassification", None, 1),
        ("ForTokenClassification", None, 4),
    )
]


@pytest.mark.parametrize(("kind", "ending", "problem", "count"), but_slow(CLASSIFIERS, LIGHT))
def test_classifiers_decide_as_in_transformers(kind, ending, problem, count, folders):
    folder = next(folders)
    named = ARCHITECTURES[kind].model.removesuffix("Model") + ending
    labels = {number: f"class {number}" for number in range(count)}
    save(kind, folder, model=named, id2label=labels, problem_type=problem)
    sources = [
        open_source(Origin(model=str(folder), device=how), "self") for how in ("light", "torch")
    ]
    mine, theirs = (attend_query(source, Query(TEXT)) for source in sources)
    assert isinstance(sources[0], LightModel)
    np.testing.assert_allclose(mine.weights, theirs.weights, atol=1e-5)
    assert mine.decision == theirs.decision
    assert replace(mine.main, weights=theirs.main.weights) == theirs.main
    settings, others = (dict(one.provenance.settings) for one in (mine, theirs))
    shares = [one.pop(PROBABILITIES, {}) for one in (settings, others)]
    assert shares[0] == pytest.approx(shares[1], abs=1e-4)
    assert {**settings, "attention": others["attention"]} == others
    if count == 1:
        return
    own, other = open_both(folder)
    assert isinstance(own, LightExperiment)
    assert own.outputs == other.outputs
    assert own.spell(1) == "class 1"
    changes = [change for _, change in each_part(other.attention, "heads")]
    found = [np.array([*one.run(changes)]) for one in (own, other)]
    np.testing.assert_allclose(*found, atol=1e-4)
    assert np.ptp(found[0], axis=0).max() > 0.01


def test_unknown_classes_are_left_to_transformers(folders):
    folder = next(folders)
    save("bert", folder, model="BertForSequenceClassification", id2label={0: "a", 1: "b", 2: "c"})
    file = folder / "config.json"
    told = json.loads(file.read_text())
    for change, why in (
        ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "not one of classes by their numbers"),
        ({"id2label": {"x": "a", "y": "b", "z": "c"}}, "classes have no numbers"),
        ({"problem_type": "of tomorrow"}, "not one of classes by their numbers"),
        ({"id2label": {"0": "a"}}, "has the shape"),
    ):
        file.write_text(json.dumps({**told, **change}))
        with pytest.raises(UsageError, match=why):
            open_source(Origin(model=str(folder), device="light"), "self")
