"""Training texts and their links: who should look at whom, what is hidden, what goes on where."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from attnviz.core.errors import InputError
from attnviz.models.pocket.text import END, ENGLISH, FRENCH, MASK, PAD, SPECIALS
from tests.pocket.small import SENTENCES, small_examples
from training import corpus
from training.aligner import FROM_NOTHING, Aligner, first_jumps, forward_backward, transitions
from training.batches import IGNORED, Examples, Recipe, batches, guide_rows, replace_word, spellings
from training.corpus import Pieces
from training.tokenizer import learn_pieces

PLAIN = Recipe(
    french_to_english=0, language_model=0, chain=0, joined=0, spaced=0, unknown_words=0, masked=0
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return small_examples(tmp_path_factory.mktemp("pairs"), PLAIN)[0]


def with_recipe(examples: Examples, **chances: float) -> Examples:
    from copy import copy

    changed = copy(examples)
    changed.recipe = replace(PLAIN, **chances)  # type: ignore[arg-type]
    return changed


def test_rows_are_led_and_brought_back_to_one():
    source = Pieces(np.array([10, 11, 12], np.int32), np.array([0, 1, 1], np.int32))
    target = Pieces(np.array([20, 21, 22], np.int32), np.array([0, 1, 2], np.int32))
    links = np.array([[0, 1, 0], [0.8, 0, 0]], np.float32)
    np.testing.assert_allclose(
        guide_rows(source, target, links),
        [
            [0, 0, 0, 0],  # the tag is led nowhere
            [0, 0.4, 0.4, 0.2],  # word 0 to word 1, shared out over its pieces, the rest to <eos>
            [1, 0, 0, 0],
            [0, 0, 0, 1],  # a word without a partner
        ],
        atol=1e-6,
    )
    pieces = Pieces(np.array([10, 11], np.int32), np.array([0, 1], np.int32))
    rows = guide_rows(pieces, pieces, np.ones((2, 2), np.float32))
    np.testing.assert_allclose(rows[1:], [[0.5, 0.5, 0], [0.5, 0.5, 0]])


def test_examples_by_their_recipes(examples):
    one = examples.draw(np.random.default_rng(0))
    assert one.source[-1] == END
    assert one.target[0] == FRENCH
    assert one.expected.tolist() == [*one.target[1:], END]
    assert (one.hidden == IGNORED).all()
    np.testing.assert_allclose(one.guide[1:].sum(-1), 1, atol=1e-6)
    turned = with_recipe(examples, french_to_english=1)
    assert turned.draw(np.random.default_rng(0)).target[0] == ENGLISH
    one = with_recipe(examples, language_model=1).draw(np.random.default_rng(0))
    assert one.source.tolist() == [END]
    assert not one.guide.any()
    one = with_recipe(examples, masked=1, masked_piece=0.5).draw(np.random.default_rng(1))
    covered = one.source == MASK
    assert covered.any()
    assert ((one.hidden != IGNORED) == covered).all()
    assert not covered[-1]
    chained = with_recipe(examples, chain=1)
    one = chained.draw(np.random.default_rng(2))
    stops = np.flatnonzero(one.source == chained.stop)
    assert len(stops) >= 2
    rows = np.flatnonzero(one.target == chained.stop)
    assert len(rows) == len(stops)
    before = one.guide[: rows[0] + 1, stops[0] + 1 : -1]
    assert not before.any()
    batch = next(batches(examples, seed=0, start=0, pieces=60, bands=2))
    assert (batch.expected[batch.target == PAD] == IGNORED).all()
    assert not batch.guide[batch.target == PAD].any()
    plain = examples.draw(np.random.default_rng(0))
    assert plain.spelling.tolist() == [*examples.spellings[plain.source[:-1]], IGNORED]
    masked = with_recipe(examples, masked=1, masked_piece=0.5).draw(np.random.default_rng(0))
    assert (masked.spelling == IGNORED).all()


def test_made_up_words_keep_their_links(examples):
    made_up = with_recipe(examples, unknown_words=1, unknown_word=1)
    hidden = 0
    for seed in range(8):
        one = made_up.draw(np.random.default_rng(seed))
        assert one.guide.shape == (len(one.target), len(one.source))
        assert len(one.expected) == len(one.target)
        np.testing.assert_allclose(one.guide[1:].sum(-1), 1, atol=1e-6)
        hidden += int((one.expected == IGNORED).sum())
    assert hidden > 0


def test_words_are_exchanged_spelled_and_split():
    text = Pieces(np.array([5, 6, 7], np.int32), np.array([0, 1, 1], np.int32))
    changed = replace_word(text, 1, np.array([9, 9, 9], np.int32))
    assert changed.ids.tolist() == [5, 9, 9, 9]
    assert changed.words.tolist() == [0, 1, 1, 1]
    words = [*SPECIALS, "▁The", "▁the", "▁cat"]
    vocabulary = {word: number for number, word in enumerate(words)}
    found = spellings(Tokenizer(WordLevel(vocabulary, unk_token="<unk>")))
    assert found[:6].tolist() == [IGNORED] * 6
    assert found[6] == found[7] != found[8]
    assert corpus.clean("J\u2019ai\u202ffaim\u00a0! mon\u00adde\u200b") == "J'ai faim ! monde"
    assert corpus.split_words("the cat's here.", "en") == ["the", "cat", "'s", "here", "."]
    assert corpus.split_words("l'eau, qu'il", "fr") == ["l'", "eau", ",", "qu'", "il"]


def test_a_run_goes_on_with_the_same_batches(examples):
    whole = batches(examples, seed=3, start=0, pieces=30, bands=2)
    expected = [next(whole) for _ in range(9)][6:]
    again = batches(examples, seed=3, start=6, pieces=30, bands=2)
    for one, other in zip(expected, again, strict=False):
        assert (one.source == other.source).all()
        assert (one.target == other.target).all()
        assert (one.guide == other.guide).all()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(learn_pieces(["L'eau est là !", "The cat's here."] * 9, 60))


def test_pairs_are_read_and_refused_by_line(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("Go.\tVa !\tCC-BY\n\nHi.\tSalut !\n", encoding="utf-8")
    assert corpus.read_pairs(path) == [corpus.Pair("Go.", "Va !"), corpus.Pair("Hi.", "Salut !")]
    path = tmp_path / "pairs.txt"
    path.write_text("Go.\tVa !\nHi.\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of '.*' has no tab"):
        corpus.read_pairs(path)
    with pytest.raises(InputError, match="cannot read"):
        corpus.read_pairs(tmp_path / "nowhere.txt")
    pairs = [
        corpus.Pair("Go.", "Va !"),
        corpus.Pair("Go.", "Allez !"),
        corpus.Pair("Hi.", "Salut !"),
    ]
    assert corpus.leave_out(pairs, ["Go."]) == [corpus.Pair("Hi.", "Salut !")]


@pytest.mark.parametrize("style", [corpus.tokenize_natural, corpus.tokenize_spaced])
def test_pieces_spell_the_word_they_say_they_belong_to(style, tokenizer):
    for text, language in (("L'eau est là !", "fr"), ("The cat's here.", "en")):
        (pieces,) = style(tokenizer, [text], language)  # type: ignore[operator]
        words = corpus.split_words(text, language)
        spelt = [""] * len(words)
        for number, word in zip(pieces.ids, pieces.words, strict=True):
            spelt[word] += tokenizer.id_to_token(int(number)).replace("▁", "")
        assert spelt == words


def by_every_path(
    chances: np.ndarray, nothing: np.ndarray, jumps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of one pair by adding up every sequence of (place, from nothing or not)."""
    words, places = chances.shape
    moves = transitions(jumps, places)
    moves = (1 - FROM_NOTHING) * moves / moves.sum(-1, keepdims=True)
    linked, rest, total = np.zeros((words, places)), np.zeros(words), 0.0
    states = list(product(range(places), (False, True)))
    for path in product(states, repeat=words):
        chance, place = 1.0, -1
        for word, (next_place, from_nothing) in enumerate(path):
            if from_nothing:
                stays = next_place == max(place, 0)
                chance *= FROM_NOTHING * nothing[word] * stays
            else:
                chance *= moves[place + 1, next_place] * chances[word, next_place]
            place = next_place
        total += chance
        for word, (place, from_nothing) in enumerate(path):
            if from_nothing:
                rest[word] += chance
            else:
                linked[word, place] += chance
    return linked / total, rest / total


def test_posteriors_equal_the_sum_over_every_path():
    random = np.random.default_rng(0)
    chances, nothing = random.random((3, 2)), random.random(3)
    expected = by_every_path(chances, nothing, first_jumps())
    padded = np.zeros((2, 4, 3))
    padded[0, :3, :2], padded[1] = chances, random.random((4, 3))
    none = np.zeros((2, 4))
    none[0, :3], none[1] = nothing, 0.1
    given = np.array([[True, True, False], [True] * 3])
    explained = np.array([[True, True, True, False], [True] * 4])
    linked, rest, _ = forward_backward(padded, none, given, explained, first_jumps())
    np.testing.assert_allclose(linked[0, :3, :2], expected[0], atol=1e-12)
    np.testing.assert_allclose(rest[0, :3], expected[1], atol=1e-12)
    np.testing.assert_allclose(linked[1].sum(-1) + rest[1], 1, atol=1e-12)
    assert linked[0, 3].sum() == rest[0, 3] == 0


@pytest.fixture(scope="module")
def trained_links() -> list[np.ndarray]:
    pairs = [
        tuple(side.split() for side in line.replace(".", " .").split("\t"))
        for line in SENTENCES.splitlines()
    ]
    aligner = Aligner(pairs)  # type: ignore[arg-type]
    aligner.train()
    return aligner.links()


def test_links_are_shares_and_find_the_other_order(trained_links):
    # The red car is fast .  /  La voiture rouge est rapide .
    assert trained_links[0].argmax(axis=0).tolist() == [0, 2, 1, 3, 4, 5]
    for link in trained_links:
        assert link.min() >= 0
        assert link.max() <= 1
        assert link.shape[0] > 2
