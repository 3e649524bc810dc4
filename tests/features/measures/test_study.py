"""Heads measured over several texts, sorted and picked."""

import numpy as np
import pytest

from attnviz.analyses.heads import measure_heads
from attnviz.core.attention_map import Attention, Provenance
from attnviz.core.errors import UsageError
from attnviz.features.heads.table import measures_table
from attnviz.features.measures.study import HeadStudy, check_order
from attnviz.renderers import Display
from tests.analyses.heads import map_of, random_map


def attention(*maps: object) -> Attention:
    return Attention(maps, Provenance("file", "made up"), "text")  # type: ignore[arg-type]


def previous() -> np.ndarray:
    weights = np.eye(6, k=-1)
    weights[0, 0] = 1
    return weights


def study(*items: object) -> HeadStudy:
    made = HeadStudy()
    for item in items:
        made.add(attention(item))
    return made


def test_each_text_counts_where_it_says_something():
    first, second = random_map(4, seed=1), random_map(9, seed=2)
    rows = study(first, second).report("layer").rows
    one, two = measure_heads(first)["entropy"].values, measure_heads(second)["entropy"].values
    found = np.array([row.values["entropy"] for row in rows]).reshape(2, 3)
    np.testing.assert_allclose(found, (one + two) / 2)
    words = map_of(random_map(3).weights, "a b c")
    marks = map_of(random_map(3, seed=1).weights, "a , c")
    rows = study(words, marks).report("layer").rows
    alone = measure_heads(marks)["punctuation"].values
    assert rows[0].values["punctuation"] == pytest.approx(float(alone[0, 0]))


def test_heads_are_sorted_and_picked():
    flat = np.full((6, 6), 1 / 6)
    rows = study(map_of(np.stack([flat, flat, previous()])[None])).report().rows
    assert [row.head for row in rows] == ["2", "0", "1"]
    assert rows[0].roles[0].name == "previous-token"
    rows = study(random_map(6)).report("distance").rows
    distances = [row.values["distance"] for row in rows]
    assert distances == sorted(distances, reverse=True)
    item = map_of(np.stack([np.full((6, 6), 1 / 6), previous()])[None])
    assert [row.head for row in study(item).report(role="previous-token").rows] == ["1"]
    assert study(item).report(role="self").rows == ()


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(UsageError, match="Did you mean 'entropy'"):
        study(random_map(3)).report("entorpy")
    with pytest.raises(UsageError, match="Did you mean 'induction'"):
        study(random_map(3)).report(role="inducton")
    item = random_map(3)
    known = ", ".join(measure_heads(item))
    said = f"^'induction' says nothing of these texts: measured were {known}$"
    with pytest.raises(UsageError, match=said):
        study(item).report("induction")
    with pytest.raises(UsageError, match="unknown order 'x'"):
        check_order("x", None)
    with pytest.raises(UsageError, match="unknown role 'x'"):
        check_order("layer", "x")


def test_repeated_words_add_their_measures():
    item = map_of(random_map(8).weights, "a b c d a b c d")
    for repeats in (True, False):
        made = HeadStudy()
        made.add(attention(item), repeats=repeats)
        found = {"induction", "duplicate"} & set(made.report().rows[0].values)
        assert len(found) == 2 * repeats
    made = study(random_map(3))
    repeated = map_of(random_map(8, seed=3).weights, "a b c d a b c d")
    made.add_repeated(attention(repeated))
    report = made.report("layer")
    expected = measure_heads(repeated, repeated=True)["induction"].values
    assert [row.values["induction"] for row in report.rows] == pytest.approx(expected.ravel())
    assert report.texts == 1


def test_every_stream_the_sink_and_how_to_read_it():
    made = HeadStudy()
    made.add(attention(random_map(4), random_map(4, layers=1, causal=True)))
    streams = [row.stream for row in made.report("layer").rows]
    assert streams == ["self"] * 6 + ["causal"] * 3
    weights = np.zeros((5, 5))
    weights[:, 0] = 1
    report = study(map_of(weights, "[CLS] a b c d")).report()
    assert report.sinks.startswith("'[CLS]' is a sink of 100% of the heads")
    both = HeadStudy()
    for one in (map_of(weights, "[CLS] a b c d"), map_of(weights, "[CLS] e f g h")):
        both.add(attention(one))
    assert both.report().sinks.startswith("'[CLS]' is a sink of 100% of the heads")
    assert study(random_map(2)).report().sinks == ""
    found = measure_heads(random_map(4))["entropy"]
    (meaning,) = (item for item in study(random_map(4)).report().measures if item.name == "entropy")
    assert (meaning.unit, meaning.low, meaning.high) == (found.unit, found.low, found.high)


def induction_head(words: list[str], copies: bool = True) -> np.ndarray:
    """What came next after the earlier copy of a token gets .7, else the first token gets all."""
    weights = np.zeros((len(words), len(words)))
    for place, word in enumerate(words):
        earlier = words[:place].index(word) if word in words[:place] else None
        copied = 0.7 if copies and earlier is not None else 0
        weights[place, 0] = 1 - copied
        if copied and earlier is not None:
            weights[place, earlier + 1] += copied
    return weights


def test_what_a_head_does_comes_before_where_it_rests():
    text, repeated = list("abcdefgh"), list("stuvwxyz" * 2)
    resting = [induction_head(words, copies=False) for words in (text, repeated)]
    acting = [induction_head(words) for words in (text, repeated)]
    read, again = (
        attention(map_of(np.stack(heads)[None], " ".join(words), "causal"))
        for words, heads in zip((text, repeated), zip(resting, acting, strict=True), strict=True)
    )
    made = HeadStudy()
    made.add(read, repeats=False)
    made.add_repeated(again)
    first, second = made.report().rows
    assert [(role.name, role.kind) for role in first.roles] == [
        ("induction", "acts"),
        ("first-token", "rests"),
    ]
    assert first.head == "1"
    assert (first.roles[0].share, first.roles[1].share) == pytest.approx((0.7, 1.0))
    assert [role.name for role in second.roles] == ["first-token"]
    told = measures_table(made.report(), Display(100))
    assert "induction .70, rests on first token 1.0" in told


def test_the_caption_counts_texts_and_names_further_streams():
    one, two = study(random_map(4)), study(random_map(4), random_map(5))
    assert one.report().caption == "made up · self · 2 layers × 3 heads"
    assert two.report().caption == one.report().caption + " · mean over 2 texts"
    assert (one.report().texts, two.report().texts) == (1, 2)
    assert two.report().provenance == Provenance("file", "made up")
    both = HeadStudy()
    both.add(attention(random_map(4), random_map(4, causal=True)))
    assert both.report().caption == one.report().caption + " · also causal"


def test_a_head_rests_on_cls_and_not_on_two_things():
    """[CLS] is the first token and a special one: the role is one, by the token's name."""
    weights = np.zeros((5, 5))
    weights[:, 0], weights[:, 4] = 0.9, 0.1
    on_both = np.zeros((5, 5))
    on_both[:, [0, 4]] = 0.5
    words = "[CLS] a b c [SEP]"
    report = study(map_of(np.stack([weights, on_both])[None], words)).report("layer")
    assert [[(role.name, role.token) for role in row.roles] for row in report.rows] == [
        [("first-token", "[CLS]")],
        [("special-token", "")],
    ]
    told = measures_table(report, Display(100))
    assert "rests on [CLS] .90" in told
    assert "rests on special token 1.0" in told
    only = study(map_of(weights, "[CLS] a b c d")).report().rows[0]
    assert [(role.name, role.token) for role in only.roles] == [("first-token", "[CLS]")]
