"""Tokens placed in a text by what they read as."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.models.hugging_face.inputs.tokenization import align_surfaces, fold_text


def placed(surfaces, text):
    return [text[start:end] for start, end in align_surfaces(surfaces, text)]


PLACES = [
    (["Hel", "lo", "world", None], "Hello world", ["Hel", "lo", "world", ""]),
    (["cafe", "f", "i", "n"], "CAFÉ ﬁn", ["CAFÉ", "ﬁ", "ﬁ", "n"]),
    (["a", "<unk>", "b"], "a ☃☃ b", ["a", "☃☃", "b"]),  # what its neighbours leave over
    (["<unk>", "<unk>", "b"], "☃ ☂ b", ["☃", "☂", "b"]),  # as many words as unknown tokens
    (["<unk>", "<unk>", "b"], "☃☂ b", ["☃☂", "☃☂", "b"]),  # fewer words share the gap
    (["x", "b"], "a b x", ["a", "b"]),  # a token that does not follow is not searched far ahead
    (["a", "zz"], "a", ["a", ""]),
]


@pytest.mark.parametrize(("surfaces", "text", "expected"), PLACES)
def test_tokens_are_placed_from_left_to_right(surfaces, text, expected):
    assert placed(surfaces, text) == expected
    assert align_surfaces(["the", "cat", "the"], "the cat the") == [(0, 3), (4, 7), (8, 11)]


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=8))
def test_pieces_of_a_text_are_placed_where_they_were_cut(pieces):
    text = "".join(pieces)
    assert placed(pieces, text) == pieces


@pytest.mark.slow
@given(
    st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=8),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_spans_stay_in_the_text_and_in_order(surfaces, text):
    spans = align_surfaces(surfaces, text)
    assert len(spans) == len(surfaces)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    starts = [start for start, end in spans if end > start]
    assert starts == sorted(starts)


def test_folding_remembers_where_each_letter_was():
    assert fold_text("É ﬁ") == ("efi", [0, 2, 2, 3])
