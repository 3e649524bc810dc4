"""Labels and places of tokens, for the four kinds of tokenizer in use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from attnviz.core.errors import InputError
from attnviz.core.tokens import tokens_of_pieces
from attnviz.models.hugging_face.inputs.tokenization import (
    align_surfaces,
    fold_text,
    label_tokens,
    locate_pieces,
    tokenize,
    tokenize_generated,
)
from tests.hugging_face.tiny_models import byte_pieces, unigram_pieces, word_pieces

MAKERS = {
    "WordPiece": word_pieces,
    "byte-level BPE": lambda: byte_pieces(around=True),
    "unigram": unigram_pieces,
    "bytes": ByT5Tokenizer,
}


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in MAKERS.items()}


def read(tokenizer, text):
    return [
        (token.text, text[token.start : token.end]) for token in tokenize(tokenizer, text).tokens
    ]


def test_word_pieces_keep_case_marks_and_places(tokenizers):
    assert read(tokenizers["WordPiece"], "Professor walking") == [
        ("[CLS]", ""),
        ("Professor", "Professor"),
        ("walk", "walk"),
        ("##ing", "ing"),
        ("[SEP]", ""),
    ]
    tokens = tokenize(tokenizers["WordPiece"], "the ☃").tokens
    assert (tokens[2].text, tokens[2].start, tokens[2].special) == ("[UNK]", 4, False)
    tokens = tokenize(tokenizers["WordPiece"], "the [SEP] [MASK]").tokens
    assert [(token.text, token.special) for token in tokens] == [
        ("[CLS]", True),
        ("the", False),
        ("[SEP]", True),
        ("[MASK]", False),
        ("[SEP]", True),
    ]
    tokens = tokenize(tokenizers["WordPiece"], "[CLS] the [SEP]").tokens
    assert [token.text for token in tokens] == ["[CLS]", "the", "[SEP]"]
    assert [token.special for token in tokens] == [True, False, True]
    for text, message in (
        ("", "blank"),
        (" \n\t ", "blank"),
        ("\x00\x01", "leaves no tokens"),
        ("the \ud83d car", "lone surrogate"),
    ):
        with pytest.raises(InputError, match=message):
            tokenize(tokenizers["WordPiece"], text)


def test_bytes_and_unigrams_read_as_the_text(tokenizers):
    assert read(tokenizers["byte-level BPE"], "a ☃")[1:-1] == [
        ("a", "a"),
        ("␣", " "),
        ("☃ 1/3", "☃"),
        ("☃ 2/3", "☃"),
        ("☃ 3/3", "☃"),
    ]
    found = read(tokenizers["unigram"], "The")
    assert found == [("␣", ""), ("T", "T"), ("##he", "he"), ("</s>", "")]
    found = read(tokenizers["unigram"], "ca ﬁ")
    assert found[-3:] == [("ﬁ 1/2", "ﬁ"), ("ﬁ 2/2", "ﬁ"), ("</s>", "")]
    assert not tokenizers["bytes"].is_fast
    assert read(tokenizers["bytes"], "a é\n") == [
        ("a", "a"),
        ("␣", " "),
        ("é 1/2", "é"),
        ("é 2/2", "é"),
        ("↵", "\n"),
        ("</s>", ""),
    ]


def test_inner_pieces_are_marked_where_there_are_spaces(tokenizers):
    for tokenizer in tokenizers.values():
        text = "The unprofessional's"
        tokens = [token for token in tokenize(tokenizer, text).tokens if token.end > token.start]
        marked = {token.start for token in tokens if token.text.startswith("##")}
        inside = {token.start for token in tokens if text[token.start - 1 :][:2].isalpha()}
        assert marked == inside - {0}
    pieces, spans = ["学", "生", "ab"], [(0, 1), (1, 2), (2, 4)]
    found = [token.text for token in label_tokens(pieces, spans, [0, 0, 0], "学生ab", None)]
    assert found == ["学", "生", "##ab"]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "text",
    ["The professor isn't here.", "学生 café 😀!", " \tx\n\n y", "e\u0301 ﬁ ½ 한국어 العربية"],
)
def test_places_are_in_order_and_cover_every_letter(name, text, tokenizers):
    tokens = [token for token in tokenize(tokenizers[name], text).tokens if not token.special]
    assert all(token.text for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)
    covered = {place for token in tokens for place in range(token.start, token.end)}
    letters = {place for place, letter in enumerate(text) if letter.isalnum()}
    assert letters <= covered


def test_generated_tokens_have_places_and_names(tokenizers):
    ids = [0, *tokenizers["unigram"]("The car")["input_ids"]]
    text, tokens = tokenize_generated(tokenizers["unigram"], ids)
    assert text == "The car"
    assert (tokens[0].text, tokens[0].special) == ("<pad>", True)
    assert "".join(text[token.start : token.end] for token in tokens) == "Thecar"
    _, tokens = tokenize_generated(tokenizers["WordPiece"], [5, 9999])
    assert (tokens[1].text, tokens[1].special) == ("<9999>", True)


@pytest.mark.parametrize("name", sorted({*MAKERS} - {"bytes"}))
def test_pieces_alone_are_named_as_those_of_a_model(name, tokenizers):
    """What one's own code saves of `convert_ids_to_tokens`; a piece may have lost its case."""
    read = tokenize(tokenizers[name], "the car and the cat sat on it")
    pieces = tokenizers[name].convert_ids_to_tokens(read.ids)
    tokens, text = tokens_of_pieces(pieces)
    assert [(one.text.casefold(), one.special) for one in tokens] == [
        (one.text.casefold(), one.special) for one in read.tokens
    ]
    assert text == "" or "".join(text.split()) == "thecarandthecatsatonit"


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


def test_odd_pieces_have_places():
    for surfaces, text, expected in PLACES:
        assert placed(surfaces, text) == expected
        assert align_surfaces(["the", "cat", "the"], "the cat the") == [(0, 3), (4, 7), (8, 11)]

    class Joined:
        name_or_path = "made up"

        def convert_tokens_to_string(self, pieces):
            return " ".join(pieces).replace("@@ ", "")

    pieces, text = ["un@@", "be@@", "liev@@", "able", "news"], "unbelievable news"
    spans = locate_pieces(Joined(), pieces, [0] * 5, text)
    assert [text[start:end] for start, end in spans] == ["un", "be", "liev", "able", "news"]

    class Bytes:
        """Pieces of bytes in Latin-1."""

        name_or_path = "made up"

        def convert_tokens_to_string(self, pieces):
            return "".join(pieces).encode("latin-1").decode("utf-8", "replace")

    pieces = ["y", "\xe2", "yr", "\xc3", "\xa9", "\x80", "\x80", "\x80", "\x80", "\x80", "ve"]
    text = Bytes().convert_tokens_to_string(pieces)
    spans = locate_pieces(Bytes(), pieces, [0] * len(pieces), text)
    names = [text[start:end] for start, end in spans]
    assert names[:5] == ["y", "�", "yr", "é", "é"]
    assert (names[-1], names[5:9], names[9]) == ("ve", ["����"] * 4, "�")
    assert fold_text("É ﬁ") == ("efi", [0, 2, 2, 3])


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
