"""Roles that people look for: by slow loops, by hand, and against chance."""

import numpy as np
import pytest

import attnviz
from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, TextParts, Token
from attnviz.core.effects import HeadAt, PredictedToken
from attnviz.features.heads import probes
from attnviz.features.measures.shares import lookback, receiver
from tests.invoke import attnviz as run

SENTENCES = tuple(f"{who} {did}." for who in ("Tom", "Mary", "Ann") for did in ("ran", "sat", "is"))
TEXT = " ".join(SENTENCES)
"""Nine sentences of two words."""
LM = ("--model", "pocket-lm")


def words_of(text):
    found, start = [], 0
    for word in text.split():
        start = text.index(word, start)
        found.append(Token(word, start, start + len(word)))
        start += len(word)
    return tuple(found)


def causal_map(weights, text):
    weights = np.tril(weights)
    weights /= weights.sum(-1, keepdims=True)
    tokens = words_of(text)
    return AttentionMap("causal", tokens, tokens, weights.astype(np.float32))


def read_map(text, heads, seed=0):
    """A map of random causal attention in two layers."""
    count = len(words_of(text))
    return causal_map(np.random.default_rng(seed).random((2, heads, count, count)), text)


def test_a_receiver_is_the_kurtosis_of_a_slow_loop():
    item = read_map(TEXT, 3)
    found = receiver(MeasuredMap(item, (TEXT, TEXT)))

    def kurtosis(weights):
        scores = []
        for key in range(5):  # of nine sentences these have one four later
            rows = [
                weights[2 * q : 2 * q + 2, 2 * key : 2 * key + 2].mean() for q in range(key + 4, 9)
            ]
            scores.append(np.mean(rows))
        off = np.array(scores) - np.mean(scores)
        return np.mean(off**4) / np.mean(off**2) ** 2

    expected = [[kurtosis(head.astype(float)) for head in layer] for layer in item.weights]
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)
    even = np.tril(np.ones((18, 18))) / np.arange(1, 19)[:, None]
    np.testing.assert_allclose(found.uniform, kurtosis(even), rtol=1e-5)


def test_one_sentence_that_receives_all_by_hand():
    weights = np.eye(18)[None, None] + 0
    weights[..., 14:, :] = 0
    weights[..., 14:, 2] = 1
    found = receiver(MeasuredMap(causal_map(weights, TEXT), (TEXT, TEXT)))
    assert found.values[0, 0] == pytest.approx(found.top) == pytest.approx(3.25)
    assert (
        receiver(MeasuredMap(causal_map(np.ones((1, 1, 14, 14)), " ".join(SENTENCES[:7])))) is None
    )


def test_lookback_is_the_ratio_of_a_slow_loop():
    item, first = read_map(TEXT, 3), 10
    found = lookback(MeasuredMap(item, (TEXT, TEXT), first))
    for layer in range(2):
        for head in range(3):
            ratios = []
            for row in range(first, 18):
                weights = item.weights[layer, head, row].astype(float)
                prompt, output = weights[:first].mean(), weights[first : row + 1].mean()
                ratios.append(prompt / (prompt + output))
            assert found.values[layer, head] == pytest.approx(np.mean(ratios), rel=1e-5)
    np.testing.assert_allclose(found.uniform, 0.5, rtol=1e-6)
    parts = TextParts("prompt and output", item.key_tokens[first].start)
    attention = Attention((item,), Provenance("made", "a"), text=TEXT, parts=parts)
    assert MeasuredMap.of(attention, item).output_start == first
    assert lookback(MeasuredMap(item, (TEXT, TEXT))) is None


def test_a_head_that_looks_at_what_comes_next_retrieves():
    def read(text):
        item = read_map(text, 40, len(text))
        words = [token.text for token in item.key_tokens]
        weights = item.weights.copy()
        for late in range(len(words) - 3, len(words)):
            weights[1, 7, late - 1] = np.eye(len(words))[words.index(words[late])]
        return Attention((causal_map(weights, text),), Provenance("made", "a"))

    found, even = probes.retrieval_scores(read)
    assert found[HeadAt("causal", "1", 7)] == 1
    others = [score for at, score in found.items() if at != HeadAt("causal", "1", 7)]
    assert even == pytest.approx(1 / 42, rel=0.05)
    assert np.mean(others) == pytest.approx(even, abs=0.01)


class Planted:
    """Two layers of three heads; head 1.2 adds three nats to the answer if it knows the task."""

    def __init__(self, text):
        tokens = words_of(text)
        weights = np.ones((2, 3, len(tokens), len(tokens)))
        self.attention = Attention((causal_map(weights, text),), Provenance("made", "planted"))
        self.outputs = tuple(PredictedToken(n - 1, 1, "answer", n) for n in range(1, len(tokens)))
        self.right = any(text.startswith(prompt) for prompt, _ in probes.prompts())

    def run(self, changes, instead=None):
        for change in changes:
            value = sum(
                float(instead["causal", at.layer][at.head].mean()) if at in change.heads else 1.0
                for at in (HeadAt("causal", "1", 2),)
            )
            yield np.full((len(self.outputs), 3), -4.0) + 3 * value

    def head_outputs(self):
        return {("causal", n): np.full((3, 1, 2), float(self.right)) for n in ("0", "1")}


def test_a_head_that_carries_the_task_costs_what_it_adds():
    found = probes.task_scores(Planted)
    assert found.pop(HeadAt("causal", "1", 2)) == pytest.approx(3)
    assert {*found.values()} == {0.0}
    prompt, answer = next(iter(probes.prompts()))
    assert prompt.count(",") == probes.SHOTS
    wrong, same = next(iter(probes.prompts(wrong_answers=True)))
    assert same == answer
    assert wrong != prompt
    assert sorted(wrong.replace(",", "").split()) == sorted(prompt.replace(",", "").split())


def test_the_model_inside_retrieves_with_its_induction_head():
    heads = run("heads", TEXT, *LM, "--probe", "--sort", "retrieval", "-f", "json").json()["heads"]
    assert (heads[0]["layer"], heads[0]["head"]) == (2, 3)
    assert heads[0]["values"]["retrieval"] > 0.8
    assert heads[1]["values"]["retrieval"] < 0.1
    assert heads[0]["uniform"]["retrieval"] == pytest.approx(1 / 48, rel=0.3)
    assert all(abs(one["values"]["function-vector"]) < 2 for one in heads)
    assert heads[0]["values"]["receiver"] > 0
    written = attnviz.heads("Tom likes", model="pocket-lm", generate=5, sort="lookback").value
    assert 0 < written.rows[0].values["lookback"] <= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b", "--probe", "-q"), "--probe needs a model that continues a text"),
        (("a b", *LM, "--sort", "retrieval"), "--sort retrieval needs attnviz heads --probe"),
        (("a b", "c d", "--cross", "--probe"), "--probe reads single texts"),
    ],
)
def test_mistakes_get_one_line(arguments, says):
    assert says in run("heads", *arguments).mistake
