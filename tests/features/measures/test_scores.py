"""Measures of scores before the softmax, by hand and of queries and keys that were kept."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attnviz as package
from attnviz.analyses.entropy import ScoreStudy, peak
from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import Attention, Projections, Provenance
from attnviz.core.errors import UsageError
from attnviz.features.measures.study import HeadStudy
from tests.analyses.heads import map_of
from tests.invoke import attnviz


def test_a_small_case_by_hand():
    # Row 0 sees one key, row 1 two, row 2 three; one head.
    scores = np.array([[[2.0, -np.inf, -np.inf], [0.0, 10.0, -np.inf], [1.0, 1.0, 1.0]]])
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    study = ScoreStudy(1, 3, 3)
    study.add(slice(0, 1), 1, scores[:, 1:], shares[:, 1:])  # in any order, in tiles
    study.add(slice(0, 1), 0, scores[:, :1, :1], shares[:, :1, :1])
    found = {name: float(one[0]) for name, one in study.values().items()}
    assert found["score-max"] == 10
    assert found["score-mean"] == pytest.approx((2 + 0 + 10 + 3) / 6)
    assert found["score-std"] == pytest.approx(np.std([2, 0, 10, 1, 1, 1]))
    assert found["saturated"] == 0.5  # the row of one key does not count
    totals = 2 + np.log(np.exp(0) + np.exp(10)) + np.log(3 * np.e)
    assert found["log-sum-exp"] == pytest.approx(totals / 3)
    sharp = 1 / (1 + np.exp(10))
    of_row = -(sharp * np.log(sharp) + (1 - sharp) * np.log(1 - sharp)) / np.log(2)
    assert found["row-entropy"] == pytest.approx((of_row + 1) / 2)
    value = np.array([[[3.0, 4.0], [0.0, 1.0], [0.0, 2.0]]])
    norms = study.norms(np.full((1, 3, 1), -2.0), None, value)
    assert norms["query-norm"] == [2]
    assert "key-norm" not in norms
    assert norms["value-norm"] == [2]
    # Key 0 gets 1 + 0.00005 + 1/3, key 1 gets 0.99995 + 1/3.
    assert norms["sink-value"] == [2.5]
    assert peak(np.array([1.0, -2.0, 2.0, -600.0])) == 300


def kept(scale: float = 1.0, **more: Any) -> Attention:
    generator = np.random.default_rng(2)
    query, key, value = generator.normal(size=(3, 2, 3, 5, 4)).astype(np.float32)
    scores = np.where(np.tri(5, dtype=bool), query @ key.swapaxes(-1, -2) / 2, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    item = replace(map_of(weights.astype(np.float32), "a b c d e"), stream="causal")
    facts = scale / 2, item.layers, item.heads
    own = Projections(query, key, *facts, value=value, peaks=(3.0, 4.0), **more)
    return Attention((item,), Provenance("file", "made up"), projections={"causal": own})


def test_queries_and_keys_that_were_kept_tell_the_scores():
    attention = kept()
    found = MeasuredMap.of(attention, attention.main).scores
    own = attention.projections["causal"]
    scores = own.query @ own.key.swapaxes(-1, -2) / 2
    rows, columns = np.tril_indices(5)
    np.testing.assert_allclose(found["score-max"], scores[..., rows, columns].max(-1), rtol=1e-6)
    np.testing.assert_allclose(found["score-mean"], scores[..., rows, columns].mean(-1), rtol=1e-4)
    assert (found["massive"] == [[3.0] * 3, [4.0] * 3]).all()
    part = attention.main.part(["1"], ["2"])
    chosen = MeasuredMap.of(attention, part).scores
    assert chosen["score-max"] == found["score-max"][1:, 2:]
    assert chosen["massive"] == [[4.0]]


@pytest.mark.parametrize("more", [{"scale": 1.5}, {"besides": "a soft cap of 2"}])
def test_what_is_no_softmax_of_them_alone_has_no_scores(more):
    other = kept(**more)
    assert MeasuredMap.of(other, other.main).scores == {}


def test_the_largest_score_is_that_of_all_texts():
    study, several = HeadStudy(), (3.0, 7.0, 5.0)
    for score in several:
        attention = kept()
        scores = {
            ("causal", layer, head): {"score-max": score, "score-std": score}
            for layer in "01"
            for head in "012"
        }
        study.add(replace(attention, projections={}, scores=scores))
    for row in study.report().rows:
        assert (row.values["score-max"], row.values["score-std"]) == (7, 5)


@pytest.mark.slow
def test_heads_and_corpus_measure_scores_when_asked(tmp_path):
    text = "The cat sat on the mat"
    rows = attnviz("heads", text, "--scores", "-f", "tsv", "-q").rows
    column = rows[0].index("score-max")
    found = package.heads(text, scores=True).to_rows()
    assert {row["score-max"] for row in found} == {float(row[column]) for row in rows[1:]}
    assert "score-max" not in attnviz("heads", text, "-f", "tsv", "-q").rows[0]
    assert " smax " in attnviz("heads", text, "--scores", "-q").text
    file = tmp_path / "texts.txt"
    file.write_text(f"{text}\n")
    done = attnviz("heads", "--input", file, "--scores", "-f", "tsv", "-q").rows
    mean = done[0].index("mean")
    means = sorted(float(row[mean]) for row in done[1:] if "score-max" in row)
    assert means == pytest.approx(sorted(float(row[column]) for row in rows[1:]), rel=1e-4)
    done = attnviz("heads", text, "--scores", "--mechanism", "cosine")
    assert done.status == 2 or "scores before the softmax are not known here" in done.err
    with pytest.raises(UsageError, match="says nothing of these texts"):
        package.heads([text], sort="score-max")
