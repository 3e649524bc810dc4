"""Which tokens make up a word, from their places in the text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from attnviz.attention_map import Token


def word_numbers(tokens: Sequence[Token], text: str | None) -> list[int] | None:
    """For each token the number of its word; None where each token is a word of its own.

    A word is a run of characters without white space. Punctuation at its two ends stands alone, as
    do special tokens, and Chinese or Japanese characters, between which no space shows a border.
    """
    if not text:
        return None
    numbers: list[int] = []
    for place in range(len(tokens)):
        joined = place > 0 and _one_word(tokens, place, text)
        numbers.append(numbers[-1] + (not joined) if numbers else 0)
    return None if numbers[-1] + 1 == len(tokens) else numbers


def gap(before: Token | None, token: Token, text: str | None) -> str:
    """What stands between two tokens in running text: nothing, a space or a line break."""
    if before is None:
        return ""
    if not text or _placeless(before) or _placeless(token):
        return " "
    between = text[before.end : token.start] if before.end <= token.start else ""
    if "\n" in between or "\n" in token.text:
        return "\n"
    starts_blank = text[token.start : token.start + 1].isspace()
    return " " if between or starts_blank else ""


def _one_word(tokens: Sequence[Token], place: int, text: str) -> bool:
    before, token = tokens[place - 1], tokens[place]
    if _placeless(before) or _placeless(token) or gap(before, token, text):
        return False
    if token.start < before.end:
        return True
    if _ideograph(text[before.end - 1 : before.end]) or _ideograph(text[token.start : token.end]):
        return False
    if _mark(text[token.start : token.end]):
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        return (
            after is not None
            and not _mark(text[before.start : before.end])
            and _follows(token, after, text)
        )
    return not _mark(text[before.start : before.end]) or (
        place > 1 and _one_word(tokens, place - 1, text)
    )


def _follows(token: Token, after: Token, text: str) -> bool:
    """True where a token that is no mark comes straight after."""
    if _placeless(after) or after.start != token.end:
        return False
    return (
        not _mark(text[after.start : after.end])
        and not text[after.start : after.start + 1].isspace()
    )


def _placeless(token: Token) -> bool:
    return token.special or token.end <= token.start


def _mark(piece: str) -> bool:
    """True for text without a letter or digit."""
    return not any(character.isalnum() for character in piece)


def _ideograph(piece: str) -> bool:
    if not piece or piece.isascii():
        return False
    name = unicodedata.name(piece.strip()[:1] or " ", "")
    return name.startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))
