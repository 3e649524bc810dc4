"""Pieces joined into words."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attnviz.analyses import words as words_module
from attnviz.analyses.group import WAYS, group_attention
from attnviz.analyses.tokens import label_tokens
from attnviz.analyses.words import (
    merge_attention,
    merge_words,
    split_marks,
    split_words,
    word_numbers,
    words_of,
)
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.core.notices import notices_to
from tests.samples import checked

TEXT = "unhappy cats !"
PIECES = (
    Token("<s>", 0, 0, special=True),
    Token("un", 0, 2),
    Token("happy", 2, 7),
    Token("cats", 7, 12),
    Token("▁", 12, 13),
    Token("!", 13, 14),
    Token("</s>", 14, 14, special=True),
)


def test_which_word_a_piece_belongs_to():
    assert [(w.text, w.start, w.end) for w in split_words("  l'eau,\tvite ! ")] == [
        ("l'eau,", 2, 8),
        ("vite", 9, 13),
        ("!", 14, 15),
    ]
    assert word_numbers(PIECES, TEXT) == [None, 0, 0, 1, 2, 2, None]
    assert word_numbers((Token("a", 0, 1), Token("▁", 1, 2)), "a ") == [0, 0]
    assert word_numbers((Token("a", 0, 1), Token("▁", 2, 2), Token("b", 2, 3)), "a b") == [0, 1, 1]


def test_pieces_are_joined_and_special_tokens_stay():
    tokens = (Token("un", 0, 2), Token("do", 2, 4), Token("it", 5, 7))
    weights = np.array([[[[0.2, 0.3, 0.5], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]]]], dtype=np.float32)
    merged = merge_words(AttentionMap("self", tokens, tokens, weights), "undo it", "undo it")
    assert [token.text for token in merged.query_tokens] == ["undo", "it"]
    np.testing.assert_allclose(merged.weights[0, 0], [[0.65, 0.35], [0.2, 0.8]], atol=1e-6)
    weights = np.full((1, 1, 7, 7), 1 / 7, dtype=np.float32)
    merged = merge_words(AttentionMap("self", PIECES, PIECES, weights), TEXT, TEXT)
    assert [token.text for token in merged.key_tokens] == ["<s>", "unhappy", "cats", "!", "</s>"]
    assert merged.weights[0, 0, 1].tolist() == pytest.approx([1 / 7, 2 / 7, 1 / 7, 2 / 7, 1 / 7])
    tokens = split_words("one two three")
    weights = np.random.default_rng(0).dirichlet(np.ones(3), (2, 2, 3)).astype(np.float32)
    merged = merge_words(AttentionMap("self", tokens, tokens, weights), *("one two three",) * 2)
    np.testing.assert_allclose(merged.weights, weights, atol=1e-6)
    assert merged.query_tokens == tokens


@given(
    st.lists(st.sampled_from(["a", "bc", " ", " d", "  "]), min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
)
def test_rows_keep_their_sums(pieces, seed):
    text = "".join(pieces)
    tokens, place = [], 0
    for piece in pieces:
        tokens.append(Token(piece, place, place + len(piece)))
        place += len(piece)
    count = len(tokens)
    weights = np.random.default_rng(seed).dirichlet(np.ones(count), (1, 2, count))
    item = AttentionMap("self", tuple(tokens), tuple(tokens), weights.astype(np.float32))
    np.testing.assert_allclose(merge_words(item, text, text).weights.sum(-1), 1, atol=1e-5)


def test_each_map_is_merged_by_its_own_texts():
    source = (Token("re", 0, 2), Token("d", 2, 3), Token("<eos>", 3, 3, special=True))
    target = (Token("rou", 0, 3), Token("ge", 3, 5))
    weights = np.array([[[[0.4, 0.4, 0.2], [0.1, 0.5, 0.4]]]], dtype=np.float32)
    cross = AttentionMap("cross", target, source, weights, query_side="target", key_side="source")
    provenance = Provenance("pocket", "pocket", trained=True)
    merged = merge_attention(Attention((cross,), provenance, source="red", target="rouge"))
    np.testing.assert_allclose(merged.weights[0, 0], [[0.7, 0.3]], atol=1e-6)
    assert merged.provenance.steps == ("pieces joined into words",)


def test_blocks_cannot_be_joined_or_labelled():
    item = AttentionMap("self", PIECES, PIECES, np.full((1, 1, 7, 7), 1 / 7, np.float32))
    blocks = Attention(
        (item.with_weights(item.weights, blocks=(2, 2)),), Provenance("file", "made up"), TEXT
    )
    with pytest.raises(InputError, match=r"^grouping needs single tokens"):
        merge_attention(blocks)
    with pytest.raises(InputError, match=r"^labelling needs single tokens"):
        label_tokens(blocks, ["O"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("La maison. Oui: «non!»", ["La", "maison", ".", "Oui", ":", "«", "non", "!»"]),
        ("don't stop, 3.14 ...", ["don't", "stop", ",", "3.14", "..."]),
        ("", []),
    ],
)
def test_punctuation_at_the_end_of_a_word_is_a_word(text, words):
    found = split_marks(text)
    assert [word.text for word in found] == words
    assert [text[word.start : word.end] for word in found] == words


# As Unicode's own library cuts them (ICU 78), and into characters without it.
UNSPACED = [
    ("护士感谢了年轻的医生。", "护士 感谢 了 年轻 的 医生 。", "护 士 感 谢 了 年 轻 的 医 生 。"),
    ("東京に行きました。", "東京 に 行き ま した 。", "東 京 に 行 き ま し た 。"),
    ("ジョン・ｶﾞｽ", "ジョン ・ ｶﾞｽ", "ジ ョ ン ・ ｶﾞ ｽ"),
    ("ฉันชอบน้ำ ๑๒๓", "ฉัน ชอบ น้ำ ๑๒๓", "ฉั น ช อ บ น้ำ ๑๒๓"),
    ("ຂ້ອຍມັກອ່ານ", "ຂ້ອຍ ມັກ ອ່ານ", "ຂ້ ອ ຍ ມັ ກ ອ່ າ ນ"),
    ("ខ្ញុំចូលចិត្ត\u200bអាន។", "ខ្ញុំ ចូលចិត្ត អាន ។", "ខ្ ញុំ ចូ ល ចិ ត្ ត អា ន ។"),
    ("စာဖတ်တယ်", "စာ ဖတ် တယ်", "စာ ဖ တ် တ ယ်"),
    ("나는 책을 좋아한다.", "나는 책을 좋아한다 .", "나는 책을 좋아한다 ."),
    ("我用Python3.11写了100行", "我 用 Python3.11 写 了 100 行", "我 用 Python3.11 写 了 100 行"),
    ('C++（GPT-4）是："好"', 'C++ （ GPT-4 ） 是 ： " 好 "', 'C++ （ GPT-4 ） 是 ： " 好 "'),
]


@pytest.fixture(params=["icu", "characters"])
def cutter(request, monkeypatch):
    """What cuts scripts without spaces."""
    if request.param == "icu":
        pytest.importorskip("icu4py")
    else:
        monkeypatch.setattr(words_module, "_icu", lambda: None)
    return request.param


@pytest.mark.parametrize(("text", "icu", "characters"), UNSPACED)
def test_scripts_without_spaces_have_words(cutter, text, icu, characters):
    with notices_to((notes := []).append):
        found = split_marks(text)
    expected = icu if cutter == "icu" else characters
    assert [word.text for word in found] == expected.split()
    assert [text[word.start : word.end] for word in found] == expected.split()
    assert bool(notes) == (cutter == "characters" and "책" not in text)
    assert all("pip install 'attnviz[words]'" in note for note in notes)


def test_words_that_share_a_token_are_one(cutter):
    text = "护士感谢了 in "
    pieces = [(0, 1), (1, 3), (3, 4), (4, 5), (5, 9)]
    tokens = [Token(text[start:end].strip(), start, end) for start, end in pieces]
    joined = ["护士感谢", "了", "in"] if cutter == "icu" else ["护", "士感", "谢", "了", "in"]
    assert [word.text for word in words_of(tokens, text)] == joined
    item = AttentionMap("self", tuple(tokens), tuple(tokens), np.full((1, 1, 5, 5), 0.2, "f4"))
    attention = Attention((item,), Provenance("file", "a"), text)
    for merged in (merge_words(item, text, text), group_attention(attention, "words").main):
        assert [token.text for token in merged.key_tokens] == joined


MARKS = ["<|im_start|>", "<end_of_turn>", "[INST]", "</s>"]
TURNS = st.lists(
    st.one_of(
        st.sampled_from(MARKS),
        st.sampled_from(
            [
                "user",
                "\n\n",
                "\n",
                " ",
                "Which river? It is big.",
                "hi!",
                "护士感谢了",
                "ฉันชอบ",
                "a_b",
            ]
        ),
        st.text("ab .?\n", max_size=8),
    ),
    min_size=1,
    max_size=9,
)


@checked
@given(TURNS, st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from(WAYS))
def test_no_group_holds_a_special_token(turns, sizes, way):
    """Templates of any shape, cut into pieces of any length."""
    text, tokens, step = "", [], 0
    for turn in turns:
        start, text = len(text), text + turn
        if turn in MARKS:
            tokens.append(Token(turn, start, len(text), special=True))
            continue
        while start < len(text):
            end = min(start + sizes[step % len(sizes)], len(text))
            tokens.append(Token(text[start:end], start, end))
            start, step = end, step + 1
    assume(tokens)
    row = tuple(tokens)
    item = AttentionMap("self", row, row, np.full((1, 1, len(row), len(row)), 1 / len(row)))
    groups = group_attention(Attention((item,), Provenance("file", "a"), text), way).main.key_tokens
    special = [token for token in tokens if token.special]
    assert [one for one in groups if one.special] == special
    for group in groups:
        if not group.special:
            inside = [one for one in special if one.start < group.end and one.end > group.start]
            assert inside == []
    letters = "".join(group.text for group in groups)
    assert sorted("".join(letters.split())) == sorted("".join(text.split()))
