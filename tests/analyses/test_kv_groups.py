"""Which heads of a map share keys and values, and the mean of each group."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.analyses.kv_groups import groups_of, mean_of_groups
from attnviz.core.attention_map import AttentionMap, Focus, Token
from attnviz.core.errors import UsageError
from tests.invoke import attnviz
from tests.samples import attention_of, weights_of


def sample(sizes, layers=1, heads=4):
    tokens = tuple(map(Token, "abc"))
    item = AttentionMap("self", tokens, tokens, weights_of((layers, heads, 3, 3)))
    by_layer = dict(zip(item.layers, sizes, strict=True))
    return replace(attention_of(item), group_sizes={item.stream: by_layer})


def test_groups_by_hand():
    item = sample([2]).main
    assert groups_of(item, {"0": 2}) == [{0: [0, 1], 1: [2, 3]}]
    assert groups_of(item, {"0": 4}) == [{0: [0, 1, 2, 3]}]
    assert groups_of(item, {"0": 1}) == [{}]
    assert groups_of(item, {}) == [{}]
    some = item.part(heads=["1", "2", "3"])
    assert groups_of(some, {"0": 2}) == [{1: [1, 2]}]  # of the first group one head is left


def test_means_by_hand():
    attention = sample([2])
    found = mean_of_groups(attention)
    own = attention.weights[0].astype(np.float64)
    np.testing.assert_allclose(found.weights[0, 0], (own[0] + own[1]) / 2, atol=1e-7)
    np.testing.assert_allclose(found.weights[0, 1], (own[2] + own[3]) / 2, atol=1e-7)
    assert found.main.heads == ("0", "1")
    assert found.group_sizes == {}
    (note,) = found.provenance.notes
    assert note.endswith("each the mean of the 2 query heads that share it: head 0 is the mean of "
                         "0 to 1")  # fmt: skip


def test_layers_with_as_many_heads_of_keys_make_a_map():
    found = mean_of_groups(sample([2, 4, 4, 1], layers=4))
    assert [(item.layers, len(item.heads)) for item in found.maps] == [
        (("0",), 2),
        (("1", "2"), 1),
        (("3",), 4),
    ]
    assert found.provenance.steps == ("key–value heads (each the mean of 2 or 4 query heads)",)


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (sample([1]), "each head of 'a model' has keys and values of its own"),
        (attention_of(sample([2]).main), "nothing says that heads of 'a model' share"),
        (mean_of_groups(sample([2])), "has been applied to these maps already"),
    ],
    ids=["own", "unknown", "twice"],
)
def test_a_refusal_says_why(attention, said):
    with pytest.raises(UsageError, match=said.replace("'a model'", "'.*'")):
        mean_of_groups(attention)


def test_what_was_found_of_single_heads_goes():
    attention = sample([2])
    focus = {attention.main.stream: Focus("0", "3", "says most")}
    at = (attention.main.stream, "0", "3")
    full = replace(attention, focus=focus, effects={at: 0.1}, scores={at: {"score-max": 1.0}})
    found = mean_of_groups(full)
    assert [found.focus, found.effects, found.scores] == [{}, {}, {}]


def test_the_old_name_of_the_whole_table_is_refused_in_one_line():
    assert attnviz("self", "a b", "--table").mistake.endswith("--table is now --max-rows 0")


def test_a_mechanism_with_groups_says_so():
    done = attnviz("self", "a b c", "--mechanism", "grouped-query", "--kv", "-f", "json")
    assert done.json()["maps"][0]["heads"] == [0, 1]
    said = attnviz("self", "a b c", "--mechanism", "multi-head", "--kv").mistake
    assert "has keys and values of its own" in said
    said = attnviz("self", "a b c", "--kv", "--lens", "all").mistake
    assert said.endswith("leave --lens all out")
