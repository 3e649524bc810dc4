from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.features.compare.differences import compare_maps, pair_tokens
from tests.hugging_face.tiny_models import BUILDERS
from tests.invoke import attnviz
from tests.samples import checked, weights_of

words = st.lists(st.sampled_from("abcd"), min_size=1, max_size=7)


def map_of(texts, weights=None, seed=0, layers=1, heads=1, **fields):
    tokens = tuple(Token(text) for text in texts)
    if weights is None:
        weights = weights_of((layers, heads, len(texts), len(texts)), seed)
    weights = np.asarray(weights, dtype=np.float32)
    return AttentionMap("self", tokens, tokens, weights, **fields)


def test_tokens_are_paired_by_hand():
    assert pair_tokens(["the", "cat", "sat"], ["the", "dog", "sat"]) == [(0, 0), (1, 1), (2, 2)]
    assert pair_tokens(["a", "c"], ["a", "b", "c"]) == [(0, 0), (None, 1), (1, 2)]
    pairs = [(place, place + 1) for place in range(299)]
    assert pair_tokens(["a", "b"] * 150, ["b", "a"] * 150) == [(None, 0), *pairs, (299, None)]


@checked
@given(words, words)
def test_pairs_hold_every_token_once_in_order(first, second):
    pairs = pair_tokens(first, second)
    assert [a for a, _ in pairs if a is not None] == list(range(len(first)))
    assert [b for _, b in pairs if b is not None] == list(range(len(second)))
    if first != second:
        assert sorted(map(str, pair_tokens(second, first))) == sorted(str((b, a)) for a, b in pairs)


def test_the_difference_of_two_links_by_hand():
    found = compare_maps(
        map_of("ab", [[[[1.0, 0.0], [0.5, 0.5]]]]), map_of("ab", [[[[0.0, 1.0], [0.5, 0.5]]]])
    )
    np.testing.assert_array_equal(found.map.weights[0, 0], [[-1, 1], [0, 0]])
    # The first rows share no key (ln 2), the second rows are alike (0).
    assert found.divergences.item() == pytest.approx(np.log(2) / 2)
    assert [(c.before, c.after, c.link.weight) for c in found.changes] == [(1, 0, -1), (0, 1, 1)]
    assert found.map.values == "signed"


def test_a_key_that_one_side_lacks_or_calls_otherwise():
    found = compare_maps(
        map_of("ac", [[[[0.4, 0.6], [1.0, 0.0]]]]),
        map_of("abc", [[[[0.1, 0.3, 0.6], [0, 1, 0], [0.5, 0.5, 0.0]]]]),
    )
    assert [token.text for token in found.map.key_tokens] == ["a", "+b", "c"]
    assert [token.text for token in found.map.query_tokens] == ["a", "c"]
    np.testing.assert_allclose(found.map.weights[0, 0], [[-0.3, 0.3, 0], [-0.5, 0.5, 0]], atol=1e-6)
    assert found.notes[0] == "queries only in A: 0, only in B: 1; left out"
    found = compare_maps(map_of(["the", "cat"]), map_of(["the", "dog"], seed=1))
    assert [token.text for token in found.map.key_tokens] == ["the", "cat→dog"]
    cross = {"query_side": "target", "key_side": "source"}
    found = compare_maps(map_of("abc", **cross), map_of("ac", **cross)).map
    assert (found.query_side, found.key_side) == ("target", "source")
    assert [token.text for token in found.key_tokens] == ["a", "−b", "c"]


@checked
@given(words, words, st.integers(0, 99))
def test_exchanging_sides_changes_only_signs(first, second, seed):
    a, b = map_of(first, seed=seed, heads=2), map_of(second, seed=seed + 1, heads=2)
    try:
        there, back = compare_maps(a, b), compare_maps(b, a)
    except InputError:
        assert all(None in pair for pair in pair_tokens(first, second))
        return
    np.testing.assert_allclose(there.divergences, back.divergences, atol=1e-12)
    np.testing.assert_allclose(
        np.sort(there.map.weights, axis=None), np.sort(-back.map.weights, axis=None)
    )
    if first == second:
        np.testing.assert_array_equal(there.map.weights, -back.map.weights)


@checked
@given(words, st.integers(0, 99), st.integers(0, 99))
def test_divergence_equals_the_loop(texts, seed, other):
    a, b = map_of(texts, seed=seed), map_of(texts, seed=other)
    found = compare_maps(a, b).divergences.item()
    total = 0.0
    for p, q in zip(a.weights[0, 0].tolist(), b.weights[0, 0].tolist(), strict=True):
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        for x, y in zip(p, q, strict=True):
            middle = (x + y) / 2
            total += (x * np.log(x / middle) if x else 0) / 2
            total += (y * np.log(y / middle) if y else 0) / 2
    assert found == pytest.approx(total / len(texts), abs=1e-9)
    assert 0 <= found <= np.log(2) + 1e-12
    if np.array_equal(a.weights, b.weights):
        assert found == 0
    elif np.abs(a.weights - b.weights).max() > 1e-3:
        assert found > 0


def test_rows_that_sum_to_less_are_scaled_or_left_out():
    a = map_of("ab", [[[[0.2, 0.2], [0.5, 0.5]]]])
    b = map_of("ab", [[[[0.5, 0.5], [0.5, 0.5]]]])
    found = compare_maps(a, b)
    assert found.divergences.item() == pytest.approx(0, abs=1e-12)
    assert found.notes == ("1 rows do not sum to 1: the divergence is of rows scaled to 1",)
    a = map_of("ab", [[[[0.0, 0.0], [1.0, 0.0]]]])
    b = map_of("ab", [[[[1.0, 0.0], [0.0, 1.0]]]])
    for found in (compare_maps(a, b), compare_maps(b, a)):
        assert found.divergences.item() == pytest.approx(np.log(2))
        assert found.notes == ("1 rows attend to nothing on one side: left out of the divergence",)
    nothing = map_of("a", [[[[0.0]]]])
    assert np.isnan(compare_maps(nothing, nothing).divergences.item())


def test_heads_and_layers_of_other_names_are_paired():
    a, b = map_of("ab", heads=1), map_of("ab", seed=1, heads=1)
    a = a.with_weights(a.weights, heads=("3",))
    b = b.with_weights(b.weights, heads=("7",))
    found = compare_maps(a, b)
    assert found.map.heads == ("3→7",)
    assert found.heads == ((("0", "3"), ("0", "7")),)
    a, b = map_of("ab", layers=2), map_of("ab", seed=1, layers=2)
    found = compare_maps(a, b.with_weights(b.weights, layers=("0", "7"))).map
    assert found.layers == ("0", "1→7")
    assert (found.stream, found.unit) == ("self", "B − A, in shares of a row's attention")


@pytest.mark.parametrize(
    ("one", "other", "error", "says"),
    [
        (("ab", {"heads": 2}), ("ab", {"heads": 3}), UsageError, "A has 1 × 2 layers and heads"),
        (("ab", {"values": "signed"}), ("ab", {}), UsageError, "signed values"),
        (("ab", {}), ("cde", {}), InputError, "no token in common"),
        (("ab", {"blocks": (2, 2)}), ("ab", {}), InputError, "^a comparison needs single tokens"),
    ],
)
def test_what_cannot_be_compared_is_refused(one, other, error, says):
    with pytest.raises(error, match=says):
        compare_maps(*(map_of(text, **fields) for text, fields in (one, other)))


def spelt(*pieces):
    """Tokens of a text, each with its number in a vocabulary."""
    made = [Token(text, piece=(number, text.lower())) for text, number in pieces]
    weights = np.full((1, 1, len(made), len(made)), 1 / len(made), np.float32)
    return AttentionMap("self", tuple(made), tuple(made), weights)


def test_tokens_are_paired_by_their_numbers():
    upper, lower = [("The", 5), ("car", 8)], [("the", 5), ("red", 7), ("car", 8)]
    found = compare_maps(spelt(*upper), spelt(*lower)).map
    assert [token.text for token in found.key_tokens] == ["The→the", "+red", "car"]
    other = [("the", 6), ("red", 7), ("car", 9)]
    found = compare_maps(spelt(*upper), spelt(*other)).map
    assert [token.text for token in found.key_tokens] == ["−The", "+the", "+red", "car"]
    saved = replace(spelt(*lower), key_tokens=(Token("the"), Token("red"), Token("car")))
    found = compare_maps(spelt(*upper), saved).map
    assert [token.text for token in found.key_tokens] == ["−The", "+the", "+red", "car"]


def test_a_model_without_case_sees_no_difference(tmp_path):
    folder = BUILDERS["bert"](tmp_path)
    texts = "The professor published the red paper", "the red Professor published the red paper"
    told = attnviz("compare", *texts, "--model", folder, "-f", "json").json()
    assert "keys only in A: 0, only in B: 1; compared with nothing" in told["notes"]
    same = attnviz("compare", texts[0], texts[0].upper(), "--model", folder, "-f", "json").json()
    assert same["links"] == []
