"""Word alignments out of weights, their symmetrisation and their error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.registry import SYMMETRIZATIONS
from attnviz.features.align.links import (
    Links,
    Score,
    align,
    mutual,
    pharaoh,
    read_gold,
    read_pharaoh,
    symmetrize,
    words_only,
)

END = Token("<eos>", 9, 9, special=True)
TAG = Token("<fr>", 0, 0, special=True)
LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def words(text: str) -> tuple[Token, ...]:
    return tuple(Token(word) for word in text.split())


def test_words_are_linked_to_what_they_look_at_most():
    weights = np.array([[0.1, 0.1, 0.8], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.3, 0.1, 0.6]])
    links = align(weights, (TAG, *words("la rouge et")), (*words("red the"), END))
    assert links == {(1, 0), (0, 1)}
    weights = np.array([[0.4, 0.2, 0.4], [0.3, 0.1, 0.6]])
    assert align(weights, words("la le"), (*words("the red"), END)) == {(0, 0)}
    weights = np.array([[0.25, 0.25, 0.5]])
    assert align(weights, words("la"), (*words("the red"), END)) == {(0, 0)}
    assert align(np.ones((1, 1)), words("la"), (END,)) == frozenset()
    weights = np.arange(6.0).reshape(2, 3)
    kept = words_only(weights, (TAG, Token("a")), (Token("b"), Token("c"), END))
    assert kept.tolist() == [[3.0, 4.0]]


def test_mutual_links_are_the_largest_of_row_and_column():
    assert mutual(np.array([[0.9, 0.5], [0.8, 0.1], [0.0, 0.6]])) == {(0, 0), (2, 1)}
    assert mutual(np.zeros((2, 2))) == frozenset()
    assert mutual(np.zeros((0, 2))) == mutual(np.zeros((2, 0))) == frozenset()


def alignment_error(predicted: list[Links], sure: list[Links], possible: list[Links]) -> float:
    score = Score()
    for sentence in zip(predicted, sure, possible, strict=True):
        score.add(*sentence)
    return score.error


def test_the_error_by_hand():
    sure, possible = frozenset({(0, 0), (1, 1)}), frozenset({(2, 1)})
    predicted = frozenset({(0, 0), (2, 1), (3, 3)})
    # |A ∩ S| = 1, |A ∩ P| = 2, |A| = 3, |S| = 2
    assert alignment_error([predicted], [sure], [possible]) == pytest.approx(1 - 3 / 5)
    one, none = frozenset({(0, 0)}), frozenset[tuple[int, int]]()
    error = alignment_error([one, none], [one, one], [one, one])
    assert error == pytest.approx(1 - 2 / 3)
    assert alignment_error([frozenset()], [frozenset()], [frozenset()]) == 0


def koehn(  # noqa: C901 - as it is published
    e2f: frozenset, f2e: frozenset, words: int, final: str
) -> set[tuple[int, int]]:
    """The pseudo-code of Koehn et al. 2005 (and 2003), loop by loop."""
    neighbouring = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
    alignment = {point for point in e2f if point in f2e}

    def e_aligned(e: int) -> bool:
        return any((e, f) in alignment for f in range(words))

    def f_aligned(f: int) -> bool:
        return any((e, f) in alignment for e in range(words))

    added = True
    while added:
        added = False
        for e in range(words):
            for f in range(words):
                if (e, f) not in alignment:
                    continue
                for down, across in neighbouring:
                    new = (e + down, f + across)
                    in_union = new in e2f or new in f2e
                    free = not e_aligned(new[0]) or not f_aligned(new[1])
                    if free and in_union and new not in alignment:
                        alignment.add(new)
                        added = True
    for a in (e2f, f2e):
        for e in range(words):
            for f in range(words):
                free = (not e_aligned(e), not f_aligned(f))
                if (all(free) if final == "and" else any(free)) and (e, f) in a:
                    alignment.add((e, f))
    return alignment


CROWDED = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=14)


@pytest.mark.slow
@settings(max_examples=300)
@given(CROWDED, CROWDED)
def test_growing_is_the_published_pseudo_code(forward, reverse):
    for how, final in (("grow-diag-final", "or"), ("grow-diag-final-and", "and")):
        assert symmetrize(forward, reverse, how) == koehn(forward, reverse, 5, final)


def test_an_unknown_symmetrization_is_refused():
    for unknown in ("intersect", "product"):
        with pytest.raises(UsageError, match="intersection") as caught:
            symmetrize(frozenset(), frozenset(), unknown)
        assert str(caught.value).count("product") == (unknown == "product")


def test_lines_of_links_are_written_and_read():
    assert pharaoh(frozenset({(3, 3), (2, 1), (0, 0), (1, 2)})) == "0-0 2-1 1-2 3-3"
    with pytest.raises(InputError, match="'1:2' is no alignment link"):
        read_pharaoh("0-0 1:2")
    assert read_gold("0-0 1?2 2-1 3p3") == ({(0, 0), (2, 1)}, {(1, 2), (3, 3)})


@given(LINKS)
def test_lines_are_read_as_they_were_written(links):
    assert read_pharaoh(pharaoh(links)) == links


def test_each_way_to_join_two_directions_by_hand():
    forward, reverse = frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (3, 4)})
    found = {how: symmetrize(forward, reverse, how) for how in SYMMETRIZATIONS if how != "product"}
    assert found["forward"] == forward
    assert found["reverse"] == reverse
    assert found["intersection"] == {(0, 0)}
    assert found["union"] == found["grow-diag-final-and"] == {(0, 0), (1, 1), (3, 4)}
    # Beside a mutual link grows one of a free word; the last step alone would leave it out.
    forward, reverse = frozenset({(0, 0), (0, 1)}), frozenset({(0, 0)})
    assert symmetrize(forward, reverse, "grow-diag-final-and") == forward
