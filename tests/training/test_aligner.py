"""The word aligner, against every path of a small model and on sentences with one answer."""

from itertools import product

import numpy as np
import pytest

from tests.pocket.small import SENTENCES
from training.aligner import FROM_NOTHING, Aligner, first_jumps, forward_backward, transitions


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
def links() -> list[np.ndarray]:
    pairs = [
        tuple(side.split() for side in line.replace(".", " .").split("\t"))
        for line in SENTENCES.splitlines()
    ]
    aligner = Aligner(pairs)  # type: ignore[arg-type]
    aligner.train()
    return aligner.links()


def test_links_are_shares_and_find_the_other_order(links):
    # The red car is fast .  /  La voiture rouge est rapide .
    assert links[0].argmax(axis=0).tolist() == [0, 2, 1, 3, 4, 5]
    for link in links:
        assert link.min() >= 0
        assert link.max() <= 1
        assert link.shape[0] > 2
