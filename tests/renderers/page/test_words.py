from __future__ import annotations

import pytest

from attnviz.attention_map import Token
from attnviz.renderers.page.words import gap, word_numbers


def tokens_of(text: str, *pieces: str) -> tuple[Token, ...]:
    found, at = [], 0
    for piece in pieces:
        start = text.index(piece.strip() or piece, at) - (len(piece) - len(piece.lstrip()))
        found.append(Token(piece, start, start + len(piece)))
        at = start + len(piece)
    return tuple(found)


@pytest.mark.parametrize(
    ("text", "pieces", "numbers"),
    [
        ("unhappy cat", ["un", "happy", "cat"], [0, 0, 1]),
        ("unhappy cat", ["un", "happy", " cat"], [0, 0, 1]),
        ("isn't it", ["isn", "'", "t", "it"], [0, 0, 0, 1]),
        ("the mats.", ["the", "mat", "s", "."], [0, 1, 1, 2]),
        ("wait, go-go", ["wait", ",", "go", "-", "go"], [0, 1, 2, 2, 2]),
        ("(well)", ["(", "we", "ll", ")"], [0, 1, 1, 2]),
        ("我们 abc", ["我", "们", "ab", "c"], [0, 1, 2, 2]),
    ],
)
def test_pieces_without_a_space_between_them_make_a_word(
    text: str, pieces: list[str], numbers: list[int]
) -> None:
    assert word_numbers(tokens_of(text, *pieces), text) == numbers


def test_nothing_to_join_is_said_as_nothing() -> None:
    assert word_numbers(tokens_of("a cat", "a", "cat"), "a cat") is None
    assert word_numbers((Token("a"), Token("b")), None) is None


def test_special_tokens_join_nothing() -> None:
    tokens = (Token("[CLS]", special=True), Token("un", 0, 2), Token("do", 2, 4))
    assert word_numbers(tokens, "undo") == [0, 1, 1]


def test_pieces_of_one_character_make_one_word_even_in_chinese() -> None:
    tokens = (Token("�", 0, 1), Token("�", 0, 1), Token("们", 1, 2))
    assert word_numbers(tokens, "我们") == [0, 0, 1]


def test_the_gap_between_tokens_is_what_the_text_has_there() -> None:
    text = "ab c\nd"
    a, b, c, d = (Token(x, n, n + 1) for x, n in (("a", 0), ("b", 1), ("c", 3), ("d", 5)))
    assert [gap(None, a, text), gap(a, b, text), gap(b, c, text), gap(c, d, text)] == [
        "",
        "",
        " ",
        "\n",
    ]
    assert gap(Token("[CLS]", special=True), a, text) == " "
