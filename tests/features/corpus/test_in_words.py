"""Maps over words, the pairs that they give, and the sentences in which a head fires most."""

import numpy as np
import pytest

from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.features.corpus.figures import WORD_BYTES, PairTable
from attnviz.features.corpus.results import SourceText
from attnviz.features.corpus.samples import Strongest
from attnviz.features.corpus.words import InWords, WordAxis, in_words, read_axis

TEXT = "unbelievable cats, unbelievable"
PIECES = (
    ("un", 0, 2),
    ("believable", 2, 12),
    ("cats", 13, 17),
    (",", 17, 18),
    ("unbelievable", 19, 31),
)


def pieces(causal: bool = False) -> AttentionMap:
    tokens = (Token("[CLS]", special=True), *(Token(*piece) for piece in PIECES))
    scores = np.random.default_rng(0).normal(size=(2, 3, 6, 6))
    if causal:
        scores[..., ~np.tri(6, dtype=bool)] = -np.inf
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return AttentionMap("causal" if causal else "self", tokens, tokens, weights.astype(np.float32))


def words_of(item: AttentionMap) -> InWords:
    axis = read_axis(item.key_tokens, TEXT)
    return in_words(MeasuredMap(item), axis, axis)


def made(weights: object, words: tuple[str, ...] = ("a", "b")) -> InWords:
    array = np.asarray(weights, dtype=np.float32)
    places = np.arange(len(words))
    axis = WordAxis(words, places, np.zeros(len(words), dtype=bool), places)
    return InWords(axis, axis, array, ~np.eye(len(words), dtype=bool))


def told(name: str) -> SourceText:
    return SourceText(name, (name,), ("a", "b"), ("a", "b"))


def test_weights_and_links_over_words():
    units = tuple(Token(TEXT[a:b], a, b) for a, b in ((0, 12), (13, 17), (17, 18), (19, 31)))
    expected = merge_words(pieces(), TEXT, TEXT, units).weights
    found = words_of(pieces())
    assert found.keys.words == ("[CLS]", "unbelievable", "cats", ",", "unbelievable")
    assert found.weights == pytest.approx(expected.reshape(6, 5, 5), abs=1e-6)
    full = np.ones((5, 5), dtype=bool)
    full[0] = full[:, 0] = False
    np.fill_diagonal(full, False)
    assert (words_of(pieces()).between == full).all()
    assert (words_of(pieces(causal=True)).between == full & np.tri(5, dtype=bool)).all()


def test_pairs_count_both_ways_and_where_they_occurred():
    item = words_of(pieces())
    table = PairTable(("unbelievable", "cats"), heads=6)
    table.add(item)
    assert table.counts.tolist() == [2, 2, 2, 0]
    both = item.weights[:, 1, 4] + item.weights[:, 4, 1]
    assert table.means(np.array([0]))[0] == pytest.approx(both / 2, abs=1e-6)
    table, again = (PairTable(("a", "b", "c"), heads=1) for _ in range(2))
    table.add(made([[[0.5, 0.25], [0.75, 0.5]]]))
    arrays = table.arrays()
    assert arrays["pairs"].tolist() == [1, 3]
    for _ in range(2):
        again.merge(*arrays.values())
    assert again.counts.tolist() == [0, 2, 0, 2, 0, 0, 0, 0, 0]
    assert again.means(np.array([1, 3])).ravel().tolist() == [0.25, 0.75]


@pytest.mark.parametrize(("heads", "words"), [(1, 300), (24, 300), (144, 170), (1024, 64)])
def test_the_table_of_pairs_has_bounds(heads, words):
    table = PairTable([f"w{number}" for number in range(1000)], heads)
    assert len(table.words) == words
    assert table.totals.nbytes <= WORD_BYTES


def test_the_strongest_links_stand_in_any_order():
    item = made([[[0, 0.5], [0.25, 0]]])
    for order in (range(15), reversed(range(15))):
        found = Strongest(1)
        for number in order:
            found.add(number, item, told(str(number)))
        found.settle()
        assert found.links[0, :, 1].tolist() == list(range(10))
        assert found.links[0, 0].tolist() == [0.5, 0, 0, 1]
        assert [*found.texts] == list(range(10))
    found = Strongest(1)
    found.add(0, made([[[1.0]]], ("a",)), told("a"))
    found.settle()
    assert (found.links == -1).all()
    assert not found.texts
