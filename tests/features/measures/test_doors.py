"""Every row of the tables of measures and lenses is complete: what a row lacks is said here."""

import inspect
from typing import Any

import numpy as np
import pytest

from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.measures import HeadMeasure
from attnviz.core.registry import LENSES, MEASURES, Lens, Measure
from attnviz.renderers.colors import ROLE_COLORS
from tests.analyses.heads import map_of, random_map
from tests.features.measures.test_measures import BY_HAND, SCORED, definitions
from tests.samples import asked_logits

WORDS = "[x] a b , d a b , d"
PICTURE = tuple(Token(f"{row},{column}") for row in range(3) for column in range(3))
ROLES = {name: entry for name, entry in MEASURES.items() if entry.role}


def first_line(entry: Lens | Measure) -> str:
    return (inspect.getdoc(entry.load()) or "").split("\n")[0]


def measured(name: str) -> HeadMeasure:
    """What a measure says of a text, or of a picture where it says nothing of a text."""
    drawn = random_map(9)
    text, picture = (
        map_of(drawn.weights, WORDS),
        drawn.with_weights(drawn.weights, query_tokens=PICTURE, key_tokens=PICTURE),
    )
    weights = drawn.weights / 2
    weights[:, 0, 3] = 0
    faint = map_of(weights, WORDS)
    long = random_map(68)
    items = text, picture, faint, long
    subjects = [MeasuredMap(item) for item in items]
    sentences = "0! 1! 2! 3! 4! 5! 6! 7! 8!"
    places = tuple(Token(f"{n}!", 3 * n, 3 * n + 2) for n in range(9))
    written = drawn.with_weights(drawn.weights, query_tokens=places, key_tokens=places)
    subjects.append(MeasuredMap(written, (sentences, sentences), 4))
    known = np.arange(6, dtype=float).reshape(2, 3)
    subjects.append(MeasuredMap(drawn, scores=dict.fromkeys(SCORED, known)))
    named = tuple(Token(f"w{n}", label="ab"[n % 2]) for n in range(9))
    subjects.append(
        MeasuredMap(drawn.with_weights(drawn.weights, query_tokens=named, key_tokens=named))
    )
    grouped = MeasuredMap(drawn)
    grouped.group_sizes = dict.fromkeys(drawn.layers, 3)
    subjects.append(grouped)
    found = (MEASURES[name].load()(subject) for subject in subjects)
    made = next((measure for measure in found if measure is not None), None)
    assert made is not None, f"'{name}' says nothing of any text nor of a picture"
    return made


@pytest.mark.parametrize("name", MEASURES)
def test_a_measures_row_says_what_its_function_does(name):
    entry, made = MEASURES[name], measured(name)
    assert first_line(entry) == entry.summary
    assert made.name == name
    assert made.unit
    assert made.low
    assert made.high
    assert made.uniform is not None
    assert made.values.shape == made.uniform.shape == (2, 3)
    looped = name in definitions(WORDS.split())
    assert looped or name in BY_HAND, f"'{name}' has no loop in definitions(), nor is it in BY_HAND"


def test_headings_differ_and_only_roles_have_colours():
    headings = [entry.short for entry in MEASURES.values()]
    assert len(set(headings)) == len(headings)
    assert all(0 < len(heading) <= 5 for heading in headings)
    assert set(ROLE_COLORS) == set(ROLES)


@pytest.mark.parametrize("name", ROLES)
def test_a_role_is_a_share_and_has_a_colour_of_its_own(name):
    assert measured(name).unit == "share"
    assert name in ROLE_COLORS, f"the row of '{name}' has a role and no colour"
    others = [ROLE_COLORS[other] for other in ROLES if other != name]
    assert all(max(abs(np.subtract(ROLE_COLORS[name], other))) >= 24 for other in others)


def lens_input(needs: str) -> Any:
    item = random_map(4)
    attention = Attention((item,), Provenance("file", "made up"), "w0 w1 w2 w3")
    if needs in ("gradients", "effects"):
        return AttentionGradients(attention, (np.ones_like(item.weights),), (3,), "POSITIVE", 0.9)
    if needs == "writers":
        return asked_logits(attention)
    if needs == "values":
        return ValueVectors(attention, (np.ones((2, 4, 3, 3)),), projected=True)
    return attention


@pytest.mark.parametrize("name", LENSES)
def test_a_lens_is_named_after_its_row_and_says_so(name):
    entry = LENSES[name]
    assert first_line(entry) == entry.summary
    assert entry.load().__name__ == name.replace("-", "_")
    assert name not in ("raw", "all")
    found = entry.load()(lens_input(entry.needs))
    assert isinstance(found, Attention)
    assert found.lens_name == name
    assert f"lens {name}" in found.provenance.steps
    assert not found.focus
    assert np.isfinite(found.weights).all()
    assert found.main.unit
