"""Heads that look alike, as text and in a plane."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attnviz.features.heads.picture import head_plane
from attnviz.features.heads.table import similarity_json, similarity_table
from attnviz.renderers import Display
from tests.renderers.heads import row, similarity


@pytest.mark.parametrize("count", [1, 2])
def test_few_heads_make_a_table_too(count):
    assert similarity_table(similarity(count), Display(width=40))


def test_json_holds_the_matrix_and_the_table_what_fits():
    document = json.loads(similarity_json(similarity(3)))
    assert len(document["divergences"]) == len(document["divergences"][0]) == 3
    assert document["heads"][2]["head"] == 2
    assert len(document["heads"][2]["place"]) == 2
    for width, count in ((38, 2), (39, 3)):
        line = similarity_table(similarity(20), Display(width=width)).splitlines()[-1]
        assert len(line.split()) == 1 + 2 * count


@pytest.mark.slow
def test_names_of_heads_in_the_plane_do_not_overlap():
    figure = head_plane(similarity(60), [row(0, 2, 0.99), row(0, 3, 0.2)])
    (plane,) = figure.axes
    points = plane.collections[0].get_offsets()
    assert len(points) == 60
    close = replace(similarity(60), places=similarity(60).places / 50)  # they fill the plane too
    (other,) = head_plane(close, []).axes
    np.testing.assert_allclose(other.collections[0].get_offsets(), points, atol=1)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in plane.texts]
    assert len(boxes) > 30
    assert not any(
        one.padded(-3).overlaps(other.padded(-3))
        for place, one in enumerate(boxes)
        for other in boxes[:place]
    )
