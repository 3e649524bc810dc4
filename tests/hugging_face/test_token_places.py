"""Tokens placed in a text by what they read as."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from attnviz.models.hugging_face.inputs.tokenization import align_surfaces, fold_text


def placed(surfaces, text):
    return [text[start:end] for start, end in align_surfaces(surfaces, text)]


def test_each_token_gets_the_characters_it_reads_as():
    assert align_surfaces(["Hel", "lo", "world", None], "Hello world") == [
        (0, 3),
        (3, 5),
        (6, 11),
        (11, 11),
    ]


def test_repeated_words_are_taken_from_left_to_right():
    assert align_surfaces(["the", "cat", "the"], "the cat the") == [(0, 3), (4, 7), (8, 11)]


def test_case_accents_and_compatibility_forms_do_not_matter():
    assert placed(["cafe", "f", "i", "n"], "CAFÉ ﬁn") == ["CAFÉ", "ﬁ", "ﬁ", "n"]


def test_an_unknown_token_gets_what_its_neighbours_leave_over():
    assert placed(["a", "<unk>", "b"], "a ☃☃ b") == ["a", "☃☃", "b"]


def test_as_many_unknown_tokens_as_words_get_a_word_each():
    assert placed(["<unk>", "<unk>", "b"], "☃ ☂ b") == ["☃", "☂", "b"]


def test_unknown_tokens_that_cannot_be_told_apart_share_the_gap():
    assert placed(["<unk>", "<unk>", "b"], "☃☂ b") == ["☃☂", "☃☂", "b"]


def test_a_token_that_does_not_follow_is_not_looked_for_far_ahead():
    assert placed(["x", "b"], "a b x") == ["a", "b"]


def test_a_token_that_is_nowhere_covers_nothing():
    assert align_surfaces(["a", "zz"], "a") == [(0, 1), (1, 1)]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=8))
def test_pieces_of_a_text_are_placed_where_they_were_cut(pieces):
    text = "".join(pieces)
    assert placed(pieces, text) == pieces


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
