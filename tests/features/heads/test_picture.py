"""All heads in one picture."""

from dataclasses import replace

import pytest

from attnviz.core.measures import EFFECT
from attnviz.features.heads.picture import head_overview
from attnviz.features.measures.study import ROLES
from attnviz.renderers.colors import ROLE_COLORS
from tests.renderers.heads import PROVENANCE, report, row


def rows(layers: int, heads: int):
    return [
        row(layer, head, 0.9 if (layer, head) == (0, 1) else 0.2)
        for layer in range(layers)
        for head in range(heads)
    ]


def words(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_every_role_has_a_colour():
    assert set(ROLE_COLORS) == set(ROLES)
    assert len(set(ROLE_COLORS.values())) == len(ROLES)


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 16), (48, 2), (12, 12), (40, 40)])
@pytest.mark.slow
def test_nothing_leaves_the_page(layers, heads):
    figure = head_overview(report(*rows(layers, heads)))
    (canvas,) = figure.axes
    width, height = canvas.get_xlim()[1], canvas.get_ylim()[0]
    for image in canvas.images:
        left, right, bottom, top = image.get_extent()
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    renderer = figure.canvas.get_renderer()
    for text in canvas.texts:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y0 >= 0


def test_colours_of_effects_are_explained_with_effects_alone():
    effects = replace(PROVENANCE, settings={EFFECT: "of the next token"})
    reports = report(), replace(report(), provenance=effects)
    notes = [head_overview(one).texts[-1].get_text() for one in reports]
    assert ["supports it" in note for note in notes] == [False, True]


def test_tiles_do_not_touch():
    boxes = [image.get_extent() for image in head_overview(report(*rows(30, 30))).axes[0].images]
    for place, (left, right, bottom, top) in enumerate(boxes):
        for other_left, other_right, other_bottom, other_top in boxes[:place]:
            across = left < other_right and other_left < right
            down = top < other_bottom and other_top < bottom
            assert not (across and down)
