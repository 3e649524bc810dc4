"""What is seen first of a text, against a loop over cells and against the measures of heads."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from attnviz.analyses.heads import measure_heads, roles_of
from attnviz.analyses.overview import overview, overviews
from attnviz.core.attention_map import Focus, Link, Token
from attnviz.core.measures import Overview
from attnviz.core.tokens import patch_tokens
from attnviz.features.image.patches import look_from, picture_overviews
from tests.analyses.heads import gains, map_of, random_map, says
from tests.samples import attention_of, self_map

WORDS = "[CLS] a b c d e f g"


def found(item, **facts) -> Overview:
    view = overview(attention_of(item, **facts))
    assert view is not None
    return view


def places(view: Overview) -> list[str]:
    return [f"{one.layer}.{one.head}" for one in view.heads]


def shaped(heads: int = 6, seed: int = 0, words: str = WORDS):
    """Heads of a causal or whole map, each sharper than the one before."""
    length = len(words.split())
    drawn = np.random.default_rng(seed).gumbel(size=(heads, length, length))
    scores = np.exp(drawn * np.arange(1, heads + 1)[:, None, None] * 0.7)
    return map_of((scores / scores.sum(axis=-1, keepdims=True)).astype(np.float32), words)


@pytest.mark.parametrize("seed", range(5))
def test_heads_and_links_are_those_of_a_loop(seed):
    item, words = shaped(seed=seed), WORDS.split()
    seen = np.ones((8, 8), dtype=bool)
    even = says(np.full((8, 8), 1 / 8), seen, words, lambda i, j: j - i)
    heads = item.weights[0].astype(float)
    cells = [gains(one, seen, words, lambda i, j: j - i) for one in heads]
    ranks = sorted(
        range(len(heads)), key=lambda n: -says(heads[n], seen, words, lambda i, j: j - i) + even
    )
    expected = []
    for head in ranks:
        links = []
        for row in range(1, 8):
            of_row = [(*cell, key) for (i, key), cell in cells[head].items() if i == row]
            gain, share, key = max(of_row, default=(0.0, 0.0, 0))
            if gain > 0.1 and share > 0.2:
                links.append((gain, words[row], words[key], share))
        if links:
            expected.append((head, sorted(links, reverse=True)[:4]))
    view = found(item)
    assert places(view) == [f"0.{head}" for head, _ in expected[:3]]
    for one, (_, links) in zip(view.heads, expected[:3], strict=True):
        assert [(link.query, link.key) for link in one.links] == [link[1:3] for link in links]
        assert np.allclose([link.weight for link in one.links], [link[3] for link in links])


def test_numbers_of_the_first_head_are_cells():
    view = found(shaped())
    assert [token.text for token in view.map.key_tokens] == WORDS.split()[1:]
    assert np.allclose(view.map.weights.sum(axis=-1), 1)
    for link in view.heads[0].links:
        cell = view.map.weights[0, 0, link.query_position, link.key_position]
        assert (link.weight, link.query, link.key) == (
            cell,
            view.map.query_tokens[link.query_position].text,
            view.map.key_tokens[link.key_position].text,
        )
    assert view.which == f"layer 0 head {view.heads[0].head}"
    attention = attention_of(shaped())
    named = overviews(attention, as_chosen=True, each=True)
    assert [view.which for view in named] == [f"layer 0 head {head}" for head in range(6)]
    assert not any(view.others or view.note for view in named)


def test_what_special_tokens_held_is_said():
    item = shaped(1)
    held = item.weights[0, 0, 1:, 0].mean()
    assert found(item).shares == (
        f"shares of a word's attention; special tokens ({held:.0%}) left out, rows sum to 1"
    )
    assert found(shaped(1, words="a b c d e f")).shares == "shares of a word's attention"
    less = shaped(1, words="a b c d e f")
    half = less.with_weights(less.weights / 2)
    assert found(half).shares.endswith("rows hold 50%, and are scaled to sum to 1")

    weights = np.full((8, 8), 0.05)
    weights[:, 0] = 0.65
    weights[3] = [0.1, 0.6, *[0.05] * 6]
    view = found(map_of(weights[None], WORDS))
    assert {link.query: round(link.weight, 2) for link in view.resting} == dict.fromkeys(
        "abdefg", 0.65
    )
    assert {link.key for link in view.resting} == {"[CLS]"}


def test_the_other_heads_are_counted_by_role():
    item = shaped(7, seed=2)
    weights = item.weights.copy()
    weights[0, 1] = np.eye(8) * 0.9 + 0.1 / 8
    weights[0, 2] = 0.1 / 8
    weights[0, 2, :, 0] += 0.9
    item = item.with_weights(weights)
    measures = measure_heads(item)
    view = found(item)
    rest = [head for head in range(7) if f"0.{head}" not in places(view)]
    names = Counter()
    for head in rest:
        values, even = (
            {name: float(getattr(one, side)[0, head]) for name, one in measures.items()}
            for side in ("values", "uniform")
        )
        roles = roles_of(values, even, {"first-token": "[CLS]", "special-token": "[CLS]"})
        names[roles[0].label if roles else "mixed"] += 1
    assert names["self"] == names["rests on [CLS]"] == 1
    assert view.others == f"the other {len(rest)}: 1 self, 1 rest on [CLS], {names['mixed']} mixed"


def test_the_readers_heads_keep_their_order():
    item = replace(shaped(), stream="cross")
    focus = {"cross": Focus("0", "0", "trained to align")}
    attention = attention_of(item, focus=focus)
    first, chosen = overview(attention), overview(attention, as_chosen=True)
    assert first is not None
    assert chosen is not None
    assert first.which == "layer 0 head 0 (trained to align)"
    assert "trained" not in chosen.which


def test_what_has_no_overview_says_why():
    few = found(shaped(words="[CLS] a b c"))
    assert few.note == "too few words to tell heads apart by more than position"
    even = found(map_of(np.full((2, 8, 8), 1 / 8), WORDS))
    assert not even.heads
    assert even.note.startswith("position and popular words explain")
    assert even.which == "mean over the heads of layer 0"
    assert np.allclose(even.map.weights, 1 / 7)
    untrained = found(shaped(), trained=False)
    assert not untrained.heads
    assert untrained.note == "untrained weights: no head says anything of the text"
    assert overview(attention_of(shaped(words="[CLS] a"))) is None
    assert overview(attention_of(self_map(list("abcdef"), signed=True))) is None
    assert overview(attention_of(replace(shaped(), key_side="picture"))) is None


def test_links_of_blocks_differ_and_parts_are_sums():
    text = "one two three four five six seven eight"
    names, starts = text.split(), [text.index(word) for word in text.split()]
    tokens = tuple(
        Token(name, start, start + len(name)) for name, start in zip(names, starts, strict=True)
    )
    drawn = random_map(8)
    links = tuple(
        Link(f"q{n}", f"k{key}", 1 - n / 10, "0", "0", n, key) for n, key in enumerate([5, 5, 3])
    )
    item = drawn.with_weights(
        np.repeat(np.repeat(drawn.weights, 5, axis=2), 5, axis=3) / 5,
        query_tokens=tokens * 5,
        key_tokens=tokens * 5,
        blocks=(3, 3),
        links=links,
    )
    view = found(item, text=text)
    assert [(link.query, link.key) for link in view.heads[0].links] == [("q0", "k5"), ("q2", "k3")]
    mean = item.weights[-1].mean(axis=0)
    for row, token in enumerate(view.map.query_tokens):
        assert token.text.startswith(f"{row * 9} ")
        cells = mean[3 * row : 3 * row + 3].mean(axis=0)
        sums = [cells[first : first + 3].sum() for first in range(0, 40, 3)]
        assert np.allclose(view.map.weights[0, 0, row], sums, atol=1e-6)


def test_a_picture_lists_heads_by_their_look():
    tokens = (Token("[CLS]", special=True), *patch_tokens(3, 3))
    weights = np.full((1, 3, 10, 10), 0.1, dtype=np.float32)
    weights[0, 1, 0] = [0, 0, 0, 0, 0, 0.9, 0.1, 0, 0, 0]
    item = replace(self_map(list("abcdefghij"), 1, 3), query_side="picture", key_side="picture")
    item = item.with_weights(weights, query_tokens=tokens, key_tokens=tokens)
    (view,) = picture_overviews(look_from(attention_of(item), None))
    assert [(one.head, [(x.key, round(x.weight, 2)) for x in one.links]) for one in view.heads] == [
        ("1", [("1,1", 0.9)])
    ]
    assert view.others == "the other 2: 2 look more evenly"
    assert view.shares == "shares of a look, over 3 × 3 patches"
