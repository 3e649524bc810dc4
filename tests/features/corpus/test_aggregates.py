"""Aggregates add up in order, to the last bit; and they say what is true."""

import json
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.analyses.heads import EFFECT, measure_heads
from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import HeadMeasure
from attnviz.features.corpus.accumulators import Aggregates
from attnviz.features.corpus.report import FEWEST, report_of
from attnviz.features.corpus.words import WordCounts
from attnviz.features.measures.study import HeadStudy
from tests.features.corpus.samples import attention_of, text_of

TEXTS = 24
COUNTED = ("count", "pairs", "pair counts", "drawn counts", "drawn ends")


def vocabulary():
    counts = WordCounts()
    for number in range(TEXTS):
        counts.add(text_of(number))
    return counts.vocabulary()


VOCABULARY = vocabulary()


def aggregates(numbers, failed: int = 0) -> Aggregates:
    found = Aggregates(VOCABULARY, samples=True)
    for number in numbers:
        found.add(attention_of(number), number)
    found.failures = failed
    return found


def contents(found: Aggregates) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in found.to_arrays().items()}


WHOLE = aggregates(range(TEXTS)).to_arrays()
ENDS = st.lists(st.integers(0, TEXTS), max_size=4).map(sorted)


def merged(ends: list[int], travelling: bool = False) -> Aggregates:
    """Parts that end there, merged in order; if so, each sent and all stored in between."""
    whole = aggregates([])
    for start, end in pairwise([0, *ends, TEXTS]):
        part = aggregates(range(start, end))
        whole.merge(pickle.loads(pickle.dumps(part)) if travelling else part)
        if travelling:
            whole = Aggregates.from_arrays(whole.to_arrays(), VOCABULARY)
    return whole


@pytest.mark.slow
@given(ENDS)
@settings(max_examples=15, deadline=None)
def test_the_same_parts_give_the_same_bytes_anywhere(ends):
    assert contents(merged(ends, travelling=True)) == contents(merged(ends))
    for name, found in merged(ends).to_arrays().items():
        if found.dtype.kind == "U":
            assert found.item() == WHOLE[name].item()
        else:
            np.testing.assert_allclose(found, WHOLE[name], rtol=1e-12, atol=1e-14)


def test_aggregates_travel_as_a_pickle_and_as_arrays():
    found = aggregates(range(7), failed=2)
    again = pickle.loads(pickle.dumps(found))
    assert contents(again) == contents(found)
    for item in (found, again):
        item.add(attention_of(7), 7)
    assert (again.texts, again.failures) == (8, 2)
    assert contents(again) == contents(found)


def test_what_cannot_be_added_or_read_is_refused():
    arrays = aggregates([]).to_arrays()
    arrays["corpus"] = np.array(json.dumps(json.loads(str(arrays["corpus"])) | {"schema": 2}))
    with pytest.raises(ValueError, match=r"^aggregates of schema 2, not 9$"):
        Aggregates.from_arrays(arrays, VOCABULARY)
    attention = attention_of(0)
    item = attention.main
    for error, changes in ((InputError, {"blocks": (2, 2)}), (UsageError, {"values": "signed"})):
        bad = type(attention)((item.with_weights(item.weights, **changes),), attention.provenance)
        found = Aggregates(VOCABULARY, samples=True)
        with pytest.raises(error):
            found.add(bad, 0)
        assert found.texts == 0
    with pytest.raises(InputError, match="member 'corpus'"):
        Aggregates.from_arrays({"corpus": np.array("{")}, VOCABULARY)


def test_failures_add_up_and_texts_are_counted():
    arrays = aggregates([0]).to_arrays()
    counted = {name for name, array in arrays.items() if array.dtype == np.int64}
    assert counted == {f"0/{name}" for name in COUNTED}
    found = aggregates([0], failed=1)
    found.merge(aggregates([], failed=2))
    assert (found.texts, found.failures) == (1, 3)


def test_shares_by_position_are_means_over_their_cells(stream):
    for place, offset in enumerate(stream.offsets):
        # The longest sentence has eight words and a full stop.
        assert np.isnan(stream.by_offset[place]).all() == (abs(offset) > 8)
    text_rows = np.zeros((2, 2))
    special = np.zeros((2, 2))
    for number in range(TEXTS):
        weights = attention_of(number).weights[:, :, 1:]
        text_rows += weights.shape[2]
        special += weights[..., 0].sum(axis=-1)
    found = stream.offset_shares.sum(axis=0) + special / text_rows
    assert found == pytest.approx(np.ones((2, 2)), abs=1e-6)
    assert stream.class_shares.sum(axis=0) == pytest.approx(np.ones((2, 2)), abs=1e-6)
    assert stream.class_even.sum(axis=0) == pytest.approx(np.ones((2, 2)), abs=1e-6)
    place = stream.offsets.index(-1) if -1 in stream.offsets else None
    assert place is not None
    total, cells = np.zeros((2, 2)), 0
    for number in range(TEXTS):
        weights = attention_of(number).weights[:, :, 1:, 1:]
        below = np.diagonal(weights, -1, axis1=-2, axis2=-1)
        total, cells = total + below.sum(axis=-1), cells + below.shape[-1]
    assert stream.by_offset[place] == pytest.approx(total / cells, abs=1e-6)


def test_queries_of_another_text_are_read_in_its_words():
    source = (Token("Le", 0, 2), Token("cha", 3, 6), Token("t", 6, 7))
    target = (Token("A", 0, 1), Token("c", 2, 3), Token("at", 3, 5))
    weights = np.array([[[[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.3, 0.6]]]], np.float32)
    sides = {"query_side": "target", "key_side": "source"}
    across = Attention(
        (AttentionMap("cross", target, source, weights, **sides),),
        Provenance("file", "made up"),
        source="Le chat",
        target="A cat",
    )
    # The pieces of "chat" are added, the rows of "cat" averaged: .9 of "cat" is on "chat".
    part = Attention(
        (AttentionMap("self", source[2:], source, weights[:, :, :1]),),
        Provenance("file", "made up"),
        text="Le chat",
    )
    # The same pieces in two texts, where a word of one is two of the other.
    alike = replace(across, maps=(AttentionMap("cross", source, source, weights, **sides),),
                    target="Le cha t")  # fmt: skip
    for attention, found, weight in (
        (across, ("cat", "chat"), 0.9),
        (part, ("chat", "le"), 0.8),
        (alike, ("t", "chat"), 0.9),
    ):
        made = Aggregates(VOCABULARY)
        made.add(attention, 0)
        (firing,) = report_of(made).streams[0].firings
        assert (firing.query, firing.key) == found
        assert firing.weight == pytest.approx(weight)


@pytest.fixture(scope="module")
def report():
    return report_of(aggregates(range(TEXTS)), "layer")


@pytest.fixture(scope="module")
def stream(report):
    return report.streams[0]


def measured_of(attention: Attention) -> dict[str, HeadMeasure]:
    subject = MeasuredMap(attention.main, attention.texts_of(attention.main))
    return measure_heads(subject, repeated=False)


def test_rows_means_and_intervals(stream):
    measured = [measured_of(attention_of(number)) for number in range(TEXTS)]
    for place, meaning in enumerate(stream.measures):
        values = np.array([found[meaning.name].values for found in measured
                           if meaning.name in found])  # fmt: skip
        assert stream.mean[place] == pytest.approx(np.nanmean(values, axis=0), abs=1e-9)
        expected = np.nanstd(values, axis=0, ddof=1)
        assert stream.deviation[place] == pytest.approx(expected, abs=1e-9)
        assert (stream.texts[place] == np.isfinite(values).sum(axis=0)).all()
    study = HeadStudy()
    for number in range(TEXTS):
        study.add(attention_of(number), repeats=False)
    for ours, theirs in zip(stream.rows, study.report("layer").rows, strict=True):
        assert ours.values == pytest.approx(theirs.values, abs=1e-9, nan_ok=True)
        assert ours.uniform == pytest.approx(theirs.uniform, abs=1e-9, nan_ok=True)
        assert [role.name for role in ours.roles] == [role.name for role in theirs.roles]
    assert (stream.low <= stream.mean).all()
    assert (stream.mean <= stream.high).all()
    few = report_of(aggregates(range(6))).streams[0]
    assert (few.high - few.low)[0].mean() > 1.3 * (stream.high - stream.low)[0].mean()


def test_pairs_are_means_over_all_places_of_two_words(report, stream):
    pair = stream.pairs[0]
    found = []
    for number in range(TEXTS):
        attention = attention_of(number)
        words = attention.tokens
        of_head = attention.weights[int(pair.layer), int(pair.head)]
        for query, key in np.ndindex(of_head.shape):
            if (words[query], words[key]) == (pair.query, pair.key) and query != key:
                found.append(of_head[query, key])
    assert pair.count == len(found) >= FEWEST == report.fewest
    assert pair.mean == pytest.approx(np.mean(found), abs=1e-6)
    means = [item.mean for item in stream.pairs if (item.layer, item.head) == ("0", "0")]
    assert means == sorted(means, reverse=True)
    named = [(pair.layer, pair.head) for pair in stream.pairs]
    heads = [(layer, head) for layer in stream.layers for head in stream.heads]
    assert list(dict.fromkeys(named)) == heads


def test_a_head_fires_most_where_its_strongest_link_is(stream):
    strongest = {}
    for number in range(TEXTS):
        attention = attention_of(number)
        of_head = attention.weights[1, 0, 1:, 1:].copy()
        np.fill_diagonal(of_head, -1)
        strongest[attention.id] = float(of_head.max())
    expected = sorted(strongest, key=lambda name: -strongest[name])[:10]
    found = [item for item in stream.firings if (item.layer, item.head) == ("1", "0")]
    assert [item.id for item in found] == expected
    assert found[0].weight == pytest.approx(strongest[expected[0]])
    assert found[0].texts == (text_of(int(expected[0].removeprefix("line-"))),)
    assert [item.rank for item in found] == list(range(1, 11))
    found = Aggregates(VOCABULARY, samples=True)
    for number in range(4):
        found.add(attention_of(0), number)
    firings = report_of(found).streams[0].firings
    assert {item.rank for item in firings} == {1}


def test_one_text_and_a_few():
    (stream,) = report_of(aggregates([0])).streams
    assert np.isnan(stream.deviation).all()
    found = measured_of(attention_of(0))
    for place, meaning in enumerate(stream.measures):
        expected = found[meaning.name]
        assert stream.mean[place] == pytest.approx(expected.values, abs=1e-9, nan_ok=True)
        if expected.uniform is not None:
            even = np.broadcast_to(expected.uniform, (2, 2))
            assert stream.uniform[place] == pytest.approx(even, abs=1e-9, nan_ok=True)
        largest = np.nanmax(expected.values) if meaning.name == "informative" else expected.top
        assert meaning.top == pytest.approx(largest)
    effects = {("self", *map(str, at)): at[0] - at[1] / 4 for at in np.ndindex(2, 2)}
    with_effects = Aggregates(VOCABULARY)
    with_effects.add(replace(attention_of(0), effects=effects), 0)
    (stream,) = report_of(with_effects).streams
    (place,) = (at for at, one in enumerate(stream.measures) if one.name == EFFECT)
    assert stream.mean[place] == pytest.approx(np.array([[0, -0.25], [1, 0.75]]))
    (stream,) = report_of(aggregates(range(3))).streams
    for place, meaning in enumerate(stream.measures):
        if meaning.name != "offset":
            assert (stream.low[place] >= 0).all()
        if meaning.unit == "share":
            assert (stream.high[place] <= meaning.top).all()
    wide = stream.high == np.array([meaning.top for meaning in stream.measures])[:, None, None]
    assert wide.any()


def test_the_report_says_what_it_is_of():
    report = report_of(aggregates(range(3), failed=2), "layer")
    assert (report.texts, report.failed) == (3, 2)
    assert report.interval == "95% interval of the mean (Hall's transformed t, texts as units)"
    assert report.caption.startswith(report.provenance.title)
    rows = report.streams[0].rows
    assert [(row.layer, row.head) for row in rows] == [
        (layer, head) for layer in report.streams[0].layers for head in report.streams[0].heads
    ]
    item = attention_of(0).main
    streams = [item.with_weights(item.weights, stream=name) for name in ("self", "x", "y")]
    made = Aggregates(VOCABULARY)
    made.add(Attention(tuple(streams), Provenance("file", "made up", notes=("of one",))), 0)
    report = report_of(made)
    assert report.caption == "made up · self · 2 layers × 2 heads · also x, y"
    assert [stream.stream for stream in report.streams] == ["self", "x", "y"]
    assert report.provenance.notes == ()


def test_tokens_of_no_text_are_words_of_their_own():
    tokens = (Token("Un"), Token("happy"), Token("XX"))
    weights = np.array([[[[0.2, 0.7, 0.1], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]]]], np.float32)
    item = AttentionMap("self", tokens, tokens, weights)
    made = Aggregates(VOCABULARY)
    made.add(Attention((item,), Provenance("file", "made up")), 0)
    (firing,) = report_of(made).streams[0].firings
    assert (firing.query, firing.key, firing.weight) == ("un", "happy", pytest.approx(0.7))
    assert firing.texts == ()
