"""Untrained layers: repeatable, seeded, and the formula that their name says."""

from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Origin
from attnviz.core.registry import MECHANISMS
from attnviz.mechanisms.relative import sinusoidal_positions
from attnviz.models.own import OwnCoLayer, OwnLayer, SeededEmbedding, word_tokens
from tests.asked import over_each_other, over_itself, over_source

SOURCE, TARGET = "the red car is fast", "la voiture est rouge"
SELF = [name for name, entry in MECHANISMS.items() if "self" in entry.commands]
VARIANTS = [name for name, entry in MECHANISMS.items() if entry.mutual]


def origin_of(name: str, options: dict[str, Any]) -> Origin:
    if not MECHANISMS[name].many_heads:
        options.pop("heads", None)
    numbers = [f"{key}={options.pop(key)}" for key in ("heads", "size", "seed") if key in options]
    return Origin(mechanism=":".join([name, *([",".join(numbers)] if numbers else [])]), **options)


def own(name: str, **options: Any) -> OwnLayer:
    return OwnLayer(origin_of(name, options), "self")


def co(name: str, **options: Any) -> OwnCoLayer:
    return OwnCoLayer(origin_of(name, options))


def weights_of(attention: Attention) -> np.ndarray:
    return np.concatenate([item.weights.ravel() for item in attention.maps])


def test_vectors_of_words_are_pinned():
    embedding = SeededEmbedding(3, 8)
    tokens = word_tokens("the cat the")
    drawn = embedding.embed(tokens) - sinusoidal_positions(3, 8)
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.allclose(drawn[0], drawn[1])
    (alone,) = embedding.embed(word_tokens("the")) - sinusoidal_positions(1, 8)
    assert np.allclose(alone, drawn[0])
    # A change here changes every untrained picture that anybody has made.
    first = SeededEmbedding(0, 4).draw("cat", 4)
    assert first == pytest.approx(PINNED, abs=1e-12)
    assert SeededEmbedding(1, 4).draw("cat", 4) != pytest.approx(first)
    assert SeededEmbedding(0, 4).draw("act", 4) != pytest.approx(first)


PINNED = [0.12077304608419365, -0.03285986335100705, 1.3041577431135576, -0.4979528790143269]


@pytest.mark.parametrize("name", SELF)
def test_a_run_repeats_and_seeds_differ(name):
    # Without scaling, large vectors look at nothing but themselves, whatever the seed: take small.
    first, again = (over_itself(own(name, size=4, heads=2), SOURCE).weights for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, over_itself(own(name, size=4, heads=2, seed=1), SOURCE).weights)


@pytest.mark.parametrize("name", VARIANTS)
def test_co_attention_repeats_and_names_its_texts(name):
    first, again = (weights_of(over_each_other(co(name), SOURCE, TARGET)) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, weights_of(over_each_other(co(name, seed=1), SOURCE, TARGET)))
    expected = weights_of(over_each_other(co(name, size=16), SOURCE, TARGET))
    found = weights_of(over_each_other(co(name, size=16, dtype="bfloat16"), SOURCE, TARGET))
    assert np.allclose(found, expected, atol=0.06)

    sides = {"source": 5, "target": 4, "summary": 1}
    attention = over_each_other(co(name), SOURCE, TARGET)
    assert (attention.source, attention.target, attention.text) == (SOURCE, TARGET, None)
    for item in attention.maps:
        assert len(item.query_tokens) == sides[item.query_side]
        assert len(item.key_tokens) == sides[item.key_side]
        assert item.values == ("signed" if item.stream == "affinity" else "share")


@pytest.mark.parametrize("name", SELF)
def test_a_causal_prefix_is_the_prefix(name):
    whole = over_itself(own(name, causal=True), SOURCE).weights
    prefix = over_itself(own(name, causal=True), "the red car").weights
    assert not np.triu(whole, 1).any()
    assert np.allclose(whole[..., :3, :3], prefix, atol=1e-6)


def test_linear_and_halves():
    attention = over_itself(own("linear", causal=True), SOURCE)
    assert attention.provenance.model == "causal-linear"
    assert np.array_equal(attention.weights, over_itself(own("causal-linear"), SOURCE).weights)
    assert (
        attention.main.stream == over_itself(own("causal-linear"), SOURCE).main.stream == "causal"
    )
    layer = OwnLayer(Origin(mechanism="naive:size=70000", dtype="float16"), "self")
    with pytest.raises(InputError, match=r"layer 0 head 0 .*NaN or infinite: .*float16"):
        over_itself(layer, "a b")
    for attention in (
        over_itself(own("naive"), SOURCE),
        over_each_other(co("co-parallel"), SOURCE, TARGET),
    ):
        assert attention.provenance.trained is False
        assert attention.provenance.notes[0].startswith("untrained: ")
    with pytest.raises(InputError, match="needs a TARGET"):
        over_source(own("scaled"), SOURCE, None)
    with pytest.raises(InputError, match="needs two texts"):
        over_each_other(co("co-parallel"), SOURCE, None)
    with pytest.raises(UsageError, match="needs two texts"):
        over_itself(co("co-parallel"), SOURCE)


@pytest.mark.parametrize("name", SELF)
@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-5), ("bfloat16", 0.06)])
def test_other_precisions_agree_with_float32(name, dtype, close):
    expected = over_itself(own(name, size=16), SOURCE)
    found = over_itself(own(name, size=16, dtype=dtype), SOURCE)
    assert found.weights.dtype == np.float32
    assert np.allclose(found.weights, expected.weights, atol=close)
    assert found.provenance.dtype == dtype


def test_multi_head_is_scaled_attention_of_slices():
    size, heads = 12, 3
    embedding = SeededEmbedding(0, size)
    inputs = embedding.embed(word_tokens(SOURCE))
    query, key = (inputs @ embedding.projection(name) for name in ("query", "key"))
    found = over_itself(own("multi-head", size=size, heads=heads), SOURCE).weights[0]
    for head in range(heads):
        part = slice(head * 4, head * 4 + 4)
        raised = np.exp(query[:, part] @ key[:, part].T / 2)
        assert np.allclose(found[head], raised / raised.sum(-1, keepdims=True), atol=1e-5)
    assert over_itself(own("scaled", size=10), SOURCE).weights.shape == (1, 1, 5, 5)
    assert over_itself(own("scaled"), SOURCE).provenance.settings["heads"] == 1


@pytest.mark.parametrize("size", [1, 2, 7])
def test_any_size_will_do_that_the_heads_share_out(size):
    weights = over_itself(own("multi-head", size=size, heads=1), SOURCE).weights
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["multi-head", "co-two-stream"])
def test_sizes_that_heads_do_not_share_are_refused(name):
    with pytest.raises(UsageError, match="size=10 cannot be split into heads=4"):
        (own if name == "multi-head" else co)(name, size=10)


def test_devices_signs_and_shared_values():
    import torch

    from tests.invoke import attnviz as shell

    if not torch.backends.mps.is_available():
        with pytest.raises(UsageError, match="device 'mps' is not available on this machine"):
            own("scaled", device="mps")
    with pytest.raises(UsageError, match="Did you mean 'cuda'"):
        attnviz.attend(SOURCE, mechanism="scaled", device="cud")

    (item,) = shell("self", SOURCE, "--mechanism", "retention", "-f", "json", "-q").json()["maps"]
    assert (item["values"], item["unit"]) == ("signed", "implied weight, may be negative")
    for lens in ("rollout", "flow"):
        done = shell("self", SOURCE, "--mechanism", "retention", "--lens", lens)
        assert done.status == 2
        assert "these weights can be negative: use --lens raw" in done.err
    done = shell("self", SOURCE, "--mechanism", "multi-query", "--lens", "norm")
    assert (done.status, "mechanism 'multi-query' does more" in done.err) == (2, True)


@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="needs a GPU")
def test_a_gpu_gives_the_same():
    expected = over_itself(own("multi-head"), SOURCE).weights
    assert np.allclose(over_itself(own("multi-head", device="cuda"), SOURCE).weights, expected)
