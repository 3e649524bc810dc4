"""What decided a word and what one number is made of, in the page's engine: equal to Python's."""

import json
from typing import Any

import numpy as np
import pytest

from attnviz.core.effects import HeadAt
from attnviz.core.query import ALL_OUTPUTS, Query
from attnviz.features.explain import search
from attnviz.features.explain.request import AnswerRequest, Explainer
from attnviz.features.explain.table import sentences_of
from attnviz.features.writers.links import unfold_link
from tests.features.live.conftest import Engine


def heard(engine: Engine, kind: str, **question: Any) -> dict[str, Any]:
    """The engine's answer to one question."""
    number = next(engine.numbers)
    engine.say(id=number, kind=kind, target=None, **question)
    answer: dict[str, Any] = engine.hear()
    assert answer["id"] == number
    return answer


@pytest.fixture(scope="module")
def banks() -> dict[Any, Any]:
    """The head outputs in the sentences of reference, once they are known."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(("source", "place"), [("I see a dog.", 4), ("Il a deux chats.", 2)])
def test_what_decided_a_word_is_what_explain_says(
    engine, pocket, source, place, banks, monkeypatch
):
    # With torch loaded, slopes would give the order of the search.
    monkeypatch.setattr(search, "estimate_costs", lambda _: None)
    explainer = Explainer(pocket, AnswerRequest(str(place)), None, banks)
    report, _ = explainer.explain_query(Query(source, None, "cross"))
    expected = [one.document() for one in sentences_of(report)]
    assert len(expected) > 1
    found = heard(engine, "explain", source=source, explain=place)
    assert found["claims"] == json.loads(json.dumps(expected))


def test_a_piece_that_is_not_there_is_not_explained(engine):
    found = heard(engine, "explain", source="The red car is fast.", explain=99)
    assert found["error"] == "the target has no piece 99: name one from 1 to 6"


@pytest.mark.parametrize(
    ("stream", "layer", "head", "cell"),
    [("cross", 2, 0, (3, 1)), ("decoder", 2, 3, (5, 3)), ("encoder", 1, 2, (0, 4))],
)
def test_each_step_of_a_number_is_pythons(engine, pocket, stream, layer, head, cell):
    query = Query("The red car is fast.", None, "cross")
    link = [stream, str(layer), head, *cell]
    found = heard(engine, "why", source=query.text, link=link)["steps"]
    ran = pocket.experiment(query, ALL_OUTPUTS)
    at = HeadAt(stream, str(layer), head)
    expected = unfold_link(pocket.trace_writers(query), at, cell, ran)
    for name in ("query", "key", "value", "weights"):
        np.testing.assert_allclose(
            found[name], getattr(expected, name)[: len(found[name])], atol=1e-4
        )
    assert [one is None for one in found["scores"]] == [one is None for one in expected.scores]
    seen = [one for one in expected.scores if one is not None]
    np.testing.assert_allclose([one for one in found["scores"] if one is not None], seen, atol=1e-4)
    assert expected.changes is not None
    assert [name for name, _ in found["changes"]] == [name for name, _ in expected.changes]
    changes = [one for _, one in found["changes"]]
    np.testing.assert_allclose(changes, [one for _, one in expected.changes], atol=1e-4)
    # The steps lead from one to the next.
    score = np.dot(found["query"], found["key"]) * found["factor"]
    assert score == pytest.approx(found["scores"][cell[1]], abs=1e-9)
    powers = np.exp([one for one in found["scores"] if one is not None])
    np.testing.assert_allclose(powers / powers.sum(), found["weights"], atol=1e-9)
