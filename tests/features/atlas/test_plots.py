"""The scales, the bars and the legends of a corpus' picture where they depend on the numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.core.measures import Meaning, Role
from attnviz.features.atlas.picture import ClassBars, MeasurePlots
from attnviz.features.corpus.results import StreamReport
from attnviz.renderers.colors import NO_ROLE, ROLE_COLORS
from tests.renderers.corpus import corpus


class Recorder:
    """A canvas that keeps what it is asked to draw; each letter is ten pixels wide."""

    def __init__(self, part: Any) -> None:
        self.face = self
        self.texts: list[str] = []
        self.lines: list[tuple[np.ndarray, Any, float]] = []
        self.tops: set[float] = set()
        part.draw(self)

    def width(self, text: str, size: float) -> float:
        return 10.0 * len(text)

    def text(self, x: float, y: float, text: str, size: float, *how: Any, **more: Any) -> float:
        self.texts.append(text)
        return self.width(text, size)

    def strokes(self, ends: np.ndarray, colors: Any, width: float, **looks: Any) -> None:
        self.lines.append((ends, colors, width))

    def boxes(self, boxes: list[Any], colors: Any, label: str) -> None:
        if label.startswith("legend"):
            self.tops.add(boxes[0][1])


def measured(mean: list[float], unit: str, spread: float = 0, even: float = 0) -> StreamReport:
    """A stream of one layer and one measure, without intervals."""
    stream, heads = corpus().streams[0], len(mean)
    row = replace(stream.rows[0], layer="0", roles=())
    filled = {"deviation": spread, "uniform": even}
    return replace(
        stream,
        layers=("0",),
        heads=tuple(map(str, range(heads))),
        measures=(Meaning("entropy", "entr", unit, "", "", 1.0),),
        rows=tuple(replace(row, head=str(head)) for head in range(heads)),
        **{name: np.array([[mean]]) for name in ("mean", "low", "high")},
        **{name: np.full((1, 1, heads), value) for name, value in filled.items()},
    )


@pytest.mark.parametrize(
    ("mean", "unit", "spread", "uniform", "ticks"),
    [
        ([0.2, 0.51], "share", 0, 0, ["0", "1"]),
        ([0.2, 0.5], "share", 0, 0, ["0", "0.5"]),
        ([0.2, 0.3], "share", 0.3, 0, ["0", "1"]),
        ([0.2, 0.3], "share", 0, 0.6, ["0", "1"]),
        ([0.2, 0.51], "nats", 0, 0, ["0", "0.6"]),
        ([-1.2, 2.4], "tokens", 0.2, 0, ["−2", "0", "3"]),
        ([-1.2, -0.4], "tokens", 0, -1, ["−2", "0", "1"]),
        ([0.2, 2.4], "tokens", 0.5, 0, ["0", "3"]),
        ([float("nan"), 0.4], "share", 0, 0, ["0", "0.4"]),
    ],
)
def test_a_scale_ends_at_round_numbers_around_means_and_their_spread(
    mean, unit, spread, uniform, ticks
):
    found = Recorder(MeasurePlots(measured(mean, unit, spread, uniform), 0, 0, 400))
    assert found.texts[1:] == ["" if unit == "share" else unit, *ticks]
    assert len(found.lines[-2][0]) == sum(np.isfinite(mean))


def test_of_many_heads_lines_grow_thin_and_have_the_colours_of_their_roles():
    stream = measured([0.1] * 50, "share")
    role = replace(stream.rows[3], roles=(Role("induction", 0.9, 0.1),))
    stream = replace(stream, rows=(*stream.rows[:3], role, *stream.rows[4:]))
    # A plot is 216 pixels wide.
    *_, spread, interval, _ = Recorder(MeasurePlots(stream, 0, 0, 1056)).lines
    assert spread[2] == interval[2] == pytest.approx(0.36 * 216 / 50 * 0.8)
    assert [color == ROLE_COLORS["induction"] for color in interval[1]].index(True) == 3
    assert set(interval[1]) == {NO_ROLE, ROLE_COLORS["induction"]}
    assert Recorder(MeasurePlots(measured([0.1] * 400, "share"), 0, 0, 1056)).lines[-2][2] == 0.4


def test_a_share_is_written_and_a_legend_goes_on_in_its_line_only_where_they_fit():
    shares = np.array([[0.4, 0.6], [0.1, 0.1], [0.3, 0.1], [0.2, 0.2]])[:, None]
    even = np.array([0.5, 0.0, 0.25, 0.25])[:, None, None].repeat(2, axis=2)
    classes = ("special", "punctuation", "rank 1-10", "rarer")
    stream = replace(corpus().streams[0], layers=("0",), classes=classes, class_shares=shares,
                     class_even=even)  # fmt: skip
    side = 0.62 * 1.25 * 6.5 * 200 / 72
    # "10%" is 30 pixels wide and needs 8 more; so with each name of the legend and its square.
    two = sum(side + 30 + 10 * len(name) for name in ("special tokens", "10 most frequent words"))
    for width, written, lines in ((381, True, 3), (380, False, 3), (two, True, 2), (10, False, 3)):
        found = Recorder(ClassBars(stream, 0, 0, width))  # type: ignore[arg-type]
        assert ("10%" in found.texts) == written, width
        assert len(found.tops) == lines, width
    assert len(Recorder(ClassBars(stream, 0, 0, 10_000)).tops) == 1
