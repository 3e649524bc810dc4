from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz
from attnviz.analyses.group import check_group, group_attention, group_numbers, name_tokens
from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.words import merge, partition_of
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.tokens import split_sentences
from attnviz.features.measures.shares import same_group

TEXT = "It rained. The old bridge was closed."
PIECES = ("It", "rained", ".", "The", "old", "bri", "dge", "was", "closed", ".")


def placed(pieces, text):
    tokens, cursor = [], 0
    for piece in pieces:
        start = text.index(piece, cursor)
        cursor = start + len(piece)
        tokens.append(Token(piece, start, cursor))
    return tuple(tokens)


TOKENS = (Token("<s>", special=True), *placed(PIECES, TEXT), Token("</s>", special=True))


def shares(*shape, seed=0):
    weights = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1])
    return weights.astype(np.float32)


def attention(tokens=TOKENS, text=TEXT, seed=0):
    weights = shares(2, 3, len(tokens), len(tokens), seed=seed)
    return Attention(
        (AttentionMap("self", tokens, tokens, weights),), Provenance("file", "m"), text
    )


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=9), st.integers(0, 99)
)
@pytest.mark.slow
def test_any_partition_equals_the_loop(numbers, seed):
    tokens = tuple(Token(str(place), 2 * place, 2 * place + 1) for place in range(len(numbers)))
    weights = shares(2, 2, len(numbers), len(numbers), seed=seed)
    groups = partition_of(tokens, numbers, "".join(f"{token.text} " for token in tokens))
    merged = merge(AttentionMap("self", tokens, tokens, weights), groups, groups).weights
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-5)
    for query, key in np.ndindex(*merged.shape[2:]):
        rows = [place for place, group in enumerate(groups.groups) if group == query]
        columns = [place for place, group in enumerate(groups.groups) if group == key]
        expected = np.mean([weights[:, :, row, columns].sum(-1) for row in rows], axis=0)
        np.testing.assert_allclose(merged[:, :, query, key], expected, atol=1e-6)


def test_groups_by_words_sentences_and_single_tokens():
    item = attention().main
    alone = partition_of(TOKENS, [None] * len(TOKENS), TEXT)
    merged = merge(item, alone, alone)
    np.testing.assert_array_equal(merged.weights, item.weights)
    assert merged.query_tokens == TOKENS
    found = group_attention(attention(), "sentences")
    texts = [token.text for token in found.main.key_tokens]
    assert texts == ["<s>", "It rained.", "The old bridge was closed.", "</s>"]
    assert [token.special for token in found.main.key_tokens] == [True, False, False, True]
    assert found.provenance.steps == ("grouped by sentences",)
    found = group_attention(attention(), "words")
    texts = [token.text for token in found.main.query_tokens]
    words = ["It", "rained", ".", "The", "old", "bridge", "was", "closed", "."]
    assert texts == ["<s>", *words, "</s>"]
    tokens = (Token("New", 0, 3, label="LOC"), Token("York", 4, 8, label="LOC"))
    found = partition_of(tokens, [0, 0], "New York").tokens
    assert found == (Token("New York", 0, 8, label="LOC"),)
    assert group_numbers(TOKENS[1:4], "It rained.", [(0, 2)]) == [0, None, 0]


def test_a_file_names_groups(tmp_path):
    path = tmp_path / "groups.txt"
    path.write_text("It rained\nold  bridge\n@8,10\n")
    found = group_attention(attention(), str(path))
    assert found.provenance.steps == ("grouped by groups.txt",)
    texts = [token.text for token in found.main.key_tokens]
    assert texts == ["<s>", "It rained", ".", "The", "old bridge", "was closed.", "closed", "</s>"]
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
    path.write_text("b c\n")
    tokens = tuple(Token(letter) for letter in "abcd")
    found = group_attention(attention(tokens, text=None), str(path))
    assert [token.text for token in found.main.key_tokens] == ["a", "b c", "d"]

    path = named(tmp_path, "first: Tom likes dogs\nlast: @5-7\n")
    text = "Tom likes dogs. Mary likes cats."
    found = attnviz.ablate(text, model="pocket-lm", each="groups", token_groups=path).value
    assert [one.label for one in found.effects] == ["first", "last"]
    apart = attnviz.ablate(
        text, model="pocket-lm", tokens=["Tom", "likes[2]", "dogs"]
    ).value.together
    assert found.effects[0].effect == pytest.approx(apart.effect, abs=1e-5)
    with pytest.raises(UsageError, match="needs names for tokens"):
        attnviz.ablate(text, model="pocket-lm", each="groups")


def test_a_file_groups_a_source_and_a_target(tmp_path):
    path = tmp_path / "groups.txt"
    path.write_text("red car\n\nvoiture rouge\n")
    keys, queries = (placed(text.split(), text) for text in ("the red car", "la voiture rouge"))
    item = AttentionMap(
        "cross", queries, keys, shares(1, 1, 3, 3), query_side="target", key_side="source"
    )
    pair = Attention(
        (item,), Provenance("file", "m"), source="the red car", target="la voiture rouge"
    )
    found = group_attention(pair, str(path)).main
    assert [token.text for token in found.key_tokens] == ["the", "red car"]
    assert [token.text for token in found.query_tokens] == ["la", "voiture rouge"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["closed", "rained"], "'rained', is not found in order"),
        (["It", "ridge"], "group 2, 'ridge', is not found in order"),
        (["ridge"], "from the start of a token"),
        (["rain"], "to the end of one"),
        (["@12"], "position 12, but there are 12"),
        (["It", "@1"], "shares the token at position 1"),
        (["It", "old", "@1"], "group 3, '@1', shares"),
        (["@3,4", "@4"], "group 2, '@4', shares"),
        (["@1", "@3-4,1"], "group 2, '@3,4,1', shares"),
        (["@0-2"], "special token '<s>'"),
        (["It", "@11"], "group 2 names position 11, the special token"),
        ([], "names no group"),
        (["@3-1"], "backwards"),
        (["a", "", "b", "", "c"], "3 lists"),
        (["a", "@x"], r"line 2 of '.*groups\.txt'.* no list of positions"),
    ],
)
def test_groups_that_do_not_fit_are_refused(tmp_path, lines, message):
    path = tmp_path / "groups.txt"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=message):
        group_attention(attention(), str(path))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("Dr. Smith met J. Jones. They left.", ["Dr. Smith met J. Jones.", "They left."]),
        ("He cost 3.50 e.g. for tea. Yes.", ["He cost 3.50 e.g. for tea.", "Yes."]),
        ("“Stop!” said he. Bye.", ["“Stop!” said he.", "Bye."]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("a\nb\n", ["a", "b"]),
        ("", []),
    ],
)
def test_sentences_end_where_the_rule_says(text, sentences):
    found = split_sentences(text)
    assert [token.text for token in found] == sentences
    assert [text[token.start : token.end] for token in found] == sentences


def test_ways_are_known_and_files_read_at_once(tmp_path):
    for how in (None, "words", "sentences"):
        check_group(how)
    with pytest.raises(UsageError, match="Did you mean 'words'"):
        check_group("wrds")
    path = tmp_path / "groups.txt"
    path.write_text("")
    with pytest.raises(InputError, match="names no group"):
        check_group(str(path))
    path.write_text("a b")
    check_group(str(path))


def named(tmp_path, text):
    path = tmp_path / "names.txt"
    path.write_text(text)
    return path


def test_names_become_labels_and_still_merge(tmp_path):
    path = named(tmp_path, "weather: @1-3\nplace: @4-7\n")
    found = name_tokens(attention(), path)
    labels = [token.label for token in found.main.key_tokens]
    assert labels == [None, *["weather"] * 3, *["place"] * 4, *[None] * 4]
    np.testing.assert_array_equal(found.weights, attention().weights)
    merged = group_attention(found, str(path)).main
    assert [token.label for token in merged.key_tokens if token.label] == ["weather", "place"]
    path = named(tmp_path, "weather: It rained.\nplace: old bridge\n")
    spelt = name_tokens(attention(), path)
    for found in (spelt, attention()):
        merged = group_attention(found, str(path)).main.key_tokens
        assert [one.text for one in merged][1:5] == ["It rained.", "The", "old bridge", "was"]
    assert [one.label for one in group_attention(spelt, str(path)).main.key_tokens][1] == "weather"
    assert [token.label for token in spelt.main.key_tokens][:5] == [None, *["weather"] * 3, None]


def test_the_share_of_the_own_group_by_hand(tmp_path):
    found = name_tokens(attention(), named(tmp_path, "weather: @1-3\nplace: @4-5\n"))
    groups = ((1, 2, 3), (4, 5))
    measure = same_group(MeasuredMap(found.main))
    for layer, head in np.ndindex(2, 3):
        weights = found.main.weights[layer, head]
        shares = [weights[i, [j for j in own if j != i]].sum() for own in groups for i in own]
        assert measure.values[layer, head] == pytest.approx(np.mean(shares), abs=1e-6)
    assert same_group(MeasuredMap(attention().main)) is None


def part(first, last):
    """The rows from one token to another, of all columns."""
    found = attention()
    rows = slice(first, last + 1)
    maps = tuple(
        item.with_weights(
            item.weights[:, :, rows], query_tokens=item.query_tokens[rows], starts=(first, 0)
        )
        for item in found.maps
    )
    return replace(found, maps=maps)


@pytest.mark.parametrize("line", ["weather: @1-3", "weather: It rained.", "@1-3", "It rained."])
def test_one_file_names_a_text_and_its_part(tmp_path, line):
    path = named(tmp_path, f"{line}\n@4,5\n")
    name = line.partition(":")[0].removeprefix("@")
    for found, first in ((attention(), 0), (part(2, 6), 2)):
        labels = [token.label for token in name_tokens(found, path).main.query_tokens]
        whole = [None, *[name] * 3, *["4,5"] * 2, *[None] * 6]
        assert labels == whole[first : first + len(labels)]
        merged = group_attention(found, str(path)).main
        assert len(merged.key_tokens) == 12 - 2 - 1
        assert merged.weights.sum(axis=-1) == pytest.approx(1, abs=1e-5)
    # Rows 2 and 3 are a part of the first group, rows 4 and 5 the second, row 6 is single.
    assert len(merged.query_tokens) == 3


def test_groups_outside_a_window_are_left_out(tmp_path):
    found = attention()
    rows = slice(4, 8)
    item = found.main.with_weights(
        found.main.weights[:, :, rows, rows],
        query_tokens=found.main.query_tokens[rows],
        key_tokens=found.main.key_tokens[rows],
        starts=(4, 4),
    )
    found = replace(found, maps=(item,))
    for text in ("a: @1-3\nb: @4-5\n", "a: It rained.\nb: @4-5\n"):
        path = named(tmp_path, text)
        labels = [token.label for token in name_tokens(found, path).main.key_tokens]
        assert labels == ["b", "b", None, None]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("camera:\n", "line 1 of .* names no tokens: write camera"),
        ("camera: @3,12\n", "names position 12, but there are 12 tokens"),
        ("a: @1\nb: @1\n", "shares the token at position 1"),
        ("camera: snow\n", "camera: snow', is not found in order"),
    ],
)
def test_names_that_do_not_fit_are_said(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        name_tokens(attention(), named(tmp_path, text))
