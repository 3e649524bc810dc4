"""Special tokens dropped and made up for, and what is said of those that hold much."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from attnviz.analyses.sinks import held_by_special, notable_holders, sink_shares, sinks_in_words
from attnviz.analyses.tokens import parse_special, treat_special
from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import UsageError
from attnviz.core.tokens import first_is_sink
from attnviz.features.measures.study import mean_shares
from tests.invoke import attnviz
from tests.samples import attention_of, checked, maps

TOKENS = (Token("[CLS]", special=True), Token("a"), Token("b"), Token("[SEP]", special=True))


def marked(rows: list[list[float]]) -> AttentionMap:
    return AttentionMap("self", TOKENS, TOKENS, np.array([[rows]], np.float32))


BY_HAND = marked(
    [[0.1, 0.2, 0.3, 0.4], [0.5, 0.2, 0.2, 0.1], [0.7, 0.1, 0.0, 0.2], [0.25, 0.25, 0.25, 0.25]]
)


def test_dropping_by_hand():
    found = treat_special(attention_of(BY_HAND), "drop")
    assert [token.text for token in found.main.key_tokens] == ["a", "b"]
    assert found.tokens == ("a", "b")
    np.testing.assert_allclose(found.weights[0, 0], [[0.2, 0.2], [0.1, 0.0]])
    assert found.provenance.steps == ("special tokens dropped (75% of self)",)
    assert found.provenance.notes == (
        "special tokens were left out; they held 75% of self; rows sum to less than 1",
    )
    attention = attention_of(BY_HAND)
    assert treat_special(attention, "keep") is attention
    assert "special tokens dropped (75% of self)" in describe_run(found, found.main)
    summary = AttentionMap("a", TOKENS[:1], TOKENS[1:3], np.full((1, 1, 1, 2), 0.5, np.float32))
    assert treat_special(attention_of(summary), "drop").weights.shape == (1, 1, 1, 2)
    for held, said in ((0.004, "under 1%"), (0.0051, "1%"), (0.0, "0%")):
        rows = [[0.0, 1 - held, 0.0, held]] * 4
        (step,) = treat_special(attention_of(marked(rows)), "drop").provenance.steps
        assert step == f"special tokens dropped ({said} of self)"
    with pytest.raises(UsageError, match="Did you mean 'renormalise'"):
        parse_special("renormalize")
    done = attnviz("self", "the cat", "--special", "drp")
    assert done.status == 2
    assert "choose from keep, drop, renormalise. Did you mean 'drop'?" in done.mistake


def test_renormalising_by_hand():
    found = treat_special(attention_of(BY_HAND), "renormalise")
    np.testing.assert_allclose(found.weights[0, 0], [[0.5, 0.5], [1, 0]])
    assert "made to sum to 1 again" in found.provenance.notes[0]
    assert found.provenance.steps == ("special tokens dropped, rows to 1 (75% of self)",)
    said = (
        r"^stream 'self' holds signed values, which cannot be made to sum to 1: "
        r"use --special drop$"
    )
    with pytest.raises(UsageError, match=said):
        treat_special(attention_of(BY_HAND.with_weights(BY_HAND.weights, values="signed")),
                      "renormalise")  # fmt: skip


@checked
@given(maps("self"))
def test_what_was_held_is_left_out_or_made_up_for(item):
    before = item.weights.copy()
    dropped = treat_special(attention_of(item), "drop").main
    assert np.array_equal(item.weights, before)
    text_rows = [not token.special for token in item.query_tokens]
    rows = item.weights[:, :, text_rows] if any(text_rows) else item.weights
    if item.values == "share" and not all(token.special for token in item.key_tokens):
        lost = 1 - dropped.weights.sum() / rows.sum()
        if any(text_rows):
            assert held_by_special(item) == pytest.approx(lost, abs=1e-4)
    if item.values == "signed":
        with pytest.raises(UsageError, match="signed values"):
            treat_special(attention_of(item), "renormalise")
        return
    sums = treat_special(attention_of(item), "renormalise").weights.sum(-1)
    assert ((abs(sums - 1) < 1e-5) | (sums == 0)).all()


def test_special_tokens_that_hold_much_are_named():
    rows = np.full((12, 12), 0.3 / 11)
    rows[:, 0] = 0.7
    tokens = (TOKENS[0], *(Token(word) for word in "abcdefghijk"))
    item = AttentionMap("self", tokens, tokens, rows[None, None].astype(np.float32))
    (said,) = notable_holders(attention_of(item))
    assert said == (
        "special tokens ('[CLS]') hold 70% of the attention shown: --special drop leaves them out"
    )
    plain = tuple(replace(token, special=False) for token in tokens)
    sink = attention_of(replace(item, query_tokens=plain, key_tokens=plain))
    assert notable_holders(sink) == (
        "the first token ('[CLS]') holds 70% of the attention shown: a sink",
    )
    untrained = replace(sink, provenance=replace(sink.provenance, trained=False))
    assert notable_holders(untrained) == ()
    assert notable_holders(attention_of(marked([[0.25] * 4] * 4))) == ()
    causal = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    words = tuple(Token(word) for word in "abcd")
    item = AttentionMap("causal", words, words, causal[None, None].astype(np.float32))
    assert notable_holders(attention_of(item)) == ()

    marks = tuple(Token(f"<{place}>", special=True) for place in range(4))
    tokens = (*marks, *(Token(word) for word in "abcdefghijklmnop"))
    rows = np.full((20, 20), 0.1 / 16)
    rows[:, :4] = 0.225
    item = AttentionMap("self", tokens, tokens, rows[None, None].astype(np.float32))
    (said,) = notable_holders(attention_of(item))
    assert said.startswith("special tokens ('<0>', '<1>', '<2>') hold 90%")


def test_a_sink_within_a_text_is_named_by_its_place():
    rows = np.full((12, 12), 0.3 / 11)
    rows[:, 3] = 0.7
    tokens = tuple(Token(word) for word in "abcdefghijkl")
    item = AttentionMap("self", tokens, tokens, rows[None, None].astype(np.float32))
    assert notable_holders(attention_of(item)) == (
        "token 3 ('d') holds 70% of the attention shown: a sink",
    )
    # A window that begins with it has only the name of the first column, not of the first token.
    window = replace(
        item,
        query_tokens=tokens[3:],
        key_tokens=tokens[3:],
        weights=item.weights[:, :, 3:, 3:],
        starts=(3, 3),
    )
    assert notable_holders(attention_of(window)) == (
        "token 3 ('d') holds 76% of the attention shown: a sink",
    )
    rows = replace(window, key_tokens=tokens, weights=item.weights[:, :, 3:], starts=(3, 0))
    assert notable_holders(attention_of(rows)) == notable_holders(attention_of(item))
    # Groups of a window know no number, only that a part of the text stands before them.
    groups = tuple(replace(token, start=n, end=n + 1) for n, token in enumerate(tokens[3:], 3))
    window = replace(window, query_tokens=groups, key_tokens=groups, starts=(0, 0))
    grouped = replace(attention_of(window), text="abcdefghijkl")
    assert notable_holders(grouped) == ("'d' holds 76% of the attention shown: a sink",)


def causal(rows):
    tokens = tuple(map(Token, "abcde"))
    return AttentionMap("causal", tokens, tokens, np.array([[rows]], np.float32))


RESTING = causal(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.9, 0.1, 0.0, 0.0, 0.0],
        [0.8, 0.1, 0.1, 0.0, 0.0],
        [0.8, 0.0, 0.15, 0.05, 0.0],
        [0.7, 0.0, 0.0, 0.1, 0.2],
    ]
)


def test_sinks_by_hand():
    found = treat_special(attention_of(RESTING), "renormalise")
    expected = np.zeros((5, 5))
    expected[1, 1] = 1
    expected[2, 1:3] = 0.5
    expected[3, 2:4] = 0.75, 0.25
    expected[4, 3:] = 1 / 3, 2 / 3
    np.testing.assert_allclose(found.weights[0, 0], expected, atol=1e-6)
    assert found.tokens == tuple("abcde")  # its place in the text stays, and is empty
    (note,) = found.provenance.notes
    assert note == (
        "the first token ('a') is a sink and was left out; it held 80% of causal; rows were made "
        "to sum to 1 again, and its own row is empty: it sees nothing else"
    )
    dropped = treat_special(attention_of(RESTING), "drop")
    np.testing.assert_allclose(dropped.weights[0, 0, 3], [0, 0, 0.15, 0.05, 0], atol=1e-6)
    again = treat_special(found, "renormalise")
    np.testing.assert_allclose(again.weights, found.weights, atol=1e-6)

    shares = sink_shares(attention_of(RESTING))
    assert (shares.first_is_sink, shares.special, shares.learned) == (True, None, None)
    assert shares.first == pytest.approx(0.8)
    assert shares.before == pytest.approx((0.1 + 0.15 + 0.1) / 0.8)
    assert shares.itself == pytest.approx((0.1 + 0.1 + 0.05 + 0.2) / 0.8)
    assert sinks_in_words(shares) == (
        "attention on the first token ('a', a sink) 80%; of the rest 44% goes to the token before "
        "and 56% to the token itself"
    )
    assert sink_shares(attention_of(BY_HAND)).special == pytest.approx(0.75)
    assert sink_shares(attention_of(RESTING, trained=False)) is None


def test_the_first_token_is_a_sink_or_not():
    even = causal(np.tri(5) / np.arange(1, 6)[:, None])
    assert not first_is_sink(even)
    assert first_is_sink(RESTING)
    first_special = replace(RESTING.key_tokens[0], special=True)
    tokens = (first_special, *RESTING.key_tokens[1:])
    assert not first_is_sink(replace(RESTING, query_tokens=tokens, key_tokens=tokens))
    assert not first_is_sink(replace(RESTING, begins=False))  # something stood before it
    ahead = RESTING.weights.copy()
    ahead[..., 0, 1] = 0.5
    assert not first_is_sink(RESTING.with_weights(ahead / ahead.sum(-1, keepdims=True)))
    item = replace(RESTING, query_tokens=TOKENS[:1] + tuple(map(Token, "bcde")),
                   key_tokens=TOKENS[:1] + tuple(map(Token, "bcde")))  # fmt: skip
    found = treat_special(attention_of(item), "renormalise").main
    assert not found.begins
    assert found.weights[0, 0, 0].tolist() == [1, 0, 0, 0]
    shares = sink_shares(attention_of(RESTING))
    other = replace(shares, first=0.4, first_is_sink=False, first_token="x", special=0.2)
    mean = mean_shares([shares, other])
    assert (mean.first, mean.special, mean.first_token) == (pytest.approx(0.6), 0.2, "")
    assert mean_shares([]) is None
    assert sinks_in_words(None) == ""
