"""Text into words and punctuation with exact places, for layers without a tokenizer."""

from __future__ import annotations

from functools import cache
from typing import Any

from attnviz.attention_map import Token
from attnviz.errors import InputError

_WORD = r"[\w&&[^\p{Han}]]+(?:['’][\w&&[^\p{Han}]]+)*"
_PATTERN = rf"(?:\p{{Han}}|{_WORD}|(?!\s)\X)"
"""A Chinese character, a word with its inner apostrophes, or one visible sign (an emoji whole)."""


def split_words(text: str) -> tuple[Token, ...]:
    """The words and punctuation marks of a text, each with its place in it.

    Raises:
        InputError: there is none.
    """
    tokens = tuple(
        Token(word, start, end) for word, (start, end) in _splitter().pre_tokenize_str(text)
    )
    if not tokens:
        raise InputError("the text is empty")
    return tokens


@cache
def _splitter() -> Any:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    return Split(Regex(_PATTERN), behavior="removed", invert=True)
