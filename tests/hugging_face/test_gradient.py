"""Gradients and relevance against a direct autograd computation, and what is explained."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
import transformers

from attnviz.core.errors import AttentionError, ModelError, UsageError
from attnviz.core.query import Query
from attnviz.core.registry import LENSES
from attnviz.features.ablate.faithfulness import faithfulness
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.ask import ask_source, scores_of
from attnviz.features.lenses.gradient import gradient
from attnviz.models.hugging_face.capture.kernel import watch_kernels
from attnviz.models.hugging_face.eager import layer_gradients
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import gradients
from tests.hugging_face.tiny_models import headed, reweigh
from tests.invoke import attnviz
from tests.precision import exact_model, in_float64

TEXT = "The professor published the red paper"
PAIR = "The red car is fast", "La voiture rouge"
CLASSES = {0: "dull", 1: "fair", 2: "fine"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, folder_of):
    """Tiny models with heads, as folders by architecture or kind."""
    tasks = ("BertForSequenceClassification", "BertForTokenClassification", "BertForMaskedLM")
    made = {
        name: headed(tmp_path_factory.mktemp(name), name, id2label=CLASSES)
        for name in (*tasks, "LlamaForSequenceClassification")
    }
    name = "BertForQuestionAnswering"
    made[name] = headed(tmp_path_factory.mktemp(name), name)
    return lambda name: made.get(name) or folder_of(name)


@pytest.fixture(scope="module")
def explaining(folders):
    """A model loaded with its head, by architecture or kind."""
    made = {}

    def find(name):
        if name not in made:
            made[name] = load_model(str(folders(name)), device="cpu", with_head=True)
        return made[name]

    return find


def own(folder):
    """transformers' own model with its head, its attention eager."""
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    kind = getattr(transformers, name)
    return kind.from_pretrained(folder, attn_implementation="eager").eval()


def steps(score, attentions):
    """Rule 5, straight from autograd."""
    grads = torch.autograd.grad(score, attentions, retain_graph=True)
    return [
        (slope * layer).clamp(min=0)[0].mean(0).double().detach()
        for slope, layer in zip(grads, attentions, strict=True)
    ]


def rolled(found):
    relevance = torch.eye(found[0].shape[-1], dtype=torch.float64)
    for step in found:
        relevance = relevance + step @ relevance
    return relevance


def shares(row):
    return (row / row.sum()).numpy()


@pytest.mark.core
@pytest.mark.parametrize(
    ("name", "row"),
    [("BertForSequenceClassification", 0), ("llama", -1), ("LlamaForSequenceClassification", -1)],
)
def test_relevance_equals_direct_autograd(name, row, folders, explaining):
    model, found = explaining(name), own(folders(name))
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"]])
    output = found(input_ids=ids, output_attentions=True)
    logits = output.logits[0] if output.logits.ndim == 2 else output.logits[0, -1]
    relevance = rolled(steps(logits.max(), output.attentions))
    expected = (relevance - torch.eye(len(relevance)))[row]
    explained = gradients(model, TEXT)
    result = gradient(explained)
    np.testing.assert_allclose(result.weights[0, 0, 0], shares(expected), atol=1e-6)
    assert explained.probability == pytest.approx(
        float(logits.detach().softmax(-1).max()), abs=1e-6
    )


@pytest.mark.slow
def test_relevance_of_a_pair_equals_direct_autograd(folders, explaining):
    model, found = explaining("t5"), own(folders("t5"))
    source, labels = (torch.tensor([model.tokenizer(text)["input_ids"]]) for text in PAIR)
    output = found(
        input_ids=source, decoder_input_ids=found._shift_right(labels), output_attentions=True
    )
    last = labels.shape[1] - 1  # The end token is predicted, and never read.
    score = output.logits[0, last - 1, labels[0, last - 1]]
    layers = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
    encoder, decoder, cross = (steps(score, items) for items in layers)
    ii, tt = rolled(encoder), torch.eye(last + 1, dtype=torch.float64)
    ti = torch.zeros(last + 1, source.shape[1], dtype=torch.float64)

    def bar(full):
        hat = full - torch.eye(len(full))
        return (hat / hat.sum(-1, keepdim=True)).nan_to_num(0) + torch.eye(len(full))

    for step, across in zip(decoder, cross, strict=True):
        tt, ti = tt + step @ tt, ti + step @ ti
        ti = ti + bar(tt).T @ across @ bar(ii)
    result = gradient(model.gradients(Query(*PAIR, "cross")))
    assert [item.stream for item in result.maps] == ["cross", "decoder"]
    # Two kernels round differently, and the tokenizer's training draws another model each time.
    np.testing.assert_allclose(result.weights[0, 0, 0], shares(ti[last - 1]), atol=1e-5)
    own_row = (tt - torch.eye(last + 1))[last - 1, :last]
    np.testing.assert_allclose(result.maps[1].weights[0, 0, 0], shares(own_row), atol=1e-5)


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "llama", "gemma2"])
def test_gradients_are_output_slopes_times_values(name, folders, explaining):
    model = exact_model(explaining(name))
    found = model.model
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"]])
    calls = []
    with in_float64(), watch_kernels(calls.append):
        logits = found(input_ids=ids).logits
    score = (logits[0] if logits.ndim == 2 else logits[0, -1]).max()
    slopes = torch.autograd.grad(score, [call.output for call in calls])
    expected = []
    for slope, call in zip(slopes, calls, strict=True):
        value = call.value.repeat_interleave(slope.shape[2] // call.value.shape[1], dim=1)
        expected.append(slope.transpose(1, 2) @ value.mT)
    with in_float64():
        (found,) = gradients(model, TEXT).gradients
    np.testing.assert_allclose(found, torch.cat(expected).detach().numpy(), atol=1e-6)


def test_classes_and_labels_are_explained(explaining):
    model = explaining("BertForSequenceClassification")
    predicted = gradients(model, TEXT)
    named = gradients(model, TEXT, "FINE")
    assert named.output == gradients(model, TEXT, "2").output == "fine"
    assert predicted.positions == named.positions == (0,)
    assert predicted.probability >= named.probability
    with pytest.raises(UsageError, match=r"'good' is no class .* 0 dull, 1 fair, 2 fine"):
        gradients(model, TEXT, "good")
    explained = gradients(explaining("LlamaForSequenceClassification"), TEXT)
    assert explained.positions == (len(explained.attention.tokens) - 1,)
    model = explaining("BertForTokenClassification")
    explained = gradients(model, TEXT, "professor")
    assert explained.positions == (2,)
    assert explained.output.endswith(" (professor, token 2)")
    assert " (paper, token " in gradients(model, TEXT).output
    assert gradients(model, TEXT, "fine").output.startswith("fine (")
    with pytest.raises(UsageError, match=r"neither a token of the text .* nor a label: dull, fair"):
        gradients(model, TEXT, "student")


def test_a_masked_word_is_explained(explaining):
    model = explaining("BertForMaskedLM")
    masked = "The professor published the [MASK] paper"
    explained = gradients(model, masked)
    assert explained.positions == (5,)
    assert gradients(model, masked, "car").output == "car (token 5)"
    assert gradients(model, masked, "car").positions == (5,)
    with pytest.raises(UsageError, match=r"'professor\[2\]' or --target 'mask:professor'"):
        gradients(model, masked, "professor")
    assert gradients(model, masked, "professor[2]").positions == (2,)
    in_place = gradients(model, masked, "mask:professor")
    assert (in_place.output, in_place.positions) == ("professor (token 5)", (5,))
    with pytest.raises(UsageError, match="nor one piece of the model's vocabulary"):
        gradients(model, masked, "walrus")


def test_what_a_decoder_and_a_pair_explain(explaining):
    model = explaining("gpt2")
    explained = gradients(model, TEXT)
    count = len(explained.attention.tokens)
    assert explained.positions == (count - 1,)
    assert gradients(model, TEXT, "2").positions == (1,)
    assert gradients(model, TEXT, "2").output == f"{explained.attention.tokens[2]} (token 2)"
    assert gradients(model, TEXT, "car").output == "car (next token)"
    assert gradients(model, TEXT, "car").positions == (count - 1,)
    with pytest.raises(UsageError, match=f"by its text, or 1 to {count}"):
        gradients(model, TEXT, "0")
    model = explaining("bart")
    explained = model.gradients(Query(*PAIR, "cross"))
    tokens = explained.attention.tokens
    assert explained.output == f"{tokens[-1]} (token {len(tokens) - 1})"
    assert explained.positions == (len(tokens) - 2,)
    assert model.gradients(Query(*PAIR, "cross"), "3").positions == (2,)


def test_heads_without_weights_and_copies_are_refused(explaining, copy_of, folders, tmp_path):
    for name in ("bert", "BertForQuestionAnswering"):
        with pytest.raises(ModelError, match="no head that gives classes or tokens"):
            gradients(explaining(name), TEXT)
    folder = shutil.copytree(folders("BertForSequenceClassification"), tmp_path / "cut")
    reweigh(folder, lambda name, one: None if "classifier" in name else one)
    model = load_model(str(folder), device="cpu", with_head=True)
    with pytest.raises(ModelError, match="lacks the weights of its head"):
        gradients(model, TEXT)
    with pytest.raises(ModelError, match="use 'attnviz cross' for --lens gradient"):
        gradients(explaining("t5"), TEXT)
    score, copied = torch.ones(1, requires_grad=True), torch.ones(1, 1, 2, 2, requires_grad=True)
    for weights in (copied, copied.detach()):
        with pytest.raises(AttentionError, match="copies of its weights"):
            layer_gradients(score.sum(), [weights], "llama")


def test_the_command_explains_a_class(folders):
    folder = folders("BertForSequenceClassification")
    done = attnviz(
        "self", TEXT, "--model", folder, "--lens", "gradient", "--target", "fine", "-f", "json"
    )
    assert done.status == 0
    (item,) = done.json()["maps"]
    assert item["query_tokens"][0]["text"].startswith("→ fine")
    assert done.json()["provenance"]["settings"]["output"] == "fine"
    wrong = attnviz("self", TEXT, "--model", folder, "--lens", "gradient", "--target", "good")
    assert (wrong.status, "is no class" in wrong.mistake) == (2, True)


@pytest.mark.slow
def test_lenses_that_do_not_apply_are_left_out(folders, folder_of):
    done = attnviz("self", TEXT, "--model", folders("bert"), "--lens", "all", "-f", "json")
    streams = [item["stream"] for item in done.json()["maps"]]
    assert streams == ["raw", "rollout", "flow", "norm"]
    assert "lens gradient is left out: '" in done.err
    insisted = attnviz(
        "self", TEXT, "--model", folders("bert"), "--lens", "all", "--target", "x", "-q"
    )
    assert (insisted.status, "no head" in insisted.mistake) == (1, True)
    done = attnviz("ablate", "--lenses", ONE.text, "--model", folder_of("bert"))
    assert (done.status, "has no head" in done.mistake) == (1, True)
    found = scores(folder_of("bart"), Query("the " * 40, "the " * 40, "cross"))
    (left_out,) = found.left_out.items()
    assert left_out[0] == "flow"
    assert "maximum-flow problems of" in left_out[1]


@pytest.mark.parametrize(
    ("lens", "part"),
    [("gradient", ("--rows", "0-2")), ("norm", ("--window", "0-2")), ("norm", ("--max-size", "4"))],
)
def test_a_part_of_the_attention_is_refused(lens, part, folder_of):
    done = attnviz("self", TEXT, "--model", folder_of("gpt2"), "--lens", lens, *part)
    assert (done.status, "need every weight" in done.mistake) == (2, True)


def test_own_writing_is_read_as_by_maps(folder_of):
    asked = ("self", TEXT, "--model", folder_of("gpt2"), "--generate", "3", "-f", "json", "-q")
    raw, norms = (attnviz(*asked, "--lens", lens).json() for lens in ("raw", "norm"))
    assert norms["maps"][0]["key_tokens"] == raw["maps"][0]["key_tokens"]
    assert norms["text"] == raw["text"]
    prompt = norms["provenance"]["settings"]["prompt tokens"]
    assert prompt == raw["provenance"]["settings"]["prompt tokens"]


ONE = Query("The professor published the red paper")
TWO = Query("The red car is fast", "La voiture rouge", "cross")


def scores(folder, query):
    source = load_model(str(folder), device="cpu", with_head=True)
    explained = explained_by(open_experiment(source, query))
    return scores_of(explained, partial(ask_source, source, query))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "query"), [("gpt2", ONE), ("bart", TWO)])
def test_every_lens_is_judged(folder_of, kind, query):
    found = scores(folder_of(kind), query)
    assert ([*found.scores], found.left_out) == (["raw", *LENSES], {})
    judged = faithfulness(found)
    assert all(np.isfinite(measures).all() for measures in judged.measures.values())
    assert np.count_nonzero([told["knock_out"] for told in judged.tokens]) == len(found.tokens)


def test_a_class_read_last_explains_its_row(tmp_path):
    found = scores(headed(tmp_path, "LlamaForSequenceClassification", num_labels=3), ONE)
    item = found.inputs.attention.main
    assert found.inputs.positions == (len(item.key_tokens) - 1,)
    raw = item.weights[:, :, -1, :-1].mean(axis=(0, 1))
    np.testing.assert_allclose(found.scores["raw"], raw, atol=1e-7)
