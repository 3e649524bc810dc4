"""A text in pieces, with their places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.errors import InputError
from attnviz.models.pocket.card import FOLDER, tokenizer_of
from attnviz.models.pocket.text import END, FRENCH, encode_text, token

PATH = tokenizer_of(FOLDER)


@given(st.text(alphabet="aé’' ,.\u00a0\u2009…ﬁ猫😀\n-", min_size=1, max_size=20))
def test_places_rise_and_miss_nothing_visible(text):
    try:
        reading = encode_text(text, PATH)
    except InputError:
        assert not text.strip()
        return
    covered: set[int] = set()
    before = 0
    for item in reading.tokens:
        assert before <= item.start <= item.end <= len(text)
        assert item.text
        before = item.start
        covered.update(range(item.start, item.end))
    assert all(place in covered for place, sign in enumerate(text) if not sign.isspace())


def test_plain_spellings_pieces_and_refusals():
    assert encode_text("l’été", PATH).ids == encode_text("l'été", PATH).ids
    assert encode_text("tu\u202fvas\u00a0!", PATH).ids == encode_text("tu vas !", PATH).ids
    assert token("a cat", "▁cat", (1, 5)).start == 2
    assert token("a  b", "▁", (1, 2)).text == "▁"
    assert [item.text for item in encode_text("…", PATH).tokens][-3:] == [".", ".", "."]
    with pytest.raises(InputError, match="the source is empty"):
        encode_text(" ", PATH, "source")


def test_the_encoder_reads_an_end_and_the_decoder_a_tag():
    reading = encode_text("Oui.", PATH)
    ids, tokens = reading.with_end()
    assert ids[-1] == END
    assert (tokens[-1].text, tokens[-1].start, tokens[-1].special) == ("<eos>", 4, True)
    ids, tokens = reading.with_tag("fr")
    assert ids[0] == FRENCH
    assert (tokens[0].text, tokens[0].end, tokens[0].special) == ("<fr>", 0, True)
