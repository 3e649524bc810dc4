import pytest
from hypothesis import given

from attnviz.core.errors import InputError
from attnviz.models.own import word_tokens
from tests.samples import checked, odd_texts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", ["The", "cat", "sat", "."]),
        ("don't l’eau", ["don't", "l’eau"]),
        ("well-known, 3.5", ["well", "-", "known", ",", "3", ".", "5"]),
        ("我爱你 ok", ["我", "爱", "你", "ok"]),
        ("caffè cafe\u0301", ["caffè", "cafe\u0301"]),
        ("hi👩\u200d👩\u200d👧!🇫🇷", ["hi", "👩\u200d👩\u200d👧", "!", "🇫🇷"]),
        ("a\tb\nc\u3000d", ["a", "b", "c", "d"]),
        ("[bold]", ["[", "bold", "]"]),
        ("مرحبا بكم", ["مرحبا", "بكم"]),
    ],
)
def test_words_and_signs_are_tokens(text, words):
    assert [token.text for token in word_tokens(text)] == words


@checked
@given(odd_texts)
def test_every_place_is_exact(text):
    tokens = word_tokens(text)
    end = 0
    for token in tokens:
        assert text[token.start : token.end] == token.text != ""
        assert not text[end : token.start].strip()
        assert token.start >= end
        end = token.end
    assert not text[end:].strip()


@pytest.mark.parametrize("text", ["", " ", "\n\u3000\t"])
def test_a_text_without_words_is_refused(text):
    with pytest.raises(InputError, match="the text is empty"):
        word_tokens(text)
