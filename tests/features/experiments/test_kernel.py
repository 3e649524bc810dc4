"""Models with a text before them and parts switched off: what is asked, written and refused."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from attnviz.core.effects import HeadAt, Intervention, TokenAt, log_probabilities
from attnviz.core.errors import ModelError
from attnviz.core.query import Query
from attnviz.features.experiments.kernel import KernelExperiment
from attnviz.features.experiments.sources import read_inputs
from attnviz.models.hugging_face.inputs import generation
from attnviz.models.hugging_face.text_model import load_model
from tests.features.vision.tiny_vision import picture
from tests.hugging_face.tiny_families import FAMILIES
from tests.hugging_face.tiny_heads import head_of
from tests.hugging_face.tiny_models import WIDE, byte_pieces, save, word_pieces
from tests.invoke import attnviz

pytestmark = pytest.mark.models

TEXT = "The professor published the red paper"
PAIR = Query("The red car is fast", "La voiture rouge", "cross")


@pytest.fixture(scope="module")
def model_of(folder_of):
    """A tiny model with its head, by kind."""
    return lambda kind, **how: load_model(str(folder_of(kind)), device="cpu", with_head=True, **how)


@pytest.mark.slow
def test_a_model_writes_as_by_itself_until_parts_are_off(model_of):
    model = model_of("gpt2")
    experiment = model.experiment(Query(TEXT))
    ids = model.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = model.model.generate(ids, do_sample=False, max_new_tokens=20)[0, ids.shape[1] :]
    written = experiment.write(Intervention())
    assert written is not None
    assert written.strip() == model.tokenizer.decode(own, skip_special_tokens=True).strip()
    heads = tuple(HeadAt("causal", layer, head) for layer in "012" for head in range(4))
    assert experiment.write(Intervention(heads)) != written
    # Heads that put out their own outputs, position by position, change nothing.
    whole = torch.cat([ids[0], own])[None]
    (bank,) = experiment.outputs_of({"input_ids": whole}, 1)
    assert experiment.write(Intervention(heads), bank) == written
    assert experiment.write(Intervention()) == written


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("roberta", "self"),
        ("gpt2", "self"),
        ("t5", "cross"),
        *((kind, "written") for kind in ("t5", "bart", "marian", "m2m_100")),
    ],
)
def test_head_outputs_of_texts_are_those_of_each_alone(kind, asked, model_of, monkeypatch):
    model, passes = model_of(kind, dtype="float64"), []
    texts = [TEXT, "The red car", "The red paper", "A text about the car", "The red car"]
    target = "La voiture" if asked == "cross" else None
    monkeypatch.setattr(generation, "LONGEST", 12)
    queries = [Query(text, target, "self" if asked == "self" else "cross") for text in texts]
    expected = [model.experiment(query).head_outputs() for query in queries]
    own = KernelExperiment.outputs_of

    def outputs_of(self, inputs, count):
        passes.append(count)
        return own(self, inputs, count)

    monkeypatch.setattr(KernelExperiment, "outputs_of", outputs_of)
    for found, one in zip(
        model.head_outputs(queries, model.experiment(queries[0])), expected, strict=True
    ):
        assert found.keys() == one.keys()
        for place, rows in one.items():
            np.testing.assert_allclose(found[place], rows, rtol=0, atol=1e-6)
    assert sum(passes) == 5 > len(passes)  # texts of one length share a pass


def test_a_target_is_cut_where_the_model_ended_it(model_of, monkeypatch):
    model, shapes = model_of("bart"), []
    (end,) = generation.ends_of(model)

    def rows(source, inputs, *_, **__):
        shapes.append((inputs["input_ids"].shape, inputs["attention_mask"].sum(1).tolist()))
        return [[end, 5, 6, end, 1, 1], [end, 7, 8, 9, 9, 9]]

    monkeypatch.setattr(generation, "generate_rows", rows)
    queries = [Query(text, None, "cross") for text in ("The red car", TEXT)]
    found = read_inputs(model, queries)
    assert [one["decoder_input_ids"] for one in found] == [[end, 5, 6], [end, 7, 8, 9, 9, 9]]
    lengths = [len(one["input_ids"]) for one in found]
    assert shapes == [((2, max(lengths)), lengths)]


@pytest.mark.slow
def test_targets_are_written_anew_and_explained_together(model_of, monkeypatch):
    monkeypatch.setattr("attnviz.models.hugging_face.inputs.generation.LONGEST", 24)
    model = model_of("t5")
    experiment = model.experiment(PAIR, "all")
    inputs = model.tokenizer(PAIR.text, return_tensors="pt")
    with torch.no_grad():
        own = model.model.generate(**inputs, do_sample=False, max_new_tokens=20, use_cache=False)
    written = experiment.write(Intervention())
    assert written is not None
    assert written.startswith(model.tokenizer.decode(own[0], skip_special_tokens=True)[:10])
    hidden = tuple(TokenAt("source", place) for place in range(3))
    assert experiment.write(Intervention(tokens=hidden)) is not None
    assert model_of("roberta").experiment(Query(TEXT)).write(Intervention()) is None
    model = model_of("bart")
    experiment = model.experiment(PAIR, "all")
    single = [model.experiment(PAIR, str(one.position)) for one in experiment.outputs]
    summed = [sum(layers) for layers in zip(*(one.gradients() for one in single), strict=True)]
    for found, expected in zip(experiment.gradients(), summed, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_half_precision_measures_nearly_what_float32_does(model_of):
    change = [Intervention(), *(Intervention((HeadAt("causal", "1", head),)) for head in range(4))]
    rough, fine = (
        log_probabilities(model_of("llama", dtype=dtype).experiment(Query(TEXT), "1"), change)
        for dtype in ("bfloat16", "float32")
    )
    np.testing.assert_allclose(rough, fine, atol=0.5)


def test_numbers_have_no_probability_and_tags_one_each(tmp_path):
    config = transformers.BertConfig(vocab_size=26, num_labels=1, problem_type="regression", **WIDE)
    made = save(tmp_path, "BertForSequenceClassification", word_pieces(), config)
    model = load_model(str(made), device="cpu", with_head=True)
    with pytest.raises(ModelError, match="predicts a number"):
        model.experiment(Query(TEXT)).gradients()
    assert model.gradients(Query(TEXT)).probability is None
    config = transformers.BertConfig(
        vocab_size=26,
        id2label={0: "dull", 1: "fair"},
        problem_type="multi_label_classification",
        **WIDE,
    )
    made = save(tmp_path, "BertForSequenceClassification", word_pieces(), config)
    model = load_model(str(made), device="cpu", with_head=True)
    experiment = model.experiment(Query(TEXT), "fair")
    assert [experiment.spell(number) for number in range(2)] == ["dull", "fair"]
    (scores,) = experiment.run([Intervention()])
    ids = model.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        expected = model.model(**ids).logits.sigmoid().log()
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_without_kernels_nothing_is_measured_and_said(tmp_path):
    config = transformers.BloomConfig(vocab_size=340, hidden_size=32, n_layer=2, n_head=4)
    made = save(tmp_path, "BloomForCausalLM", byte_pieces(), config)
    done = attnviz("self", TEXT, "--model", made, "--lens", "effect", "-f", "json")
    assert done.status == 0, done.err
    assert "none was measured: architecture 'bloom' calls no attention kernel" in done.err
    settings = json.loads(done.out)["provenance"]["settings"]
    assert settings["measured links"] == 0
    refused = attnviz("ablate", TEXT, "--model", made, "--head", "0.0")
    assert (refused.status, "'bloom' calls no attention kernel" in refused.mistake) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("splinter", "(SplinterModel) has no head that gives classes or tokens"),
        ("xlnet", "'xlnet' gives out copies of its weights"),
        ("canine", "'canine' has no attention weights between all tokens: its characters"),
        ("vilt", "'vilt' cannot run on this text: You have to specify either pixel_values"),
        ("clip_vision_model", "(CLIPVisionModel) has no head that gives classes"),
        ("siglip_vision_model", "(SiglipVisionModel) has no head that gives classes"),
        ("segformer", "(SegformerModel) has no head that gives classes"),
        ("swin", "attends in windows, and --lens effect needs every token"),
        ("vit_mae", "(ViTMAEModel) has no head that gives classes"),
    ],
)
def test_what_predicts_nothing_is_refused_in_one_line(family, says, tmp_path):
    about, sizes = FAMILIES[family], deepcopy(dict(FAMILIES[family].sizes))
    texts = about.kind in ("text", "joint")
    config = CONFIG_MAPPING[family](**sizes | ({"vocab_size": 340} if texts else {}))
    auto = getattr(transformers, head_of(family) or "AutoModel")
    made = auto._model_mapping[type(config)]
    torch.manual_seed(0)
    made._from_config(config).save_pretrained(tmp_path / "model")
    byte_pieces().save_pretrained(tmp_path / "model")
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "model")
    picture().save(tmp_path / "a.png")
    read = ("self", TEXT) if texts else ("image", tmp_path / "a.png")
    done = attnviz(*read, "--model", tmp_path / "model", "--lens", "effect")
    assert (done.status, says in done.mistake) == (1, True), done.err
    if read[0] == "self" and family != "xlnet":
        ablated = attnviz("ablate", TEXT, "--model", tmp_path / "model", "--head", "0.0")
        assert (ablated.status, ablated.mistake) == (1, done.mistake)
