"""Many texts at once against the same texts one by one: the same numbers, notes and errors."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from attnviz.core.errors import InputError, ModelError
from attnviz.core.notices import notices_to
from attnviz.core.query import Query
from attnviz.models.hugging_face import batching as company
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.inputs.encoding import encode
from attnviz.models.hugging_face.load.devices import NotEnoughMemoryError
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.tiny_models import but_slow
from tests.precision import check_as_near, exact_model, in_float64, weights_of

LINES = [
    "The professor who supervised the student published the paper.",
    "A paper.",
    "The student published the paper.",
    "the red car is the red car",
    "The professor who published the paper supervised the student.",
    "who is the professor",
]
TARGETS = [
    "Le café.",
    "La voiture rouge est rapide.",
    "Un professeur.",
    "Une voiture.",
    "Oui.",
    "Qui",
]
SELF = ["bert", "roberta", "gpt2", "gemma2", "t5", "byt5"]
CROSS = ["t5", "byt5", "marian"]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """What one test finds out about a model must not serve the next."""
    monkeypatch.setattr(company, "_COMPATIBILITIES", {})


def alone(*lines):
    return [Query(line) for line in lines]


def pairs():
    return [Query(*pair, "cross") for pair in zip(LINES, TARGETS, strict=True)]


def one_by_one(model, texts):
    return [next(model.attend([text])) for text in texts]


def described(attention):
    """Its provenance but for the kernel, which is another where short texts are read together."""
    provenance = attention.provenance
    return replace(provenance, settings={**provenance.settings, "attention": ""})


def check(model, texts, found):
    """Beside others a text has what it has alone, but for what float32 costs."""
    found, expected = list(found), one_by_one(model, texts)
    in_double = exact_model(model)
    with in_float64():
        truth = one_by_one(in_double, texts)
    check_as_near(weights_of(found), weights_of(expected), weights_of(truth))
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.source, one.target) == (other.text, other.source, other.target)
        assert described(one) == described(other)
        for own, its in zip(one.maps, other.maps, strict=True):
            assert (own.stream, own.layers, own.heads) == (its.stream, its.layers, its.heads)
            assert (own.query_tokens, own.key_tokens) == (its.query_tokens, its.key_tokens)
            assert (own.query_side, own.key_side) == (its.query_side, its.key_side)


def failing(bad, error):
    """A pass over many texts, which fails where `bad` says so of how many they are."""
    run = company.capture_many

    def capture(part, inputs, sides, calls=None):
        if bad(len(sides)):
            raise error
        return run(part, inputs, sides, calls)

    return capture


@pytest.fixture
def passes(monkeypatch):
    """How many texts each pass reads."""
    sizes = []
    run = company.capture_many

    def counted(part, inputs, sides, calls=None):
        sizes.append(len(sides))
        return run(part, inputs, sides, calls)

    monkeypatch.setattr(company, "capture_many", counted)
    return sizes


@pytest.mark.core
@pytest.mark.parametrize("kind", but_slow(SELF))
def test_texts_over_themselves(kind, loaded, passes):
    model = loaded(kind)
    texts = alone(*LINES)
    check(model, texts, model.attend(texts))
    assert passes == [6, 1]


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({}, 3),  # up to the last of three layers
        ({"task": "single_label_classification"}, None),  # the classes come behind it
        ({"placed": True}, None),  # hooks of the last module move what they get
    ],
)
def test_a_pass_ends_with_the_last_attention(change, read, loaded):
    model = replace(loaded("bert"), task=change.get("task"))
    if "placed" in change:
        model = replace(model, model=deepcopy(model.model))
        model.model.hf_device_map = {"": "cpu"}
    items = {n: encode(model, text) for n, text in enumerate(alone(*LINES[:2]))}
    runner = company.MapRunner(model, items, None)
    (mode,) = {runner._mode_of([*items.values()])}
    first, _ = runner.run([*items.values()], mode)
    assert runner.compare(items[0], first, mode) < 1e-4
    assert runner.compatibility.calls[mode] == read


@pytest.mark.parametrize("kind", but_slow(CROSS))
@pytest.mark.slow
def test_pairs_with_given_targets(kind, loaded, passes):
    model = loaded(kind)
    found = list(model.attend(pairs()))
    check(model, pairs(), found)
    assert passes[:2] == [6, 1]  # more where the processor rounds so that it has to be measured


@pytest.mark.slow
def test_batch_size_and_room_are_heeded(loaded, passes, monkeypatch):
    model = loaded("bert")
    texts = alone(*LINES)
    found = list(model.attend(texts, batch_size=3))
    check(model, texts, found)
    assert passes == [3, 1, 3]
    texts = alone(*LINES * 4)
    monkeypatch.setattr(company, "memory_budget", lambda: 70_000)
    check(model, texts, model.attend(texts))
    assert max(passes) < 20


def test_a_text_that_fails_harms_no_other(loaded):
    model = loaded("bert")
    texts = alone(*LINES[:2], "paper " * 50, *LINES[2:], "\ud800")
    found = list(model.attend(texts))
    assert [type(item) for item in (found[2], found[-1])] == [InputError, InputError]
    assert "at most 32" in str(found[2])
    good = [*texts[:2], *texts[3:-1]]
    check(model, good, [*found[:2], *found[3:-1]])


def test_few_texts_and_second_windows(loaded, passes):
    list(loaded("bert").attend(alone(*LINES[:3])))
    assert passes == []
    model = loaded("bert")
    for _ in range(2):
        list(model.attend(alone(*LINES)))
    assert passes == [6, 1, 6]


@pytest.mark.slow
def test_parts_and_blocks_are_read_one_by_one(loaded, passes):
    for extent in (Region(max_size=2), Region(window=(0, 2)), Region(rows=(1, 2))):
        model = replace(loaded("bert"), region=extent)
        texts = alone(*LINES)
        check(model, texts, model.attend(texts))
    assert passes == []


def test_attention_by_hand_of_each_text(loaded, monkeypatch, passes):
    model = loaded("bert")
    monkeypatch.setattr(
        "attnviz.models.hugging_face.capture.passes.read_calls", lambda *_, **_more: []
    )
    texts = alone(*LINES)
    found = list(model.attend(texts))
    check(model, texts, found)
    assert "second, eager pass" in found[0].provenance.notes[-1]
    assert passes == [6, 1]


@pytest.mark.slow
def test_where_padding_leaks_lengths_are_equal(loaded, monkeypatch, passes):
    model = loaded("bert")
    monkeypatch.setattr(company, "pad_inputs", leaky(company.pad_inputs))
    texts = alone(*LINES, *LINES)
    said = []
    with notices_to(said.append):
        found = list(model.attend(texts))
    check(model, texts, found)
    assert passes[:2] == [12, 1]
    assert len(said) == 1
    assert "only texts of equal length are read together" in said[0]


def leaky(padded):
    """Padding that nothing hides."""

    def leaking(*given):
        inputs = padded(*given)
        return {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}

    return leaking


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.slow
def test_where_memory_runs_out_fewer_come_together(most, loaded, monkeypatch):
    model = loaded("bert")
    texts = alone(*LINES * 3)
    small = failing(lambda texts: texts > most, NotEnoughMemoryError("the memory ran out"))
    monkeypatch.setattr(company, "capture_many", small)
    said = []
    with notices_to(said.append):
        check(model, texts, model.attend(texts))
    assert all("the memory ran out with" in note for note in said)
    assert said


def test_a_model_that_fails_fails_in_its_turn(loaded, monkeypatch):
    model = loaded("bert")
    monkeypatch.setattr(model.model, "forward", lambda *_, **__: 1 / 0)
    broken = Mock(side_effect=RuntimeError("broken"))
    monkeypatch.setattr("attnviz.models.hugging_face.capture.passes.read_calls", broken)
    found = model.attend(alone(*LINES))
    with pytest.raises(ModelError, match="cannot run on this text"):
        next(found)


def test_a_proven_batch_that_fails(loaded, monkeypatch):
    model = loaded("bert")
    texts = alone(*LINES)
    list(model.attend(texts))
    left = [True]  # it fails the first time, as no text by itself makes it
    once = failing(lambda _: left and left.pop(), ModelError("broken"))
    monkeypatch.setattr(company, "capture_many", once)
    check(model, texts, model.attend(texts, batch_size=2))


def test_layers_without_attention_text_by_text(loaded):
    said = []
    with notices_to(said.append):
        together = list(loaded("mamba").attend(alone(*LINES)))
    by_itself = [one for line in LINES for one in loaded("mamba").attend(alone(line))]
    assert said == []
    assert together == by_itself


@pytest.mark.slow
def test_one_text_at_a_time(loaded, monkeypatch, passes):
    model = loaded("bert")
    alone_only = failing(lambda texts: texts > 1, ModelError("no padding token"))
    monkeypatch.setattr(company, "capture_many", alone_only)
    texts, said = alone(*LINES, *LINES), []
    with notices_to(said.append):
        check(model, texts, model.attend(texts))
    assert said[0].startswith("only texts of equal length are read together")
    assert said[1].startswith("texts are read one by one")
    assert all(note.endswith("no padding token") for note in said)
    assert len(said) == 2


@pytest.fixture
def reader(loaded):
    """Who reads a model's texts together, and one of the texts."""

    def find(sharper=1.0):
        model = replace(loaded("bert"), model=deepcopy(loaded("bert").model))
        with torch.no_grad():
            for layer in model.model.encoder.layer:
                layer.attention.self.query.weight.mul_(sharper)
        items = [encode(model, Query(line)) for line in LINES]
        return company.MapRunner(model, dict(enumerate(items)), None), items[0]

    return find


def test_padding_and_rounding(reader):
    plain, sharp = (model.tolerance_for(text, 5e-5) for model, text in map(reader, (1.0, 30.0)))
    assert plain < 5e-5 < sharp
    for off, sharper in ((2e-4, 1.0), (0.01, 30.0)):
        model, text = reader(sharper)
        assert model.tolerance_for(text, off) < off
    model, text = reader()
    before = model.read_alone(text)
    with company.perturb_embeddings(model.source.model):
        assert model.distance(before, model.read_alone(text)) > 0
    assert model.distance(before, model.read_alone(text)) == 0


@pytest.mark.parametrize(("named", "expected"), [((99, 3), 3), ((2, 3), 2), ((None, -1), 0)])
def test_the_padding_token_is_one_that_the_model_knows(named, expected):
    config = SimpleNamespace(pad_token_id=named[0])
    config.get_text_config = lambda: config
    loaded = SimpleNamespace(
        vocabulary=10,
        model=SimpleNamespace(config=config),
        tokenizer=SimpleNamespace(pad_token_id=named[1]),
    )
    assert company._padding_id(loaded) == expected


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_values_and_gradients_of_texts_together(kind, loaded):
    model = loaded(kind)
    found = list(model.many_values(alone(*LINES), None))
    for one, query in zip(found, alone(*LINES), strict=True):
        other = model.values(query)
        for own, its in zip(one.products, other.products, strict=True):
            np.testing.assert_allclose(own, its, atol=1e-5 * np.abs(its).max())


def test_gradients_of_texts_together(folder_of):
    model = load_model(str(folder_of("gpt2")), device="cpu", with_head=True)
    found = list(model.many_gradients(alone(*LINES), None, None))
    for one, query in zip(found, alone(*LINES), strict=True):
        other = model.gradients(query)
        assert (one.output, one.positions) == (other.output, other.positions)
        for own, its in zip(one.gradients, other.gradients, strict=True):
            np.testing.assert_allclose(own, its, atol=1e-5 * np.abs(its).max())
