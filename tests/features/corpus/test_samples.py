"""Texts to browse: of every strength some, drawn as a slow loop over all texts draws them."""

from dataclasses import replace
from hashlib import blake2b
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.core.attention_map import Attention
from attnviz.features.corpus.report import report_of
from attnviz.features.corpus.results import Atlas, StreamReport
from attnviz.features.corpus.samples import BUCKETS, KEPT, SEED, nearest_heads
from tests.features.corpus.samples import attention_of
from tests.features.corpus.test_aggregates import aggregates

MANY = 90


def stream_of(found) -> StreamReport:
    return report_of(found).streams[0]


def atlas_of(found) -> Atlas:
    atlas = stream_of(found).atlas
    assert atlas is not None
    return atlas


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return atlas_of(aggregates(range(MANY)))


def strongest(attention: Attention, head: int) -> tuple[float, int, int]:
    """A head's strongest link between two different words: its weight, query and key."""
    weights = attention.main.weights.reshape(-1, *attention.main.weights.shape[2:])[head]
    words = range(1, len(weights))  # the first is [CLS]
    links = [(weights[q, k], q, k) for q, k in product(words, words) if q != k]
    return max(links, key=lambda link: (link[0], -link[1], -link[2]))


def mixed(number: int) -> int:
    """SplitMix64's finalizer in whole numbers of Python."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


def hash_of(text: str, head: int) -> int:
    digest = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return mixed(digest ^ mixed(head + (SEED << 32)))


def numbers(atlas: Atlas, head: int, slot: int) -> list[int]:
    return [int(number) for number in atlas.drawn[head, slot, :, 1] if number >= 0]


@pytest.mark.slow
def test_counts_lowest_hashes_and_links_are_kept(atlas):
    texts = [attention_of(number) for number in range(MANY)]
    assert len({text.text for text in texts}) > MANY // 2
    for head in range(4):
        weights = [float(strongest(text, head)[0]) for text in texts]
        buckets = [min(int(weight * BUCKETS), BUCKETS - 1) for weight in weights]
        assert atlas.counts[head].tolist() == [buckets.count(n) for n in range(BUCKETS)] + [0]
        first: dict[str, int] = {}  # of a text that comes again, where it is strongest
        for number in sorted(range(MANY), key=lambda n: (-weights[n], n)):
            first.setdefault(texts[number].text or "", number)
        for bucket in range(BUCKETS):
            own = [(hash_of(text, head), n) for text, n in first.items() if buckets[n] == bucket]
            assert numbers(atlas, head, bucket) == [n for _, n in sorted(own)[:KEPT]]
        assert numbers(atlas, head, BUCKETS) == [*first.values()][:KEPT]
    for head, slot in product(range(4), range(BUCKETS + 1)):
        for weight, number, query, key, own, *others in atlas.drawn[head, slot].tolist():
            if number < 0:
                continue
            attention = attention_of(int(number))
            assert (weight, query, key) == pytest.approx(strongest(attention, head))
            row = attention.main.weights.reshape(4, *attention.main.weights.shape[2:])[head]
            rest = sorted(np.delete(row[int(query)], int(key)).tolist(), reverse=True)[:5]
            assert own == weight
            assert [value for value in others[1::2] if value >= 0] == pytest.approx(rest)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.permutations(range(20)))
def test_what_is_drawn_does_not_hang_on_the_order_of_texts(order):
    one, other = atlas_of(aggregates(range(20))), atlas_of(aggregates(order))
    for drawn in (one.drawn, other.drawn):
        drawn[..., 1] = [[[hash(attention_of(int(n)).text) if n >= 0 else -1 for n in slot]
                          for slot in head] for head in drawn[..., 1]]  # fmt: skip
    assert np.array_equal(one.drawn, other.drawn)
    assert np.array_equal(one.counts, other.counts)


def test_words_are_counted_at_ends_of_strongest_links(atlas):
    for head, side in product(range(4), range(2)):
        found = dict(zip((*atlas.words, "others"), atlas.ends[head, side].tolist(), strict=True))
        expected = dict.fromkeys(found, 0)
        for number in range(MANY):
            attention = attention_of(number)
            token = attention.main.key_tokens[strongest(attention, head)[1 + side]]
            expected[token.text if token.text in expected else "others"] += 1
        assert found == expected


def test_short_texts_are_counted_and_shown_as_they_stand():
    attention = attention_of(0)
    tokens = attention.main.key_tokens[:2]
    short = replace(attention.main, query_tokens=tokens, key_tokens=tokens,
                    weights=attention.main.weights[..., :2, :2])  # fmt: skip
    found = aggregates([])
    found.add(replace(attention, maps=(short,), text="sat"), 0)
    found.add(attention_of(1), 1)
    atlas = atlas_of(found)
    assert atlas.counts[:, BUCKETS].tolist() == [1] * 4
    assert {*atlas.drawn[..., 1].ravel()} == {-1.0, 1.0}
    attention = attention_of(3)
    assert attention.text is not None
    found = aggregates([])
    found.add(replace(attention, text=attention.text.upper()), 0)
    words = atlas_of(found).texts[0].queries
    assert words[0] == "\t[CLS]"
    assert "".join(words[1:]) == attention.text.upper()


def test_the_nearest_heads_differ_least_in_shares():
    stream = stream_of(aggregates(range(20)))
    nearest, distances = nearest_heads(stream)
    for head, other in ((0, 1), (2, 3)):
        at, there = divmod(head, 2), divmod(other, 2)
        apart = 0.0
        for shares in (stream.offset_shares, stream.class_shares):
            one, two = (
                [float(share[place]) for share in shares] + [1 - float(shares[:, *place].sum())]
                for place in (at, there)
            )
            apart += sum(abs(a - b) for a, b in zip(one, two, strict=True)) / 4
        assert distances[head][nearest[head].tolist().index(other)] == pytest.approx(apart)
    assert (np.diff(distances, axis=-1) >= 0).all()
    assert all(head not in row for head, row in enumerate(nearest.tolist()))
