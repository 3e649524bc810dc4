"""How faithful lenses are: against tokens hidden by hand, and cases small enough for the head."""

import re
from functools import partial

import numpy as np
import pytest

from attnviz.core.attention_map import Provenance
from attnviz.core.effects import Intervention, TokenAt
from attnviz.core.errors import UsageError
from attnviz.core.query import Query
from attnviz.core.registry import LENSES
from attnviz.features.ablate import faithfulness as faithful
from attnviz.features.ablate.faithfulness import (
    DRAWS,
    TextFaithfulness,
    conclusion,
    faithfulness,
    lens_report,
)
from attnviz.features.ablate.report import LENS_MEASURES, RANDOM, LensRow
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.ask import ask_source, scores_of
from attnviz.features.lenses.effect import effects
from attnviz.features.lenses.token_scores import LENS_SHARES, TokenScores, token_scores
from attnviz.features.measures.intervals import rank_correlation
from attnviz.models.pocket.translator import load_pocket
from tests.invoke import attnviz

PAIR = Query("the red car is fast .", "la voiture rouge est rapide .", "cross")
TEXT = Query("the red car is fast .")


def scores(query: Query, wanted: str | None = None, **how: bool) -> TokenScores:
    source = load_pocket(**how)
    explained = explained_by(open_experiment(source, query, wanted))
    return scores_of(explained, partial(ask_source, source, query))


def log_p(found: TokenScores, *tokens: TokenAt) -> float:
    """Of all outputs together, with tokens hidden."""
    experiment = found.inputs.experiment
    assert experiment is not None
    (row,) = experiment.run([Intervention(tokens=tokens)])
    return float(sum(row[at, one.number] for at, one in enumerate(experiment.outputs)))


@pytest.mark.slow
@pytest.mark.parametrize("query", [PAIR, TEXT])
def test_a_lens_is_judged_by_its_highest_tokens(query):
    found = scores(query)
    judged = faithfulness(found)
    whole = log_p(found)
    sides = {token.side for token in found.tokens}
    for token, told in zip(found.tokens, judged.tokens, strict=True):
        assert told["knock_out"] == pytest.approx(whole - log_p(found, token), abs=1e-5)
    for lens in ("raw", "effect"):
        parts = []
        for side in sides:
            own = [told for told in judged.tokens if told["side"] == side]
            sizes = [[abs(float(told[name])) for told in own] for name in (lens, "knock_out")]
            parts.append(rank_correlation(*map(np.array, sizes)))
        expected = [np.mean(parts)]
        for keep in (False, True):
            for share in LENS_SHARES:
                top = set[TokenAt]()
                for side in sides:
                    own = [at for at, token in enumerate(found.tokens) if token.side == side]
                    count = max(1, round(share / 100 * len(own)))
                    best = sorted(own, key=lambda at: -found.scores[lens][at])[:count]
                    top |= {found.tokens[at] for at in best}
                hidden = [one for one in found.tokens if (one in top) != keep]
                expected.append(whole - log_p(found, *hidden))
        np.testing.assert_allclose(judged.measures[lens], expected, rtol=2e-6, atol=1e-5)


@pytest.mark.slow
def test_what_cannot_be_ranked_is_listed():
    found = scores(PAIR)
    expected = dict.fromkeys(found.tokens, 0.0)
    for item, slopes in zip(found.inputs.attention.maps, found.inputs.gradients, strict=True):
        links = effects(item.weights, slopes)
        for layer, head, query, key in np.ndindex(links.shape):
            own = item.query_side == item.key_side and query == key
            token = TokenAt(item.key_side, key)
            if not own and token in expected and np.isfinite(links[layer, head, query, key]):
                expected[token] += links[layer, head, query, key]
    np.testing.assert_allclose(found.scores["effect"], [*expected.values()], atol=1e-9)

    def none() -> None:
        raise UsageError("there are only weights")

    found = token_scores(scores(TEXT).inputs, none, none)  # type: ignore[arg-type]
    assert found.left_out == dict.fromkeys(("logits", "norm"), "there are only weights")
    report = lens_report([faithfulness(found)] * 2 + [faithfulness(scores(TEXT))])
    (row,) = [row for row in report.rows if row.lens == "norm"]
    assert (row.texts, row.left_out) == (1, "in 2 of 3 texts: there are only weights")


def test_raw_scores_are_what_rows_give_to_others():
    found = scores(PAIR)
    cross, _, decoder = found.inputs.attention.maps
    rows = cross.weights[:, :, :-1].mean(axis=(0, 1, 2))
    own = (
        decoder.weights[:, :, :-1].mean(axis=(0, 1)) * (1 - np.eye(*decoder.weights.shape[2:]))[:-1]
    )
    expected = [*rows, *own.mean(axis=0)[: len(found.tokens) - len(rows)]]
    np.testing.assert_allclose(found.scores["raw"], expected, atol=1e-7)
    # The row of the last token predicts nothing, and the one before it is seen by none but itself.
    assert {token.side for token in found.tokens[len(rows) :]} == {"target"}
    assert len(found.tokens) == len(rows) + len(decoder.key_tokens) - 2


def test_which_tokens_have_scores():
    found = scores(TEXT)
    (item,) = found.inputs.attention.maps
    assert "<mask>" in [token.text for token in item.key_tokens]
    (row,) = found.inputs.positions
    assert item.query_tokens[row].text == "<mask>"
    plain = load_pocket().values(TEXT)
    experiment = found.inputs.experiment
    assert not np.array_equal(experiment.values().products[0], plain.products[0])  # type: ignore[union-attr]
    assert {*found.scores} == {"raw", *LENSES} - {"logits"}
    assert "here a word is masked" in found.left_out["logits"]
    found = scores(TEXT, "all", causal=True)
    assert [token.position for token in found.tokens] == [*range(len(found.tokens))]
    assert len(found.tokens) == len(found.inputs.attention.main.key_tokens) - 2


def test_random_scores_repeat_and_are_averaged():
    found = scores(Query("the red car"))
    first, again = (faithfulness(found) for _ in range(2))
    np.testing.assert_array_equal(first.measures[RANDOM], again.measures[RANDOM])
    assert not np.array_equal(first.measures[RANDOM], faithfulness(found, 1).measures[RANDOM])
    knocked = np.array([told["knock_out"] for told in first.tokens])
    draws = np.random.default_rng(0).random((DRAWS, len(knocked)))
    drawn = [rank_correlation(draw, abs(knocked)) for draw in draws]
    assert first.measures[RANDOM][0] == pytest.approx(np.mean(drawn))


def one_text(**correlations: float) -> TextFaithfulness:
    measures = {lens: np.array([c, *range(6)], dtype=float) for lens, c in correlations.items()}
    return TextFaithfulness("'x'", (), measures, {}, Provenance("file", "sample"))


def test_means_over_texts_have_intervals():
    values = [0.6, 0.7, np.nan, 0.9, 0.8]
    report = lens_report([one_text(raw=value, random=0.0) for value in values])
    (row,) = [row for row in report.rows if row.lens == "raw"]
    assert (row.texts, row.mean[0]) == (4, pytest.approx(0.75))
    # Without skew it is Student's: 0.75 ± 3.182 · 0.1291 / 2.
    assert (row.low[0], row.high[0]) == pytest.approx((0.5446, 0.9554), abs=2e-4)
    (single,) = [row for row in lens_report([one_text(raw=0.7, random=0)]).rows if row.texts == 1][
        :1
    ]
    assert single.lens == "raw"
    assert np.isnan(single.low[0])


def row(lens: str, low: float, mean: float, high: float) -> LensRow:
    rest = (0.0,) * (len(LENS_MEASURES) - 1)
    return LensRow(lens, (mean, *rest), (low, *rest), (high, *rest), 9)


def test_what_is_concluded_follows_from_the_intervals():
    noise = row(RANDOM, -0.1, 0, 0.1)
    rows = [
        row("a", 0.6, 0.7, 0.8),
        row("b", 0.51, 0.6, 0.7),
        row("c", 0.4, 0.6, 0.8),
        row("d", 0.2, 0.3, 0.4),
        row("e", 0.05, 0.4, 0.8),
    ]
    said = conclusion(rows, noise, 9)
    assert said == (
        "for this model and these texts a and b can be trusted, d and e cannot, of c these texts "
        "do not decide"
    )
    assert conclusion(rows[3:], noise, 9).endswith("d and e cannot be trusted")
    assert conclusion(rows, noise, 1) == (
        "one text decides little; here the rank correlation of a, b and c is above 0.5, that of d "
        "and e is not"
    )
    assert conclusion(rows[3:], noise, 1).endswith("here no rank correlation is above 0.5")
    assert "too few tokens" in conclusion([row("a", np.nan, np.nan, np.nan)], noise, 1)


@pytest.mark.slow
def test_formats_agree():
    given = ("ablate", "--lenses", "the red car", "la voiture rouge", "-q", "--seed", 3)
    document = attnviz(*given, "-f", "json").json()
    header, *rows = attnviz(*given, "-f", "tsv").rows
    table = attnviz(*given).text
    assert [one["lens"] for one in document["lenses"]] == [line[0] for line in rows]
    for one, line in zip(document["lenses"], rows, strict=True):
        told = dict(zip(header, line, strict=True))
        for name in LENS_MEASURES:
            assert float(told[name]) == one[name]["mean"]
            assert (told[f"{name}_low"], one[name]["low"]) == ("", None)
        shown = f"{one['rank_correlation']['mean']:.2f}".replace("-", "−")
        assert any(text.split()[:2] == [one["lens"], shown] for text in table.splitlines())
    assert {"raw", "effect", "knock_out", "token"} <= document["tokens"][0].keys()
    assert document["conclusion"] in " ".join(table.split())


@pytest.mark.slow
def test_long_and_failing_texts_are_said(monkeypatch):
    lines = b"the red car\tla voiture rouge\n\xff\nthe black cat\tle chat noir\n"
    done = attnviz("ablate", "--lenses", "--input", "tsv:-", "-f", "json", stdin=lines)
    assert (done.status, done.json()["texts"]) == (1, 2)
    assert "line 2" in done.err
    assert all(one["rank_correlation"]["low"] is not None for one in done.json()["lenses"])
    monkeypatch.setattr(faithful, "MOST_HIDDEN", 5)
    refused = attnviz("ablate", "--lenses", "The red car is fast.", "La voiture rouge est rapide.")
    assert refused.status == 1
    assert "tokens to hide, each in a run of its own, more than 5" in refused.mistake
    monkeypatch.undo()
    monkeypatch.setattr("attnviz.features.lenses.token_scores.MOST_FLOWS", 100)
    told = " ".join(attnviz("ablate", "--lenses", "The cat sat.").text.split())
    assert re.search(r"flow left out: flow would solve \d+ maximum-flow problems of \d+ ", told)
