from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.analyses.select import check_selection, link_at, missing, positions, reduce_map, select
from attnviz.core.attention_map import SEVERAL, Attention, Link
from attnviz.core.errors import UsageError
from tests.samples import attention_of, checked, self_map

NAMES = tuple(map(str, range(12)))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("0", [0]),
        ("2,5", [2, 5]),
        ("5,2,2", [2, 5]),
        ("0-3", [0, 1, 2, 3]),
        ("9-10, last", [9, 10, 11]),
        ("all", list(range(12))),
        ("007", [7]),
    ],
)
def test_a_selection_names_places_in_order(selection, expected):
    check_selection(None, selection)
    assert (positions(selection, NAMES), missing(selection, set(NAMES))) == (expected, [])


@pytest.mark.parametrize("selection", ["", "x", "-1", "1-", "3-1", "1,", "1..2", "1.0", "²"])
def test_what_is_no_selection_is_refused(selection):
    with pytest.raises(UsageError, match=r"names (no layer|a head): write"):
        check_selection(selection, None)


@pytest.mark.parametrize(
    ("layer", "head", "message"),
    [
        ("2.3", None, "names a head: write --head 2.3"),
        ("1", "2.3", "leave --layer 1 out"),
        (None, "2.3,4", "names no head"),
    ],
)
def test_a_head_names_its_layer_or_none(layer, head, message):
    with pytest.raises(UsageError, match=message):
        check_selection(layer, head)


def test_rows_and_names_of_heads_are_checked():
    for head in (None, "2.3", "2.3,1.3", "3"):
        check_selection(None, head, rows=True)
    with pytest.raises(UsageError, match="give --layer 1,2 --head 0,3"):
        check_selection(None, "1.0,2.3", rows=True)
    item = self_map(["a"], 1, 3)
    for names, told in ((("0", "1", "2"), "0 to 2"), (("4", "5", "6"), "4 to 6"),
                        (("4", "6", "7"), "4, 6, 7")):  # fmt: skip
        with pytest.raises(UsageError, match=rf"has 3 heads, {told}$"):
            select(attention_of(item.with_weights(item.weights, heads=names)), None, None, "9")


def test_a_head_with_its_layer_is_that_head_alone():
    attention = attention_of(self_map(["a", "b"], 3, 4))
    for name, layers, heads in (
        ("1.2", [1], [2]),
        ("1.2,1.0", [1], [0, 2]),
        ("0.3,2.3", [0, 2], [3]),
    ):
        chosen = select(attention, None, None, name)
        assert np.array_equal(chosen.weights, attention.weights[np.ix_(layers, heads)])
        assert chosen.main.layers == tuple(map(str, layers))
        assert chosen.main.heads == tuple(map(str, heads))
    with pytest.raises(UsageError, match="layer 3 does not exist"):
        select(attention, None, None, "3.0")

    two = self_map(["a", "b"], 1, 4)
    other = replace(self_map(["a", "b"], 1, 2), stream="cross", layers=("7",))
    found = attention_of(two, other)
    assert [item.layers for item in select(found, None, None, "0.3,7.1").maps] == [("0",), ("7",)]
    with pytest.raises(UsageError, match=r"head 7\.3 does not exist"):
        select(found, None, None, "0.1,7.3,7.1")
    assert select(found, None, None, "0.3,0.2,7.1").provenance.steps == ("head 0.3,0.2,7.1",)


@checked
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, unique=True))
def test_heads_of_several_layers_keep_their_places(heads):
    item = self_map(["a", "b"], 3, 4)
    places = [(str(layer), str(head)) for layer, head in np.ndindex(3, 4)]
    links = tuple(Link("a", "b", 0.5, *place, 0, 1) for place in places)
    found = attention_of(item.with_weights(item.weights, links=links))
    chosen = select(found, None, None, ",".join(f"{layer}.{head}" for layer, head in heads)).main
    cells = [*np.ndindex(chosen.weights.shape[:2])]
    matrices = {chosen.place(*at): chosen.weights[at] for at in cells}
    assert matrices.keys() == {(str(layer), str(head)) for layer, head in heads}
    for (layer, head), matrix in matrices.items():
        assert np.array_equal(matrix, item.weights[int(layer), int(head)])
    assert len(chosen.links) == len(heads)
    assert {link_at(chosen, (*at, 0, 1)).layer for at in cells} == {str(at) for at, _ in heads}


def test_the_mean_over_heads_of_several_layers():
    item = self_map(["a", "b"], 3, 4)
    chosen = select(attention_of(item), None, None, "2.3,0.1").main
    assert (chosen.layers, chosen.heads) == ((SEVERAL,), ("2.3", "0.1"))
    mean = (item.weights[2, 3] + item.weights[0, 1]) / 2
    again = select(attention_of(chosen), None, None, "0.1").main
    np.testing.assert_array_equal(again.weights, item.weights[:1, 1:2])
    assert again.place(0, 0) == ("0", "1")
    for over in ("heads", "layers", "both"):
        np.testing.assert_allclose(reduce_map(chosen, "mean", over).weights[0, 0], mean, atol=1e-7)


def named() -> Attention:
    two = self_map(["a", "b"], 3, 4)
    other = self_map(["c"], 1, 2, seed=1).with_weights(
        self_map(["c"], 1, 2).weights, stream="cross", layers=("7",)
    )
    return attention_of(two, other)


@checked
@given(st.sets(st.integers(0, 2), min_size=1), st.sets(st.integers(0, 3), min_size=1))
def test_what_is_kept_keeps_its_numbers_and_names(layers, heads):
    attention = attention_of(self_map(["a", "b"], 3, 4))
    chosen = select(attention, None, ",".join(map(str, layers)), ",".join(map(str, heads)))
    kept = np.ix_(sorted(layers), sorted(heads))
    assert np.array_equal(chosen.weights, attention.weights[kept])
    assert chosen.main.layers == tuple(map(str, sorted(layers)))
    assert chosen.main.heads == tuple(map(str, sorted(heads)))
    assert chosen.weights.flags["C_CONTIGUOUS"]


def test_streams_and_links_of_what_is_kept():
    assert [item.stream for item in select(named(), None, "7", None).maps] == ["cross"]
    assert [item.stream for item in select(named(), None, "0,7", None).maps] == ["self", "cross"]
    assert [item.stream for item in select(named(), "cross", None, None).maps] == ["cross"]
    assert select(named(), "self", "0", "1,2").provenance.steps == (
        "stream self",
        "layer 0",
        "head 1,2",
    )
    assert select(named(), None, None, None).provenance.steps == ()
    links = tuple(Link("a", "b", 0.5, layer, head, 0, 1) for layer in "01" for head in "01")
    item = self_map(["a", "b"], 2, 2)
    found = attention_of(item.with_weights(item.weights, links=links))
    assert select(found, None, "1", None).main.links == links[2:]
    assert select(found, None, None, "0").main.links == links[::2]
    item = self_map(["a"]).with_weights(self_map(["a"]).weights, layers=("mean",))
    assert select(attention_of(item), None, "mean", "0").main.layers == ("mean",)
    with pytest.raises(UsageError, match="has 1 layer, mean"):
        select(attention_of(item), None, "0", None)


@pytest.mark.parametrize(
    ("layer", "head", "message"),
    [
        ("12", None, "layer 12 does not exist: sample (self) has 4 layers, 0, 1, 2, 7"),
        (None, "9", "head 9 does not exist: sample (self) has 4 heads, 0 to 3"),
        ("7", "3", r"head 3 does not exist: sample (cross) has 2 heads, 0, 1"),
        ("mean", None, "layer mean does not exist"),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(layer, head, message):
    with pytest.raises(UsageError) as caught:
        select(named(), None, layer, head)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["mean", "max"])
def test_names_of_reduced_axes_are_selections(name):
    check_selection(None, name)
