import numpy as np
import pytest
from hypothesis import given

from attnviz.analyses.select import parse_reduction, reduce_attention, reduce_map
from attnviz.core.attention_map import Link
from attnviz.core.errors import UsageError
from tests.samples import attention_of, checked, maps, self_map

AXES = {"heads": 1, "layers": 0, "both": (0, 1)}


@pytest.mark.slow
@checked
@given(maps("self"))
@pytest.mark.parametrize("over", list(AXES))
def test_reductions_are_numpys(over, item):
    mean, most = (reduce_map(item, how, over) for how in ("mean", "max"))
    assert np.array_equal(most.weights, item.weights.max(AXES[over], keepdims=True))
    assert np.allclose(mean.weights, item.weights.mean(AXES[over], keepdims=True), atol=1e-6)
    if item.values == "share":
        assert np.allclose(mean.weights.sum(-1), 1, atol=1e-4)


def test_a_reduction_is_named_and_keeps_links():
    item = self_map(["a"], 1, 3)
    reduced = reduce_map(item, "mean", "both")
    assert (reduced.layers, reduced.heads) == (("0",), ("mean",))
    assert reduce_map(item, "none", "both") is item
    item = self_map(["a", "b"], 1, 2)
    item = item.with_weights(
        item.weights, blocks=(2, 2), links=(Link("a", "b", 0.5, "0", "1", 0, 1),)
    )
    assert reduce_map(item, "mean", "heads").links == item.links


def test_every_map_is_reduced_and_it_is_said():
    attention = attention_of(self_map(["a"], 2, 3))
    assert reduce_attention(attention, "max", "both").provenance.steps == (
        "max over heads and layers",
    )
    assert reduce_attention(attention, "mean", "heads").provenance.steps == ("mean over heads",)
    assert reduce_attention(attention, "none", "heads") is attention
    found = reduce_attention(attention_of(self_map(["a"], 2, 3)), "mean", "heads")
    np.testing.assert_allclose(found.weights, self_map(["a"], 2, 3).weights.mean(1, keepdims=True))
    assert found.main.heads == ("mean",)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("x", "reduction 'x'"),
        ("mean:x", "reduction 'mean:x'"),
        ("meen", ".*Did you mean 'mean'"),
        ("mean:layer", ".*Did you mean 'mean:layers'"),
    ],
)
def test_what_is_unknown_is_named(how, what):
    with pytest.raises(UsageError, match=f"unknown {what}"):
        parse_reduction(how)
    assert parse_reduction("max:heads") == ("max", "heads")
    assert parse_reduction("mean") == ("mean", "both")
