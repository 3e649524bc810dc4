"""The scales, the bars and the legends of a corpus' picture where they depend on the numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.core.measures import Meaning, Role
from attnviz.features.atlas.picture import ClassBars, MeasurePlots
from attnviz.features.corpus.results import StreamReport
from attnviz.renderers.colors import NO_ROLE, ROLE_COLORS
from attnviz.renderers.figures.canvas import full_canvas
from attnviz.renderers.figures.fonts import typeface
from tests.renderers.corpus import corpus


class Recorder:
    """A canvas that keeps what it is asked to draw; each letter is ten pixels wide."""

    def __init__(self, part: Any) -> None:
        self.face = self
        self.texts: list[str] = []
        self.tops: set[float] = set()
        self.lefts: set[float] = set()
        part.draw(self)

    def width(self, text: str, size: float) -> float:
        return 10.0 * len(text)

    def text(self, x: float, y: float, text: str, size: float, *how: Any, **more: Any) -> float:
        self.texts.append(text)
        return self.width(text, size)

    def boxes(self, boxes: list[Any], colors: Any, label: str) -> None:
        self.lefts |= {box[0] for box in boxes}
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


def plotted(stream: StreamReport, width: int) -> Any:
    """The axes of a stream's only measure."""
    canvas = full_canvas(typeface(["0"]), width, [], [], 400)
    MeasurePlots(stream, 0, 0, width).draw(canvas)
    return canvas.figure.axes[-1]


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
def test_a_scale_ends_at_round_numbers(mean, unit, spread, uniform, ticks):
    chart = plotted(measured(mean, unit, spread, uniform), 400)
    assert [text.get_text() for text in chart.get_yticklabels()] == ticks
    assert chart.get_title("right") == ("" if unit == "share" else unit)
    assert len(chart.collections[1].get_segments()) == sum(np.isfinite(mean))


def test_lines_of_many_heads_are_thin_and_coloured():
    stream = measured([0.1] * 50, "share")
    role = replace(stream.rows[3], roles=(Role("induction", 0.9, 0.1),))
    stream = replace(stream, rows=(*stream.rows[:3], role, *stream.rows[4:]))
    spread, interval = plotted(stream, 1056).collections
    # A plot is 216 pixels wide.
    assert spread.get_linewidths() == interval.get_linewidths()
    assert interval.get_linewidths() == pytest.approx([0.36 * 216 / 50 * 0.8])
    colors = [tuple(round(255 * part) for part in one[:3]) for one in interval.get_colors()]
    assert [color == ROLE_COLORS["induction"] for color in colors].index(True) == 3
    assert set(colors) == {NO_ROLE, ROLE_COLORS["induction"]}
    many = plotted(measured([0.1] * 400, "share"), 1056).collections[1]
    assert many.get_linewidths() == [0.4]


def test_measures_without_room_beside_stand_below_each_other():
    plots = MeasurePlots(corpus().streams[0], 0, 0, 400)
    canvas = full_canvas(typeface(["0"]), 400, [], [], plots.height)
    plots.draw(canvas)
    tops = [axes.get_position().y1 for axes in canvas.figure.axes[-len(plots.stream.measures) :]]
    assert 1 > tops[0] > tops[1] > tops[-1] > 0
    assert -np.diff(tops) == pytest.approx(tops[0] - tops[1])


def test_shares_and_legends_stand_where_they_fit():
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
    assert min(Recorder(ClassBars(stream, 70, 0, 400)).lefts) >= 70
