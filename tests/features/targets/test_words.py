"""Which token a word of `--target` means."""

import pytest

from attnviz.core.attention_map import Token
from attnviz.core.errors import UnfitTextError
from attnviz.features.targets.words import find_token


def test_a_word_is_named_by_its_text_and_place_from_the_first_that_can_be_meant():
    tokens = [Token(text) for text in ("a", "b", "a")]
    assert [find_token(tokens, word, 1) for word in ("b[1]", "a[0]", "a", "3", "0")] == [
        1, None, 2, 3, None,
    ]  # fmt: skip
    with pytest.raises(UnfitTextError, match=r"stands 2 times in the text: write .*'a\[0\]'"):
        find_token(tokens, "a")
