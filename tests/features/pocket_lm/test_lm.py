"""The causal pocket model: transformers' numbers, its cache, what it writes, and what heads do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.core.effects import HeadAt, Intervention, LinkAt, TokenAt, log_probabilities
from attnviz.core.errors import InputError, UsageError
from attnviz.core.query import Query
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.pocket_lm.language_model import FOLDER, CausalPocket, load_pocket_lm
from attnviz.models.light.network import Cache, run_layers
from attnviz.models.pocket.text import END
from tests.invoke import attnviz

TEXT = "The cat sat on the mat. The cat"
ODD = "I don't know what you're talking about! Éric’s café"


@pytest.fixture(scope="module")
def model() -> CausalPocket:
    return load_pocket_lm()


@pytest.fixture(scope="module")
def theirs() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        FOLDER, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("text", [TEXT, ODD])
def test_its_numbers_are_those_of_transformers(model, theirs, text):
    import torch
    from transformers import AutoTokenizer

    ids, attention = model.read(Query(text))
    assert AutoTokenizer.from_pretrained(FOLDER)(text)["input_ids"] == ids
    assert type(theirs).__name__ == "LlamaForCausalLM"
    with torch.inference_mode():
        output = theirs(torch.tensor([ids]), output_attentions=True)
    states, _ = model.forward(model.weights, model.inputs(ids))
    scores = model.scores(model.weights, states)
    np.testing.assert_allclose(scores, output.logits[0], atol=1e-4)
    for own, weights in zip(attention.main.weights, output.attentions, strict=True):
        np.testing.assert_allclose(own, weights[0], atol=1e-5)


@pytest.mark.models
def test_it_writes_what_transformers_writes(model, theirs):
    import torch

    ids, _ = model.read(Query("I would like to"))
    written = theirs.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    new = written[len(ids) :]
    assert model.write(ids, 12) == new[: new.index(END) if END in new else None]


def test_piece_by_piece_with_a_cache_it_says_the_same(model):
    ids, _ = model.read(Query(TEXT))
    (embedded,) = model.inputs(ids)
    whole, shares, _ = run_layers(model.weights, model.sizes, embedded)
    cache, rows = Cache(), []
    for first, last in ((0, 4), (4, 5), (5, len(ids))):
        states, some, _ = run_layers(model.weights, model.sizes, embedded[first:last], cache=cache)
        rows.append(states)
        for layer, share in zip(some, shares, strict=True):
            np.testing.assert_allclose(layer, share[:, first:last, :last], atol=1e-5)
    np.testing.assert_allclose(np.concatenate(rows), whole, atol=1e-4)


def test_what_it_writes_and_what_it_refuses(model):
    done = attnviz("self", "I would like to", "--model", "pocket-lm", "--generate", 6, "-f", "json")
    settings = done.json()["provenance"]["settings"]
    tokens = done.json()["maps"][0]["query_tokens"]
    assert settings["prompt tokens"] == 5
    assert len(tokens) == 5 + settings["output tokens"]
    assert "generated greedily" in done.err
    with pytest.raises(InputError, match="--generate can be"):
        load_pocket_lm(generate=600).read(Query(TEXT))
    with pytest.raises(UsageError, match="one text"):
        model.read(Query(TEXT, "Le chat", "cross"))
    with pytest.raises(InputError, match="up to 511"):
        model.read(Query("word " * 600))
    assert model.read(Query("The dog is asleep."))[1].provenance.notes == ()
    (note,) = model.read(Query("Le chat dort sur le tapis."))[1].provenance.notes
    assert "lies outside" in note
    assert "nats a piece" in note
    assert "chat" in attnviz("self", TEXT, "--model", "pocket-lm", "--chat").mistake


def test_parts_that_are_off_change_what_they_carried(model):
    ids, attention = model.read(Query(TEXT))
    experiment = model.experiment(Query(TEXT), "cat[9]")
    (output,) = experiment.outputs
    last = len(ids) - 1
    copied = model.experiment(Query(TEXT), str(last))
    changes = [
        Intervention(),
        Intervention(heads=(HeadAt("causal", "2", 3),)),
        Intervention(heads=(HeadAt("causal", "1", 1),)),
        Intervention(links=(LinkAt("causal", last - 1, 2),)),
        Intervention(tokens=(TokenAt("text", 2),)),
    ]
    found = log_probabilities(copied, changes)[:, 0]
    assert output.name == copied.outputs[0].name == "cat"
    # "The" came before, and "cat" after it: the induction head and what it reads carry that.
    assert (found[0] - found[1:] > 0.5).all()
    states, _ = model.forward(model.weights, model.inputs(ids))
    scores = model.scores(model.weights, states[last - 1]).astype(np.float64)
    plain = scores[ids[last]] - np.log(np.exp(scores).sum())
    assert found[0] == pytest.approx(plain, abs=1e-5)
    assert attention.main.weights[2, 3, last - 1, 2] > 0.3
    assert copied.write(Intervention())


def test_gradients_are_those_of_small_changes(model):
    from attnviz.core.attention_call import AttentionCall

    experiment = load_pocket_lm(dtype="float64").experiment(Query("The cat sat."), "all")
    (slopes,) = experiment.gradients()
    weights, numbers = experiment.attention.main.weights, [o.number for o in experiment.outputs]
    step, where = 1e-4, (1, 2, 3, 1)

    def total(by: float) -> float:
        def nudged(seen: AttentionCall) -> Any:
            if seen.path != "model.layers.1.self_attn":
                return seen.output
            output = seen.output.copy()
            size = model.sizes.size // model.sizes.heads
            part = slice(where[1] * size, (where[1] + 1) * size)
            output[where[2], part] += by * seen.value[where[1], where[3]]
            return output

        own = experiment.model
        states, _ = own.forward(own.weights, own.inputs(experiment.feed), nudged)
        scores = own.scores(own.weights, states[[o.row for o in experiment.outputs]])
        chances = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        return float(chances[np.arange(len(numbers)), numbers].sum())

    assert slopes.shape == weights.shape
    slope = (total(step) - total(-step)) / (2 * step)
    assert slopes[where] == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_every_text_explains_itself_by_all_lenses():
    done = attnviz("self", TEXT, "--model", "pocket-lm", "--lens", "all", "-f", "json", "-q")
    assert {item["stream"] for item in done.json()["maps"]} >= {"raw", "norm", "effect", "gradient"}
    assert open_experiment(load_pocket_lm(), Query(TEXT)).outputs[0].name


def test_kept_queries_and_the_mask_of_a_head(model):
    _, attention = load_pocket_lm(keep_qk=True).read(Query(TEXT))
    kept = attention.projections["causal"]
    scores = kept.scale * kept.query @ kept.key.swapaxes(-1, -2)
    scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(shares, attention.main.weights, atol=1e-5)
    # It is shown as what may be seen, and multiplied with nothing.
    parts = model.head_arithmetic(Query(TEXT), HeadAt("causal", "1", 0)).parts
    (mask,) = (part.value for part in parts if part.name == "mask")
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.tril(np.ones(mask.shape, dtype=bool)))


@pytest.mark.models
def test_heads_of_a_layer_sum_to_what_transformers_adds(model, theirs):
    import torch

    added = list[Any]()
    hook = theirs.model.layers[1].self_attn.register_forward_hook(
        lambda _module, _inputs, output: added.append(output[0][0])
    )
    with torch.no_grad():
        theirs(torch.tensor([model.read(Query(TEXT))[0]]))
    hook.remove()
    heads = [model.head_arithmetic(Query(TEXT), HeadAt("causal", "1", head)) for head in range(5)]
    parts = [{part.name: part.value for part in head.parts} for head in heads]
    np.testing.assert_allclose(sum(one["added"] for one in parts), added[0], atol=1e-4)
    for one, head in zip(parts, heads, strict=True):
        np.testing.assert_allclose(one["weights"], head.references["weights"], atol=1e-6)
        np.testing.assert_allclose(
            one["normalised"] @ one["w_query"], one["plain_query"], atol=1e-5
        )


@pytest.mark.slow
def test_the_cards_figures_are_measured_again(model):
    from training.causal import INDUCTION, PREVIOUS
    from training.causal_figures import draw_pieces, measure_repetition

    origin = json.loads((FOLDER / "origin.json").read_text(encoding="utf-8"))
    figures, card = origin["figures"], attnviz("models", "pocket-lm").text
    drawn = np.loadtxt(Path(__file__).parent / "pieces.txt", dtype=np.int64)
    usual = measure_repetition(model, drawn)
    every = {
        "as in the text": usual,
        "any piece as often": measure_repetition(model, draw_pieces(model)),
    }
    for name, found in every.items():
        for part, value in figures["repeated"][name].items():
            assert found[part] == pytest.approx(value, abs=2e-3), (name, part)
        assert f"{figures['repeated'][name]['again']:.2f} the second" in card
    heads = {(one["layer"], one["head"]): one for one in figures["heads"]}
    for place, one in heads.items():
        assert usual["induction"][place] == pytest.approx(one["induction"], abs=2e-3)
        assert f"layer {place[0]} head {place[1]}" in card
    for place in (INDUCTION, PREVIOUS):
        cost = measure_repetition(model, drawn, place)["again"] - usual["again"]
        assert heads[place]["cost"] == pytest.approx(cost, abs=1e-2)
    assert usual["again"] <= 0.5
    assert usual["induction"][INDUCTION] >= 0.85
    assert heads[INDUCTION]["cost"] >= 3
    assert heads[PREVIOUS]["cost"] >= 4
    assert figures["unseen"]["nats"] <= 3.04
