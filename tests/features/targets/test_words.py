"""Which token a word of `--target` means."""

import numpy as np
import pytest

from attnviz.core.attention_map import Token
from attnviz.core.errors import UnfitTextError
from attnviz.features.targets.words import find_token, next_word


def test_a_word_is_named_by_its_text_and_place_from_the_first_that_can_be_meant():
    tokens = [Token(text) for text in ("a", "b", "a")]
    assert [find_token(tokens, word, 1) for word in ("b[1]", "a[0]", "a", "3", "0")] == [
        1, None, 2, 3, None,
    ]  # fmt: skip
    with pytest.raises(UnfitTextError, match=r"stands 2 times in the text: write .*'a\[0\]'"):
        find_token(tokens, "a")


def test_a_word_follows_where_a_mark_is_likelier_and_notes_are_kept():
    logits = np.log([0.5, 0.2, 0.3])
    word = next_word(4, logits, [], "abc".__getitem__, note="of two")
    assert (word.row, word.name, word.position, word.note) == (3, "a", 4, "of two")
    word = next_word(4, logits, [0], "abc".__getitem__, note="of two")
    assert (word.name, word.without) == ("c", (0,))
    assert word.note.startswith("of two; the model says 'a' here (p 0.50), which is no word")
