"""What tiny models with tiny heads decide, against transformers' own numbers."""

import numpy as np
import pytest
import torch
import transformers

from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import DECISION, Token
from attnviz.core.errors import ModelError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query
from attnviz.models.hugging_face.load.family import (
    likeliest_class,
    likely_tags,
    task_named,
    word_labels,
)
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend
from tests.hugging_face.tiny_models import headed, reweigh, word_pieces
from tests.invoke import attnviz

TEXT = "The professor published the red paper"
CLASSES = {0: "dull", 1: "fair", 2: "fine"}


@pytest.fixture(scope="module")
def with_head(tmp_path_factory):
    """A tiny model with a head, as a folder, by its class and further settings."""
    return lambda architecture, **settings: headed(
        tmp_path_factory.mktemp("head"), architecture, **{"id2label": CLASSES, **settings}
    )


def own_output(folder, architecture, text=TEXT):
    model = getattr(transformers, architecture)
    model = model.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokenizer(text)["input_ids"]]), output_attentions=True)


@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Llama", "Bart", "T5"])
@pytest.mark.core
def test_a_class_and_its_chance_are_transformers(family, with_head):
    architecture = f"{family}ForSequenceClassification"
    folder = with_head(architecture)
    found = attend(load_model(str(folder), device="cpu"), TEXT)
    output = own_output(folder, architecture)
    expected = output.logits[0].softmax(-1).tolist()
    settings = found.provenance.settings
    assert list(settings["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
    best = int(np.argmax(expected))
    assert settings[DECISION] == f"{CLASSES[best]} ({expected[best]:.0%})"
    assert settings["architecture"] == architecture
    layers = output.encoder_attentions if family in {"Bart", "T5"} else output.attentions
    np.testing.assert_allclose(found.weights, torch.cat(layers).numpy(), atol=1e-5)
    assert f"decides {CLASSES[best]}" in describe_run(found, found.main)


def test_labels_stand_on_both_axes(with_head):
    folder = with_head("BertForTokenClassification", id2label={0: "O", 1: "B-PER", 2: "B-LOC"})
    text = "the professor walked supervised students isn't red car"
    item = attend(load_model(str(folder), device="cpu"), text).main
    logits = own_output(folder, "BertForTokenClassification", text).logits[0]
    names = [("O", "B-PER", "B-LOC")[number] for number in logits.argmax(-1).tolist()]
    assert item.query_tokens == item.key_tokens
    first = 0
    for place, token in enumerate(item.query_tokens):
        first = first if token.text.startswith("##") else place
        expected = None if token.special or names[first] == "O" else names[first]
        assert token.label == expected
    assert any(token.label for token in item.query_tokens)
    assert any(token.text.startswith("##") for token in item.query_tokens)


def test_a_regression_and_a_caption(with_head):
    folder = with_head("BertForSequenceClassification", id2label={0: "LABEL_0"})
    found = attend(load_model(str(folder), device="cpu"), TEXT)
    expected = own_output(folder, "BertForSequenceClassification").logits.item()
    assert found.provenance.settings[DECISION] == f"{expected:.3g}"
    folder = with_head("BertForSequenceClassification")
    done = attnviz("self", TEXT, "--model", folder)
    assert "decides " in done.lines[0] + done.lines[1]


def test_tags_many_classes_and_words_by_hand():
    logits = torch.tensor([2.0, -2.0, 0.1])
    found = likely_tags(logits, ("a", "b", "c"))
    assert found[DECISION] == "a (88%), c (52%)"
    assert found["probabilities"]["b"] == pytest.approx(0.119203, abs=1e-6)
    assert likely_tags(-torch.ones(2), ("a", "b"))[DECISION] == "none of its tags"
    config = transformers.PvtConfig(num_labels=3)
    assert config.id2label is None
    found = task_named("PvtForImageClassification", config)
    assert found is not None
    assert found.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    found = likeliest_class(torch.arange(40.0), [str(number) for number in range(40)])
    assert found == {DECISION: "39 (63%)"}
    tokens = (
        Token("[CLS]", special=True),
        Token("New", 0, 3),
        Token("##ark", 3, 6),
        Token("é 1/2", 7, 8),
        Token("é 2/2", 7, 8),
        Token("x", 9, 10),
    )
    found = word_labels(["B", "B-LOC", "O", "B-PER", "O", "O"], tokens, "Newark é x")
    assert found == (None, "B-LOC", "B-LOC", "B-PER", "B-PER", None)
    halves = Token("é 1/2", 0, 1), Token("é 2/2", 0, 1)
    assert word_labels(["B-PER", "O"], halves, "é") == ("B-PER", "B-PER")


def test_missing_classifiers_and_choices(with_head):
    folder = with_head("BertForSequenceClassification")
    reweigh(folder, lambda name, one: None if "classifier" in name else one)
    found = attend(load_model(str(folder), device="cpu"), TEXT)
    assert DECISION not in found.provenance.settings
    assert any("lacks the weights of its classifier" in note for note in found.provenance.notes)
    folder = with_head("BertForNextSentencePrediction", id2label={0: "next", 1: "other"})
    experiment = load_model(str(folder), device="cpu", with_head=True).experiment(Query(TEXT))
    assert {experiment.spell(number) for number in range(2)} == {"next", "other"}
    assert experiment.outputs[0].name in {"next", "other"}
    folder = with_head("BertForNextSentencePrediction")
    model = load_model(str(folder), device="cpu", with_head=True)
    with pytest.raises(ModelError, match=r"has 2 outputs, and its configuration names 3 labels"):
        model.experiment(Query(TEXT))


LINES = [TEXT, "The paper", "who is the red professor", "supervised students walked", "The car"]


@pytest.mark.parametrize(
    "architecture",
    [
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "LlamaForSequenceClassification",
        "BartForSequenceClassification",
    ],
)
@pytest.mark.slow
def test_of_many_texts_each_has_its_own_decision(architecture, with_head):
    model = load_model(str(with_head(architecture)), device="cpu")
    queries = [Query(line) for line in LINES]
    for query, found in zip(queries, list(model.attend(queries)), strict=True):
        alone = attend(model, query.text)
        settings, expected = found.provenance.settings, alone.provenance.settings
        assert settings.get(DECISION) == expected.get(DECISION)
        shares = expected.get("probabilities")
        assert settings.get("probabilities") == pytest.approx(shares, abs=1e-5)
        assert found.main.query_tokens == alone.main.query_tokens
        np.testing.assert_allclose(found.weights, alone.weights, atol=1e-5)


@pytest.mark.parametrize("architecture", ["ElectraForPreTraining", "BertForMultipleChoice"])
def test_a_head_of_neither_classes_nor_tokens(architecture, with_head):
    folder = with_head(architecture)
    own = getattr(transformers, architecture).from_pretrained(folder).eval()
    for name in (str(folder), InMemoryModel(own, word_pieces())):
        model = load_model(name, device="cpu", with_head=True)
        bare = attend(load_model(str(folder), device="cpu"), TEXT)
        np.testing.assert_array_equal(attend(model, TEXT).weights, bare.weights)
        assert not model.trace_writers(Query(TEXT)).predicts("self", 1)
        with pytest.raises(ModelError, match=rf"\({architecture}\) has no head that gives classes"):
            model.experiment(Query(TEXT))
