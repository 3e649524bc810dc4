"""Heads that look alike, as text and in a plane."""

from __future__ import annotations

import json

import pytest

from attnviz.renderers import Display
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.figures.head_plane import head_plane
from attnviz.renderers.text.head_tables import similarity_json, similarity_table, similarity_tsv
from tests.renderers.heads import row, similarity


def test_each_head_names_the_one_most_like_it_first() -> None:
    report = similarity(3)
    lines = similarity_table(report, Display(width=80)).splitlines()[-3:]
    apart = report.divergences
    for place, line in enumerate(lines):
        others = sorted({0, 1, 2} - {place}, key=lambda other: apart[place, other])
        assert [word for word in line.split() if word.count(".") == 1 and word[0] == "0"] == [
            f"0.{place}",
            *(f"0.{other}" for other in others),
        ]


@pytest.mark.parametrize("count", [1, 2])
def test_few_heads_make_a_table_too(count: int) -> None:
    assert similarity_table(similarity(count), Display(width=40))


def test_pairs_are_rows() -> None:
    lines = similarity_tsv(similarity(4)).splitlines()
    assert len(lines) == 1 + 6
    assert lines[0].split("\t")[-1] == "divergence"


def test_json_holds_the_matrix_and_the_places() -> None:
    document = json.loads(similarity_json(similarity(3)))
    assert len(document["divergences"]) == len(document["divergences"][0]) == 3
    assert document["heads"][2]["head"] == "2"
    assert len(document["heads"][2]["place"]) == 2


def test_the_plane_has_a_point_for_each_head_and_names_that_do_not_overlap() -> None:
    figure = head_plane(similarity(60), [row(0, 2, 0.99), row(0, 3, 0.2)])
    (plane,) = figure.axes
    assert len(plane.collections[0].get_offsets()) == 60
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in plane.texts]
    assert len(boxes) > 30
    assert not any(
        one.padded(-3).overlaps(other.padded(-3))
        for place, one in enumerate(boxes)
        for other in boxes[:place]
    )


def test_the_plane_names_only_roles_that_occur() -> None:
    figure = head_plane(similarity(4), [row(0, 2, 0.99)])
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["previous-token", "no clear role"]


def test_one_unit_is_as_long_down_as_across() -> None:
    report = similarity(5)
    offsets = head_plane(report, []).axes[0].collections[0].get_offsets()
    drawn = offsets[1] - offsets[0]
    asked = report.places[1] - report.places[0]
    assert drawn[0] / asked[0] == pytest.approx(-drawn[1] / asked[1])


def test_the_same_plane_gives_the_same_bytes() -> None:
    first, second = (figure_bytes(head_plane(similarity(4), []), ".svg") for _ in range(2))
    assert first == second
