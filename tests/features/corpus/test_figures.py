"""What one text says, against slow loops."""

import numpy as np
import pytest

from attnviz.analyses.heads import measure_heads
from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import Token
from attnviz.features.corpus.figures import (
    COUNT,
    MEASURED,
    OFFSETS,
    ROWS,
    by_offset,
    head_statistics,
)
from attnviz.features.corpus.words import CLASSES
from tests.analyses.heads import random_map


def figures(length: int, causal: bool, special: tuple[int, ...] = (0,)):
    item = random_map(length, causal=causal)
    tokens = tuple(Token(f"w{n}", special=n in special) for n in range(length))
    item = item.with_weights(item.weights, query_tokens=tokens, key_tokens=tokens)
    subject = MeasuredMap(item)
    classes = np.arange(length) % len(CLASSES)
    return item, classes, head_statistics(subject, measure_heads(subject, repeated=False), classes)


@pytest.mark.parametrize("shape", [(3, 3), (40, 40), (5, 30), (30, 5), (1, 1)])
def test_diagonals_are_summed_as_a_loop_does(shape):
    cells = np.random.default_rng(0).random((2, *shape))
    expected = [np.trace(cells, offset, axis1=-2, axis2=-1) for offset in OFFSETS]
    assert pytest.approx(np.array(expected), abs=1e-12) == by_offset(cells).T


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [4, 40])
def test_positions_are_those_of_a_loop_over_text(length, causal):
    item, _, found = figures(length, causal, special=(0, 3))
    near = np.zeros((len(OFFSETS), 2, 3))
    cells, beyond = np.zeros(len(OFFSETS)), np.zeros((2, 2, 3))
    for query in range(length):
        for key in range(length):
            if {query, key} & {0, 3} or (causal and key > query):
                continue
            if abs(key - query) <= 16:
                near[key - query + 16] += item.weights[:, :, query, key]
                cells[key - query + 16] += 1
            else:
                beyond[int(key > query)] += item.weights[:, :, query, key]
    assert found[ROWS["near"]] == pytest.approx(near, abs=1e-6)
    assert (found[ROWS["cells"]] == cells[:, None, None]).all()
    assert found[ROWS["beyond"]] == pytest.approx(beyond, abs=1e-6)
    assert (found[ROWS["text rows"]] == length - 2).all()


def test_classes_and_measures_stand_beside_uniform_attention():
    item, classes, found = figures(9, causal=False)
    assert found[ROWS["class"]].sum(axis=0) == pytest.approx(np.full((2, 3), 9), abs=1e-5)
    third = item.weights[..., classes == 2].sum(axis=(-1, -2))
    assert found[ROWS["class"]][2] == pytest.approx(third, abs=1e-5)
    assert found[ROWS["class uniform"]][0] == pytest.approx(np.full((2, 3), 2.0))
    assert found[ROWS["class uniform"]][3] == pytest.approx(np.full((2, 3), 1.0))
    item, _, found = figures(6, causal=True)
    measures = measure_heads(item, repeated=False)
    assert found.shape == (COUNT, 2, 3)
    for place, name in enumerate(MEASURED):
        if name in measures:
            assert found[ROWS["value"]][place] == pytest.approx(measures[name].values)
            assert found[ROWS["uniform"]][place] == pytest.approx(measures[name].uniform)
        else:
            assert np.isnan(found[ROWS["value"]][place]).all()
