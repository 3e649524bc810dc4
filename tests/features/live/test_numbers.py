"""The engine's numbers against Python's: maps, documents, log p, what is switched off, effects."""

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest

from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt, Intervention, LinkAt, TokenAt, log_probabilities
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.core.query import ALL_OUTPUTS, Query
from attnviz.core.registry import LENSES
from attnviz.features.experiments.pocket import PocketExperiment
from attnviz.features.writers.links import explain_link
from attnviz.models.pocket.translator import Pocket
from attnviz.runs.outputs import page_html
from tests.features.live.conftest import NOTHING

CLOSE = 2e-5
"""Nats: Python adds up in single precision, the page in double."""
PAIRS: list[tuple[str, str | None]] = [
    ("The red car isn't fast", None),
    ("Il a passé toute la semaine à travailler sur ce rapport.", None),
    ("I spent the whole week.", "J'ai passé toute la semaine."),
    ("Hi", None),
    ("Ich weiß nicht, was das bedeutet.", None),
    ("It is late. " * 20, "Il est tard."),
    ("Tom and Tom said Tom is \x1b[31m \u202eTom 👩‍👩‍👧, d’accord ?", None),
]
SOME = [pytest.param(*pair, marks=[pytest.mark.slow] * (pair is not PAIRS[0])) for pair in PAIRS]
PARTS: dict[str, dict[str, list[Any]]] = {
    "heads": {**NOTHING, "heads": [["cross", "2", 0], ["encoder", "1", 3], ["decoder", "3", 5]]},
    "links": {**NOTHING, "links": [["cross", "2", 0, 1, 1], ["decoder", None, None, 2, 1]]},
    "tokens": {**NOTHING, "tokens": [["source", 1], ["target", 1]]},
    "everything": {
        "heads": [["encoder", "0", 0]],
        "links": [["encoder", "2", None, 0, 1]],
        "tokens": [["source", 0]],
    },
}
# What is called otherwise in a page that answers, or that its own page adds.
OTHER = {"schemes", "head_colors", "command", "lens", "start", "end", "provenance"}


def experiment(pocket: Pocket, source: str, target: str | None) -> PocketExperiment:
    return pocket.experiment(Query(source, target, "cross"), ALL_OUTPUTS)


def change(off: dict[str, list[Any]]) -> Intervention:
    return Intervention(
        tuple(HeadAt(*head) for head in off["heads"]),
        tuple(LinkAt(at, query, key, *one) for at, *one, query, key in off["links"]),
        tuple(TokenAt(*token) for token in off["tokens"]),
    )


def differing(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where two documents differ, but for rounding."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = (expected.keys() | found.keys()) - OTHER
        if missing := names - (expected.keys() & found.keys()):
            return [f"{path}: {missing}"]
        return [
            one
            for name in names
            for one in differing(expected[name], found[name], f"{path}/{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [one for place, (a, b) in pairs for one in differing(a, b, f"{path}/{place}")]
    numbers = isinstance(expected, int | float) and isinstance(found, int | float)
    same = abs(expected - found) < 2e-4 if numbers else expected == found
    return [] if same else [f"{path}: {expected!r}, not {found!r}"]


def document_of(attention: Attention) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of Python's page and its codes."""
    html = page_html(attention)
    (text,) = re.findall(r'id="document">(.*?)</script>', html, re.DOTALL)
    blobs = re.findall(r'<script type="text/plain" id="(m\d-\d)">(.*?)</script>', html)
    unpacked = {name: zlib.decompress(base64.b64decode(blob)) for name, blob in blobs}
    return json.loads(text), {name: np.frombuffer(data, "<i2") for name, data in unpacked.items()}


def same_values(found: dict[str, list[int]], expected: dict[str, np.ndarray]) -> None:
    """Codes stand for the same shares of the scale; NaN, which is one code, stays NaN."""
    assert found.keys() == expected.keys()
    for name, codes in expected.items():
        shares = [np.asarray(one, np.float64) / 32767 for one in (found[name], codes)]
        values = [np.copysign(one * one, one) for one in shares]
        np.testing.assert_allclose(*values, atol=1e-4, err_msg=name)  # a code or two


def through(lens: str, ran: PocketExperiment) -> Attention:
    if lens == "raw":
        return ran.attention
    load = LENSES[lens].load()
    if lens == "rollout":
        found: Attention = load(ran.attention)
        return found
    rows = tuple(output.row for output in ran.outputs)
    return load(AttentionGradients(ran.attention, ran.gradients(), rows, "all", None))


@pytest.mark.slow
@pytest.mark.parametrize("lens", ["raw", "rollout", pytest.param("effect", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("source", "target"), SOME)
def test_the_document_is_that_of_python_number_by_number(engine, pocket, source, target, lens):
    answer = engine.ask(source, target, lens=lens)
    document, codes = document_of(through(lens, experiment(pocket, source, target)))
    found = answer["document"]
    # What sinks hold in all is told by Python alone: the page that answers shows its sink.
    document["notes"] = [one for one in document["notes"] if not one.startswith("attention on ")]
    if lens == "effect":
        assert found["notes"].pop() == "effects are estimates by the gradient"
    assert differing(document, found) == []
    same_values(answer["codes"], codes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target", "part"),
    [
        pytest.param(*pair.values, part, marks=pair.marks)
        for number, pair in enumerate(SOME)
        for part in ((None, *PARTS) if number < 3 else (None, "everything"))
    ],
)
def test_what_is_switched_off_changes_what_ablate_says(engine, pocket, source, target, part):
    off = PARTS[part] if part else NOTHING
    ran = experiment(pocket, source, target)
    before, after = log_probabilities(ran, [Intervention(), change(off)])
    answer = engine.ask(source, target, off=off)["answer"]
    assert [piece["text"] for piece in answer["pieces"]] == [output.name for output in ran.outputs]
    np.testing.assert_allclose([piece["logp"] for piece in answer["pieces"]], before, atol=CLOSE)
    if target is None:
        assert answer["written"] == pocket.translate(source)
    if part is None:
        assert answer["changed"] is None
        return
    changed = answer["changed"]
    logs = np.array([float(piece["logp"]) for piece in changed["pieces"]])
    np.testing.assert_allclose(logs, after, atol=5 * CLOSE)
    np.testing.assert_allclose(float(changed["total"]), after.sum(), atol=20 * CLOSE)
    np.testing.assert_allclose(
        float(changed["effect"]), before.sum() - after.sum(), atol=20 * CLOSE
    )
    assert changed["written"] == ran.write(change(off))


@pytest.mark.slow
def test_one_piece_a_change_and_the_language(engine, pocket):
    off = {**NOTHING, "links": [["cross", "0", 0, 1, 2]], "tokens": [["source", 3]]}
    answer = engine.ask(*PAIRS[0], off=off)
    columns = len(answer["document"]["maps"][0]["keys"]["tokens"])
    codes = np.array(answer["codes"]["m0-0"]).reshape(6, -1, columns)
    weights = np.square(codes / 32767.0)
    assert codes[0, 1, 2] == 0 < codes[1, 1, 2]
    assert not codes[:, :, 3].any()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-3)
    source = PAIRS[0][0]
    ran = pocket.experiment(Query(source, None, "cross"), "rouge[3]")
    answer = engine.ask(source, lens="effect", explain=ran.outputs[0].position)
    _, codes = document_of(through("effect", ran))
    same_values(answer["codes"], codes)
    assert ["output", "rouge"] in answer["document"]["provenance"]
    assert engine.ask("Paris", to="en")["answer"]["to"] == "en"
    assert engine.ask("Paris", to="fr")["answer"]["language"] == "en"


def test_what_has_no_value_is_said(engine):
    answer = engine.ask("Hi", off={**NOTHING, "links": [["decoder", "0", 0, 0, 0]]})
    assert answer["answer"]["changed"]["effect"] == "NaN"
    assert answer["answer"]["changed"]["written"] == "…"
    assert answer["codes"]["m2-0"][0] == -32768
    engine.say(id=1, kind="why", source="Hi there.", target=None, link=["decoder", "0", "0", 0, 1])
    assert engine.hear()["error"] == "the query does not see this key, which comes later"


@pytest.mark.slow
@pytest.mark.core
def test_the_effect_of_every_head_is_that_of_ablate(engine, pocket):
    source = PAIRS[0][0]
    ran = experiment(pocket, source, None)
    engine.say(id=0, kind="heads", source=source, target=None, off=NOTHING, pane=1)
    for stream in ("cross", "encoder", "decoder"):
        message = engine.hear()
        assert (message["stream"], message["pane"]) == (stream, 1)
        heads = [HeadAt(stream, str(layer), head) for layer in range(4) for head in range(6)]
        before, *after = log_probabilities(
            ran, [Intervention(), *(Intervention((at,)) for at in heads)]
        )
        expected = (before.sum() - np.array(after).sum(axis=1)).reshape(4, 6)
        np.testing.assert_allclose(message["values"], expected, atol=5 * CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), SOME[:3])
def test_why_a_head_looks_there_is_that_of_python(engine, pocket, source, target):
    text, chance = pocket.trace_writers(Query(source, target, "cross")), np.random.default_rng(1)
    for stream in ("cross", "decoder", "encoder") * 4:
        item = text.attention.map_of(stream)
        layer, head, query, key = chance.integers(
            0, (4, 6, len(item.query_tokens), len(item.key_tokens))
        ).tolist()
        key = min(key, query) if stream == "decoder" else key
        link = [stream, str(layer), str(head), query, key]
        engine.say(id=1, kind="why", source=source, target=target, link=link)
        found = engine.hear()["report"]
        expected = explain_link(text, HeadAt(stream, str(layer), head), (query, key))
        for side in ("query", "key"):
            values = {part.writer: part.value for part in getattr(expected, side)}
            own = {part["writer"]: part["value"] for part in found[side]}
            assert own == pytest.approx(values, abs=1e-4)
            assert sum(own.values()) == pytest.approx(found["contrast"], rel=1e-5, abs=1e-6)
        for name in ("weight", "score", "contrast", "at_distance", "argument", "logit"):
            assert found.get(name) == pytest.approx(getattr(expected, name), abs=1e-4)
        assert found["against"] == expected.against
        assert found.get("rank") == expected.rank
        assert bool(found["arguments"]) == (stream != "encoder")
        for one, other in zip(found["arguments"], expected.arguments, strict=True):
            assert one["token"] == other.token
            assert one["logit"] == pytest.approx(other.logit, abs=1e-4)
        if expected.predicted is not None:
            assert found["predicted"] == [
                expected.predicted[0],
                pytest.approx(expected.predicted[1], abs=1e-4),
            ]


@pytest.mark.parametrize("source", ["", " ", "a " * 300])
def test_what_cannot_be_read_is_answered_in_one_line(engine, source):
    answer = engine.ask(source, pane=1)
    assert answer["pane"] == 1
    assert "\n" not in answer["error"]
    assert "the source " in answer["error"]


def test_a_newer_question_drops_older_ones_of_its_pane(engine):
    asked = {"target": None, "lens": "raw", "off": NOTHING}
    engine.say(id=1, kind="attend", source="A cat.", pane=0, **asked)
    engine.say(id=2, kind="attend", source="A dog.", pane=1, **asked)
    engine.say(id=3, kind="heads", source="A dog.", pane=1, **asked)
    engine.say(id=4, kind="attend", source="A bird.", pane=0, **asked)
    answers = {answer["id"]: answer for answer in (engine.hear() for _ in range(4))}
    assert "answer" in answers[2]
    assert "answer" in answers[4]
    assert answers[3] == {"id": 3, "pane": 1, "dropped": True}
