"""Sentence pairs cut into quarters, and where a second part begins."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.analyses.view import PAIR_STREAMS, divisions, is_pair, pair_stream, second_part
from attnviz.core.attention_map import PARTS, SECOND_PART, AttentionMap, TextParts, Token
from attnviz.core.errors import InputError
from tests.samples import attention_of, weights_of

TOKENS = (
    Token("[CLS]", special=True),
    Token("ab", 0, 2),
    Token("c", 3, 4),
    Token("[SEP]", special=True),
    Token("d", 5, 6),
    Token("[SEP]", special=True),
)
SETTINGS = {PARTS: "pair", SECOND_PART: 5}


@pytest.fixture
def pair():
    item = AttentionMap("self", TOKENS, TOKENS, weights_of((2, 3, 6, 6)))
    made = attention_of(item, text="ab c\nd", settings=SETTINGS)
    return replace(made, parts=TextParts("pair", 5))


def test_a_pair_is_divided_at_its_second_part(pair):
    assert divisions(pair, pair.main) == (4, 4)
    item = AttentionMap("self", TOKENS, TOKENS, weights_of((1, 1, 6, 6)))
    assert divisions(attention_of(item, text="ab c\nd"), item) == (None, None)
    assert is_pair(pair)
    assert not is_pair(replace(pair, parts=TextParts("prompt and output", 5)))
    assert second_part(pair, TOKENS[:4], "text") is None
    empty = (*TOKENS[:4], Token("", 5, 5), *TOKENS[4:])
    assert second_part(pair, empty, "text") == 5


def test_quarters_are_the_whole_and_no_pair(pair):
    quarters = [pair_stream(pair, stream).weights for stream in PAIR_STREAMS]
    rows = [np.concatenate(quarters[place : place + 2], axis=-1) for place in (0, 2)]
    assert np.array_equal(np.concatenate(rows, axis=-2), pair.weights)
    quarter = pair_stream(pair, "a-to-b")
    assert divisions(quarter, quarter.main) == (None, None)
    assert not quarter.provenance.settings
    assert quarter.parts is None
    assert not is_pair(quarter)
    settings = {**SETTINGS, "seed": 3}
    kept = replace(pair, provenance=replace(pair.provenance, settings=settings))
    assert pair_stream(kept, "b-to-b").provenance.settings == {"seed": 3}
    tokens = pair_stream(pair, "b-to-b").main.query_tokens
    assert [(token.start, token.end, token.special) for token in tokens] == [
        (0, 1, False),
        (0, 0, True),
    ]


@pytest.mark.parametrize("stream", PAIR_STREAMS)
def test_offsets_of_a_quarter_are_into_its_own_texts(stream, pair):
    found = pair_stream(pair, stream)
    texts = {"source": found.source, "target": found.target}
    assert (found.source, found.target, found.text) == ("ab c", "d", None)
    item = found.main
    assert item.stream == stream
    for tokens, side in ((item.query_tokens, item.query_side), (item.key_tokens, item.key_side)):
        words = [texts[side][token.start : token.end] for token in tokens if not token.special]
        assert words == (["ab", "c"] if side == "source" else ["d"])


def test_a_quarter_that_cannot_be_is_refused(pair):
    blocks = pair.main.with_weights(pair.weights, blocks=(2, 2))
    with pytest.raises(InputError, match=r"^--stream a-to-b needs single tokens"):
        pair_stream(replace(pair, maps=(blocks,)), "a-to-b")
    beyond = replace(pair, parts=TextParts("pair", 6))
    with pytest.raises(
        InputError, match=r"^no token stands for the second text, from character 6$"
    ):
        pair_stream(beyond, "a-to-b")
