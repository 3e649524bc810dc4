"""Which heads of a map share keys and values, and the mean of each group."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.analyses.kv_groups import groups_in_words, groups_of, mean_of_groups
from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import AttentionMap, Focus, Token
from attnviz.core.errors import UsageError
from attnviz.features.measures.spread import kv_likeness
from tests.invoke import attnviz
from tests.samples import attention_of, weights_of


def sample(sizes, layers=1, heads=4):
    tokens = tuple(map(Token, "abc"))
    item = AttentionMap("self", tokens, tokens, weights_of((layers, heads, 3, 3)))
    by_layer = dict(zip(item.layers, sizes, strict=True))
    return replace(attention_of(item), group_sizes={item.stream: by_layer})


def test_groups_and_means_by_hand():
    item = sample([2]).main
    assert groups_of(item, {"0": 2}) == [{0: [0, 1], 1: [2, 3]}]
    assert groups_of(item, {"0": 4}) == [{0: [0, 1, 2, 3]}]
    assert (groups_of(item, {"0": 1}), groups_of(item, {})) == ([{}], [{}])
    some = item.part(heads=["1", "2", "3"])
    assert groups_of(some, {"0": 2}) == [{1: [1, 2]}]  # of the first group one head is left

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


def test_layers_and_facts_of_means():
    found = mean_of_groups(sample([2, 4, 4, 1], layers=4))
    assert [(item.layers, len(item.heads)) for item in found.maps] == [
        (("0",), 2),
        (("1", "2"), 1),
        (("3",), 4),
    ]
    assert found.provenance.steps == ("key–value heads (each the mean of 2 or 4 query heads)",)
    attention = sample([2])
    focus = {attention.main.stream: Focus("0", "3", "says most")}
    at = (attention.main.stream, "0", "3")
    full = replace(attention, focus=focus, effects={at: 0.1}, scores={at: {"score-max": 1.0}})
    found = mean_of_groups(full)
    assert [found.focus, found.effects, found.scores] == [{}, {}, {}]


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


def test_the_command_has_groups():
    done = attnviz("self", "a b c", "--mechanism", "grouped-query", "--kv", "-f", "json")
    assert done.json()["maps"][0]["heads"] == [0, 1]
    said = attnviz("self", "a b c", "--mechanism", "multi-head", "--kv").mistake
    assert "has keys and values of its own" in said
    said = attnviz("self", "a b c", "--kv", "--lens", "all").mistake
    assert said.endswith("leave --lens all out")
    assert attnviz("self", "a b", "--table").mistake.endswith("--table is now --max-rows 0")


def with_groups(weights, size, special=()):
    tokens = tuple(Token(name, special=name in special) for name in "abcdef"[: weights.shape[-1]])
    item = AttentionMap("self", tokens, tokens, np.asarray(weights, np.float32))
    subject = MeasuredMap(item)
    subject.group_sizes = dict.fromkeys(item.layers, size)
    return subject


def test_likeness_by_hand():
    even, first, second = ([0.5, 0.5, 0], [1, 0, 0], [0, 1, 0])
    heads = [[even] * 3, [even] * 3, [first] * 3, [second] * 3]
    found = kv_likeness(with_groups(np.array([heads]), 2)).values
    np.testing.assert_allclose(found, [[1, 1, 0, 0]], atol=1e-6)
    assert kv_likeness(with_groups(np.array([heads]), 1)) is None
    # Of three heads each has the mean over its two pairs.
    found = kv_likeness(with_groups(np.array([heads[:3]]), 3)).values
    # Of (1/2, 1/2) and (1, 0): H(3/4, 1/4) − 1/2 bits.
    half = 1 - (-(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)) - 0.5)
    np.testing.assert_allclose(found, [[(1 + half) / 2, (1 + half) / 2, half]], atol=1e-6)
    # Rows that differ in what they give to a special token alone look the same.
    rows = np.array([[0.6, 0.3, 0.1], [0.9, 0.075, 0.025]])
    heads = [[row] * 3 for row in rows.tolist()]
    found = kv_likeness(with_groups(np.array([heads]), 2, special="a")).values
    np.testing.assert_allclose(found, 1, atol=1e-6)
    assert (kv_likeness(with_groups(np.array([heads]), 2)).values < 0.95).all()


def divergence_in_bits(one, other):
    def entropy(row):
        return -sum(x * np.log2(x) for x in row if x > 0)

    return entropy((one + other) / 2) - (entropy(one) + entropy(other)) / 2


def test_likeness_is_the_slow_loop():
    weights = weights_of((2, 6, 5, 5), seed=3).astype(np.float64)
    weights[0, 1, 2] = [0.98, 0.005, 0.005, 0.005, 0.005]  # too little is left of this row
    found = kv_likeness(with_groups(weights, 3, special="a")).values
    for layer, head in np.ndindex(2, 6):
        group = range(head // 3 * 3, head // 3 * 3 + 3)
        likeness = []
        for other in set(group) - {head}:
            rows = []
            for query in range(1, 5):
                pair = [weights[layer, one, query, 1:] for one in (head, other)]
                if min(row.sum() for row in pair) >= 0.05:
                    rows.append(divergence_in_bits(*(row / row.sum() for row in pair)))
            likeness.append(1 - np.mean(rows))
        assert found[layer, head] == pytest.approx(np.mean(likeness), abs=1e-5)


def test_what_is_said_of_likeness():
    values = {("0", str(head)): value for head, value in enumerate([0.6, 0.62, 0.58, 0.2])}
    assert groups_in_words(values, {"0": 4}) == (
        "every 4 query heads share keys and values, and look .50 alike; 0.3 stands out of 0.0–3 "
        "(.20, the others .80)"
    )
    alike = dict.fromkeys(values, 0.5)
    assert "stands out" not in groups_in_words(alike, {"0": 4})
    pairs = groups_in_words(values, {"0": 2})
    assert pairs.endswith("look .50 alike (most 0.0–1 .61, least 0.2–3 .39)")
    assert groups_in_words(values, {"0": 1}) == ""

    # What is said of the others follows from each head's mean alone.
    apart = np.array([[0, 0.1, 0.2, 0.7], [0, 0, 0.3, 0.8], [0, 0, 0, 0.9], [0, 0, 0, 0]])
    alike = 1 - (apart + apart.T)
    values = {("0", str(h)): (alike[h].sum() - 1) / 3 for h in range(4)}
    others = np.mean([alike[0, 1], alike[0, 2], alike[1, 2]])
    assert f"0.3 stands out of 0.0–3 (.20, the others {others:.2f})".replace("0.80", ".80") in (
        groups_in_words(values, {"0": 4})
    )
