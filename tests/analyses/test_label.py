import pytest

from attnviz.analyses.tokens import label_tokens
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import InputError
from tests.samples import attention_of, self_map, weights_of

TEXT = "John McKay ran"
PIECES = (
    Token("[CLS]", special=True),
    Token("John", 0, 4),
    Token("Mc", 5, 7),
    Token("Kay", 7, 10),
    Token("ran", 11, 14),
    Token("[SEP]", special=True),
)


def pieces() -> Attention:
    return attention_of(AttentionMap("self", PIECES, PIECES, weights_of((1, 1, 6, 6))), text=TEXT)


def labels(attention: Attention) -> list[str | None]:
    assert attention.main.key_tokens == attention.main.query_tokens
    return [token.label for token in attention.main.query_tokens]


def test_labels_are_a_word_each_or_a_piece_each():
    found = label_tokens(pieces(), ("B-PER", "I-PER", "O"))
    assert labels(found) == [None, "B-PER", "I-PER", "I-PER", None, None]
    found = label_tokens(pieces(), ("A", "B", "C", "O"))
    assert labels(found) == [None, "A", "B", "C", None, None]
    attention = attention_of(self_map(["a", "b"]))
    assert labels(label_tokens(attention, ("X", "O"))) == ["X", None]
    with pytest.raises(InputError, match="1 labels for 2 tokens"):
        label_tokens(attention, ("X",))


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_any_other_number_is_refused(count):
    with pytest.raises(InputError, match=f"{count} labels for 4 tokens: John Mc Kay ran"):
        label_tokens(pieces(), ("X",) * count)


def test_labels_of_a_pair_and_of_a_summary():
    queries, keys = (Token("le", 0, 2), Token("chat", 3, 7)), (Token("the", 0, 3),)
    cross = AttentionMap(
        "cross", queries, keys, weights_of((1, 1, 2, 1)), query_side="target", key_side="source"
    )
    encoder = AttentionMap(
        "encoder", keys, keys, weights_of((1, 1, 1, 1)), query_side="source", key_side="source"
    )
    pair = Attention((cross, encoder), attention_of().provenance, source="the", target="le chat")
    found = label_tokens(pair, ("O", "ANIMAL"))
    assert [token.label for token in found.maps[0].query_tokens] == [None, "ANIMAL"]
    assert found.maps[0].key_tokens == found.maps[1].query_tokens == keys

    keys = (Token("a", 0, 1), Token("b", 2, 3))
    item = AttentionMap(
        "a",
        (Token("[summary]", special=True),),
        keys,
        weights_of((1, 1, 1, 2)),
        query_side="summary",
        key_side="source",
    )
    found = label_tokens(Attention((item,), attention_of().provenance, source="a b"), ("O", "X"))
    assert [token.label for token in found.main.key_tokens] == [None, "X"]
