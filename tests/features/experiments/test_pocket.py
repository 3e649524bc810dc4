"""The pocket model with heads, links and tokens switched off, against passes changed elsewhere."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.effects import (
    HeadAt,
    Intervention,
    LinkAt,
    TokenAt,
    effects_of,
    log_probabilities,
)
from attnviz.core.errors import UsageError
from attnviz.core.query import Query
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.effect import effect, effects
from attnviz.features.lenses.links import measure_links
from attnviz.features.measures.intervals import rank_correlation
from attnviz.mechanisms import dot_product
from attnviz.mechanisms.arrays import Array
from attnviz.models.light import network as light
from attnviz.models.pocket import model as network
from attnviz.models.pocket.translator import Pocket, load_pocket

PAIR = Query("The red car is fast.", "La voiture rouge est rapide.", "cross")
CALLS = {"encoder": 0, "decoder": 4, "cross": 5}
"""The first attention of a pass of each stream; the decoder's two alternate."""
EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def pocket() -> Pocket:
    return load_pocket(dtype="float64")


def number_of(stream: str, layer: int) -> int:
    """When an attention is called in a pass over a pair."""
    return CALLS[stream] + layer * (1 if stream == "encoder" else 2)


def masked(monkeypatch: pytest.MonkeyPatch, hide: Callable[[int, Any], None]) -> None:
    """Let `hide` set scores of each attention, by its number, before the softmax."""
    numbers = iter(range(10_000))

    def shares(scores: Array, mask: Array = None) -> Array:
        if mask is not None:
            scores = np.where(mask, scores, -np.inf)
        hide(next(numbers), scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    monkeypatch.setattr(light, "softmax", shares)


def whole_pass(pocket: Pocket, query: Query = PAIR) -> np.ndarray:
    """log p of each token of the target, by a plain pass."""
    inputs = pocket._encode(query)  # cached: to guess its language again would count as passes
    memory, _ = network.run_encoder(pocket.weights, pocket.sizes, pocket.embed(inputs.source_ids))
    target = pocket.embed(inputs.target_ids)
    states, *_ = network.run_decoder(pocket.weights, pocket.sizes, target, memory)
    scores = network.predict_pieces(pocket.weights, states[:-1])
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    chosen = shares / shares.sum(-1, keepdims=True)
    return np.log(chosen[np.arange(len(chosen)), inputs.target_ids[1:]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "layer", "head"), [("encoder", 3, 5), ("cross", 0, 2), ("decoder", 1, 4)]
)
def test_a_head_off_is_one_with_zero_output_weights(stream, layer, head, pocket, monkeypatch):
    experiment = open_experiment(pocket, PAIR)
    off = Intervention(heads=(HeadAt(stream, str(layer), head),))
    plain, found = log_probabilities(experiment, [Intervention(), off])
    np.testing.assert_allclose(plain, whole_pass(pocket), **EXACT)
    side, kind = ("encoder", "self") if stream == "encoder" else ("decoder", stream)
    name = f"{side}.{layer}.{kind.replace('decoder', 'self')}_attention.output.weight"
    size = pocket.sizes.size // pocket.sizes.heads
    zeroed = pocket.weights[name].copy()
    zeroed[:, head * size : (head + 1) * size] = 0
    monkeypatch.setitem(pocket.weights.arrays, name, zeroed)
    np.testing.assert_allclose(found, whole_pass(pocket), **EXACT)
    assert abs(found - plain).max() > 0.01


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(
    ("stream", "layer", "head", "query", "key"),
    [("encoder", 0, 1, 2, 1), ("cross", 2, 1, 3, 1), ("decoder", 1, 2, 4, 3)],
)
def test_a_link_cut_is_a_score_of_minus_infinity(
    stream, layer, head, query, key, pocket, monkeypatch
):
    experiment = open_experiment(pocket, PAIR)
    cut = Intervention(links=(LinkAt(stream, query, key, str(layer), head),))
    (found,) = log_probabilities(experiment, [cut])

    def hide(number: int, scores: Any) -> None:
        if number == number_of(stream, layer):
            scores[head, query, key] = -np.inf

    masked(monkeypatch, hide)
    np.testing.assert_allclose(found, whole_pass(pocket), **EXACT)


def test_a_token_that_is_hidden_is_seen_by_none_but_itself(pocket, monkeypatch):
    experiment = open_experiment(pocket, PAIR)
    tokens = Intervention(tokens=(TokenAt("source", 1), TokenAt("target", 2)))
    (found,) = log_probabilities(experiment, [tokens])

    def hide(number: int, scores: Any) -> None:
        stream = "encoder" if number < 4 else ("decoder", "cross")[number % 2]
        key = 2 if stream == "decoder" else 1
        own = scores[:, key, key].copy()
        scores[:, :, key] = -np.inf
        if stream != "cross":
            scores[:, key, key] = own

    masked(monkeypatch, hide)
    np.testing.assert_allclose(found, whole_pass(pocket), **EXACT)


def test_a_sink_grows_as_the_other_keys_do():
    tokens = Token("a"), Token("b")
    item = AttentionMap("self", tokens, tokens, np.full((1, 1, 2, 2), 0.4, np.float32))
    cut = Intervention(links=(LinkAt("self", query=0, key=1),))
    (rows,) = cut.apply_to(item, {("self", "0"): np.full((1, 2), 0.2)}).weights[0]
    # Of keys of 0.4 and a sink of 0.2 stay 0.4 : 0.2.
    np.testing.assert_allclose(rows, [[2 / 3, 0], [0.4, 0.4]], rtol=1e-6)


def test_a_mean_and_changes_made_together(pocket):
    experiment = open_experiment(pocket, PAIR)
    changes = [
        Intervention(),
        Intervention(heads=(HeadAt("cross", "0", 2),)),
        Intervention(links=(LinkAt("encoder", 2, 1),), heads=(HeadAt("decoder", "0", 2),)),
        Intervention(tokens=(TokenAt("source", 4),)),
    ]
    at_once = log_probabilities(experiment, changes)
    alone = [log_probabilities(experiment, [change])[0] for change in changes]
    np.testing.assert_allclose(at_once, alone, **EXACT)
    assert len({tuple(row) for row in at_once.round(9)}) == 4
    outputs = experiment.head_outputs()
    assert outputs["cross", "0"].shape == (6, 7, 32)
    off = Intervention(heads=(HeadAt("cross", "0", 2),))
    # What it puts out anyway changes nothing; its mean does, and otherwise than zeros.
    (plain,), (same,) = (
        log_probabilities(experiment, [c], i) for c, i in ((Intervention(), None), (off, outputs))
    )
    np.testing.assert_allclose(same, plain, **EXACT)
    means = {place: rows.mean(1, keepdims=True) for place, rows in outputs.items()}
    (mean,), (zero,) = (log_probabilities(experiment, [off], i) for i in (means, None))
    assert abs(mean - zero).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_the_estimate_is_the_slope_towards_the_cut(causal, monkeypatch):
    pocket = load_pocket(dtype="float64", causal=causal)
    query = Query("The red car is fast.") if causal else PAIR
    experiment = open_experiment(pocket, query, "all")
    monkeypatch.setattr(experiment, "_first_layer", lambda _: 0)
    stream, layer, head, row, key = ("causal" if causal else "cross"), 1, 3, 4, 2
    at = [item.stream for item in experiment.attention.maps].index(stream)
    item = experiment.attention.maps[at]
    estimated = effects(item.weights, experiment.gradients()[at])[layer, head, row, key]
    weights = item.weights[layer, head, row].astype(np.float64)
    without = np.where(np.arange(len(weights)) == key, 0, weights) / (1 - weights[key])
    step = 1e-4
    attend = light.AttentionCall
    numbers = iter(range(10_000))

    def moved(sign: float) -> float:
        nonlocal numbers
        numbers = iter(range(10_000))
        call = number_of("decoder" if causal else "cross", layer)

        def attended(
            query: Array, key: Array, value: Array, mask: Any, output: Array, *rest: Any, path: str
        ) -> Any:
            if next(numbers) == call:
                apart = dot_product.split_heads(output, value.shape[-3]) + 0
                apart[..., head, row, :] += (
                    sign * step * ((without - weights) @ value[..., head, :, :])
                )
                output = dot_product.join_heads(apart)
            return attend(query, key, value, mask, output, *rest, path=path)

        monkeypatch.setattr(light, "AttentionCall", attended)
        (found,) = log_probabilities(experiment, [Intervention()])
        return float(found.sum())

    slope = (moved(1) - moved(-1)) / (2 * step)
    assert estimated == pytest.approx(-slope, abs=1e-5)
    assert abs(slope) > 1e-4


def test_the_largest_estimates_are_measured():
    experiment = open_experiment(load_pocket(), PAIR)
    found = effect(explained_by(experiment))
    decoder = found.map_of("decoder").weights
    assert np.isnan(decoder[:, :, 0, 0]).all()
    assert np.isfinite(decoder[:, :, 1:]).all()
    assert found.main.values == "signed"
    assert found.main.weights.shape == (4, 6, 7, 7)
    cut = Intervention(links=(LinkAt("decoder", 0, 0),))
    assert np.isnan(effects_of(experiment, [cut])).all()
    estimated = effect(explained_by(experiment))
    measured = measure_links(experiment, estimated, 5)
    sizes = sorted(
        (
            abs(float(value))
            for item in estimated.maps
            for value in item.weights.ravel()
            if value == value
        ),
        reverse=True,
    )
    assert [abs(one.estimated) for one in measured] == pytest.approx(sizes[:5], rel=1e-6)
    first = measured[0]
    link = LinkAt(
        first.stream,
        first.link.query_position,
        first.link.key_position,
        first.link.layer,
        int(first.link.head),
    )
    assert effects_of(experiment, [Intervention(links=(link,))]).sum() == pytest.approx(
        first.measured, rel=1e-5
    )


@pytest.mark.slow
def test_estimates_rank_links_as_measurements_do():
    experiment = open_experiment(load_pocket(), PAIR)
    estimated = effect(explained_by(experiment))
    for item in estimated.maps:
        raw = next(one for one in experiment.attention.maps if one.stream == item.stream)
        cells = np.argwhere((raw.weights > 0.02) & np.isfinite(item.weights))[::3]
        links = [
            LinkAt(item.stream, q, k, item.layers[layer], head)
            for layer, head, q, k in cells.tolist()
        ]
        exact = effects_of(experiment, [Intervention(links=(link,)) for link in links]).sum(1)
        near = item.weights[tuple(cells.T)].astype(float)
        assert rank_correlation(near, exact) > 0.9
        assert rank_correlation(abs(raw.weights[tuple(cells.T)]), abs(exact)) < 0.8
    assert experiment.write(Intervention()) == "La voiture rouge est rapide."
    assert (
        experiment.write(Intervention(tokens=(TokenAt("source", 1),))) == "La voiture est rapide."
    )
    assert open_experiment(load_pocket(), Query("The red car")).write(Intervention()) is None


def test_a_rank_correlation_is_that_of_ranks():
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 100, 1000])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    # Ties share their ranks: 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    tied = rank_correlation(np.array([0.0, 5, 5, 9]), np.array([1.0, 2, 3, 4]))
    assert tied == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert np.isnan(rank_correlation(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])))
    assert np.isnan(rank_correlation(np.array([1.0, np.nan, 2]), np.array([1.0, 2, 3])))


def test_the_encoder_predicts_one_masked_word_only():
    pocket = load_pocket()
    (output,) = open_experiment(pocket, Query("The red car is fast")).outputs
    assert (output.name, output.position, output.row) == ("fast", 4, 4)
    with pytest.raises(UsageError, match=r"--target all needs a model that predicts every token"):
        open_experiment(pocket, Query("The red car is fast"), "all")
