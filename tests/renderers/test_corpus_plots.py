"""Where the parts of a corpus' picture lie, in pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.core.corpus_report import StreamReport
from attnviz.core.measures import Meaning, Role
from attnviz.renderers.colors import FAINT, INK, NO_ROLE, ROLE_COLORS, color_of
from attnviz.renderers.figures.corpus_overview import ClassBars, MeasurePlots, RoleLegend
from attnviz.renderers.figures.figure import points
from tests.renderers.corpus import corpus

# Lines of text in pixels: 1.25 times 7.5 and 6.5 points at 200 pixels to the inch.
LINE, NOTE = 1.25 * 7.5 * 200 / 72, 1.25 * 6.5 * 200 / 72
FIRST = 0.6 * 7.5 * 200 / 72
"""The middle of a heading."""


class Recorder:
    """A canvas that keeps what it is asked to draw; each letter is ten pixels wide."""

    def __init__(self) -> None:
        self.face = self
        self.texts: list[tuple[Any, ...]] = []
        self.lines: list[tuple[np.ndarray, Any, float, dict[str, Any]]] = []
        self.filled: list[tuple[list[Any], Any, str]] = []

    def width(self, text: str, size: float) -> float:
        return 10.0 * len(text)

    def text(self, x: float, y: float, text: str, size: float, color: Any, **how: str) -> float:
        self.texts.append((text, round(float(x), 3), round(float(y), 3), size, color, how))
        return self.width(text, size)

    def strokes(self, ends: np.ndarray, colors: Any, width: float, **looks: Any) -> None:
        self.lines.append((ends, colors, width, looks))

    def boxes(self, boxes: list[Any], colors: Any, label: str) -> None:
        self.filled.append((boxes, colors, label))


def drawn(part: Any) -> Recorder:
    found = Recorder()
    part.draw(found)
    return found


def measured(
    mean: list[float], unit: str = "share", name: str = "entropy", **arrays: list[float]
) -> StreamReport:
    """A stream of one layer and one measure, spread and interval 0 unless given."""
    heads = len(mean)
    stream = corpus().streams[0]
    shaped = {
        key: np.array(arrays.get(key, mean if key in ("low", "high") else [0.0] * heads)).reshape(
            1, 1, heads
        )
        for key in ("deviation", "low", "high", "uniform")
    }
    rows = tuple(
        replace(stream.rows[0], layer="0", head=str(head), roles=()) for head in range(heads)
    )
    return replace(
        stream,
        layers=("0",),
        heads=tuple(map(str, range(heads))),
        measures=(Meaning(name, name[:4], unit, "", "", 1.0),),
        mean=np.array([[mean]]),
        rows=rows,
        **shaped,
    )


ONE_WIDE = 4 * (400 + 64) - 64
"""The width of all plots in which one is 400 pixels wide."""


def test_heads_stand_in_the_order_of_their_means_under_a_named_scale() -> None:
    stream = measured(
        [0.4, 0.1], deviation=[0.05, 0.1], low=[0.3, 0.05], high=[0.45, 0.2], uniform=[0.2, 0.25]
    )
    found = drawn(MeasurePlots(stream, 100, 50, ONE_WIDE))
    base = 50 + LINE + 8 + 128
    assert found.texts[0] == ("entropy", 100, round(50 + LINE / 2, 3), 7.5, INK, {})
    assert found.texts[1] == ("", 100 + 70 + 12, round(50 + LINE / 2, 3), 5.5, FAINT, {})
    right = {"align": "right"}
    assert found.texts[2:] == [
        ("0", 94, round(base, 3), 5.5, FAINT, right),
        ("0.5", 94, round(base - 128, 3), 5.5, FAINT, right),
    ]
    zero, top, spread, interval, even = found.lines
    for (ends, *_), y in ((zero, base), (top, base - 128)):
        np.testing.assert_allclose(ends, [[(100, y), (500, y)]])
    assert (zero[1:3], top[1:3]) == (((205, 210, 217), 0.5),) * 2

    def y(value: float) -> float:
        return base - value / 0.5 * 128

    # Head 1 with the smaller mean stands first; each takes half of the width.
    np.testing.assert_allclose(
        spread[0], [[(200, y(0)), (200, y(0.2))], [(400, y(0.35)), (400, y(0.45))]]
    )
    np.testing.assert_allclose(
        interval[0],
        [
            [(200, y(0.05) + 1.5), (200, y(0.2) - 1.5)],
            [(400, y(0.3) + 1.5), (400, y(0.45) - 1.5)],
        ],
    )
    assert interval[1] == [NO_ROLE, NO_ROLE]
    assert spread[1] == [tuple(round(255 - (255 - c) * 0.4) for c in NO_ROLE)] * 2
    assert (spread[2], interval[2]) == (4.0, 4.0)
    np.testing.assert_allclose(
        even[0], [[(100, y(0.25)), (200, y(0.25)), (400, y(0.2)), (500, y(0.2))]]
    )
    assert even[1:] == (INK, 0.6, {"linestyles": [(0, (4, 3))]})


def test_plots_stand_side_by_side_and_below_one_another() -> None:
    one = measured([0.4, 0.1])
    meaning = one.measures[0]
    many = replace(
        one,
        measures=tuple(replace(meaning, name=name) for name in "abcde"),
        **{
            key: np.repeat(getattr(one, key), 5, axis=0)
            for key in ("mean", "deviation", "low", "high", "uniform")
        },
    )
    part = MeasurePlots(many, 100, 50, 1000)
    pitch = 128 + int(LINE) + 34
    assert part.height == 2 * pitch
    found = drawn(part)
    places = {text: (x, y) for text, x, y, *_ in found.texts if text in "abcde" and text}
    first = round(50 + LINE / 2, 3)
    assert places["a"] == (100, first)
    assert places["b"] == (100 + (1000 + 64) / 4, first)
    assert places["e"] == (100, round(first + pitch, 3))
    assert places["e"] == (100, round(first + 2 * pitch, 3))
    # A plot is as wide as half of the room without the gap between them.
    assert float(np.ptp(found.lines[0][0][..., 0])) == (1000 + 64) / 2 - 64


@pytest.mark.parametrize(
    ("mean", "unit", "spread", "uniform", "ticks"),
    [
        ([0.2, 0.51], "share", 0, 0, ["0", "1"]),
        ([0.2, 0.5], "share", 0, 0, ["0", "0.5"]),
        ([0.2, 0.3], "share", 0.3, 0, ["0", "1"]),
        ([0.2, 0.3], "share", 0, 0.6, ["0", "1"]),
        ([0.2, 0.51], "nats", 0, 0, ["0", "0.6"]),
        ([1.0, 2.4], "nats", 0, 0, ["0", "3"]),
        ([-1.2, 2.4], "tokens", 0.2, 0, ["−2", "0", "3"]),
        ([-1.2, -0.4], "tokens", 0, -1, ["−2", "0", "1"]),
        ([0.2, 2.4], "tokens", 0.5, 0, ["0", "3"]),
        ([float("nan"), 0.4], "share", 0, 0, ["0", "0.4"]),
    ],
)
def test_a_scale_ends_at_round_numbers_around_means_and_their_spread(
    mean: list[float], unit: str, spread: float, uniform: float, ticks: list[str]
) -> None:
    stream = measured(mean, unit, deviation=[spread] * 2, uniform=[uniform] * 2)
    found = drawn(MeasurePlots(stream, 0, 0, 400))
    assert [text[0] for text in found.texts[2:]] == ticks
    assert found.texts[1][0] == ("" if unit == "share" else unit)
    assert len(found.lines[-2][0]) == sum(np.isfinite(mean))


def test_of_many_heads_lines_grow_thin_and_have_the_colours_of_their_roles() -> None:
    stream = measured([0.1] * 50)
    role = replace(stream.rows[3], roles=(Role("induction", 0.9, 0.1),))
    stream = replace(stream, rows=(*stream.rows[:3], role, *stream.rows[4:]))
    *_, spread, interval, _ = drawn(MeasurePlots(stream, 0, 0, 992)).lines
    assert spread[2] == pytest.approx(0.36 * 200 / 50 * 0.8)
    assert interval[2] == spread[2]
    assert interval[1][3] == ROLE_COLORS["induction"]
    assert set(interval[1]) == {NO_ROLE, ROLE_COLORS["induction"]}
    thin = drawn(MeasurePlots(measured([0.1] * 400), 0, 0, 992)).lines[-2]
    assert thin[2] == 0.4


CLASSES = ("special", "punctuation", "rank 1-10", "rarer")


def classed(layers: int = 2, even: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)) -> StreamReport:
    """Shares of four classes: all layers alike, of two heads that differ."""
    shares = np.array([[0.4, 0.6], [0.1, 0.1], [0.3, 0.1], [0.2, 0.2]])
    return replace(
        corpus().streams[0],
        layers=tuple(map(str, range(layers))),
        classes=CLASSES,
        class_shares=np.repeat(shares[:, None], layers, axis=1),
        class_even=np.broadcast_to(np.array(even)[:, None, None], (4, layers, 2)),
    )


def test_each_layer_is_a_bar_divided_by_what_its_keys_are() -> None:
    part = ClassBars(classed(), 100, 50, 1000)
    found = drawn(part)
    start, right = 50 + FIRST + 3.2 * NOTE, {"align": "right"}
    bars = [item for item in found.filled if item[2] == "class shares"]
    assert len(bars) == 3
    # The mean of the two heads: .5, .1, .2, .2; a bar of 22 pixels and 4 between them.
    for number, (boxes, colors, _) in enumerate(bars[:2]):
        top = start + 26 * number
        widths = [(100, 500), (600, 100), (700, 200), (900, 200)]
        np.testing.assert_allclose(boxes, [(left, top, wide, 22) for left, wide in widths])
        assert colors[0] == ROLE_COLORS["special-token"]
        assert colors[2] == color_of(0.86)
    np.testing.assert_allclose(
        bars[2][0], [(100 + 250 * place, start + 52 + 6, 250, 22) for place in range(4)]
    )
    assert found.texts[0][:4] == ("attention by class of key", 100, round(50 + FIRST, 3), 7.5)
    names = [text for text in found.texts if text[5] == right]
    assert [name[:3] for name in names] == [
        ("0", 90, round(start + 11, 3)),
        ("1", 90, round(start + 37, 3)),
        ("uniform", 90, round(start + 69, 3)),
    ]
    shown = [text[:3] for text in found.texts if text[0].endswith("%")]
    assert shown[:4] == [
        ("50%", 350, round(start + 11, 3)),
        ("10%", 650, round(start + 11, 3)),
        ("20%", 800, round(start + 11, 3)),
        ("20%", 1000, round(start + 11, 3)),
    ]
    assert part.height == int(LINE + 2 * NOTE + 12 + 26 * 3 + 8)


def test_a_share_is_written_only_where_it_fits() -> None:
    # "10%" is 30 pixels wide and needs 8 more.
    for width, written in ((381, True), (380, False)):
        found = drawn(ClassBars(classed(), 0, 0, width))
        assert any(text[0] == "10%" for text in found.texts) == written


def test_many_layers_have_thin_bars_without_numbers_and_every_second_name() -> None:
    for layers, bar in ((13, 21), (12, 22), (30, 9), (99, 5)):
        part = ClassBars(classed(layers), 0, 0, 1000)
        found = drawn(part)
        assert found.filled[-1][0][0][3] == bar
        assert any(text[0].endswith("%") for text in found.texts) == (bar > 16)
        assert part.height == int(LINE + 2 * NOTE + 12 + (bar + 4) * (layers + 1) + 8)
        step = -(-NOTE // (bar + 4))
        names = [text[0] for text in found.texts if text[5] == {"align": "right"}]
        assert names == [*(str(n) for n in range(layers) if n % step == 0), "uniform"]


def test_the_legend_names_the_classes_that_occur_and_goes_on_below() -> None:
    side = NOTE * 0.62
    stream = classed(even=(0.5, 0.0, 0.25, 0.25))
    y = FIRST + 1.2 * NOTE
    found = drawn(ClassBars(stream, 100, 0, 500))
    squares = [item for item in found.filled if item[2] != "class shares"]
    assert [label for *_, label in squares] == [
        "legend special",
        "legend rank 1-10",
        "legend rarer",
    ]
    first = side + 8 + 10 * len("special tokens") + 22
    assert first + side + 8 + 10 * len("10 most frequent words") + 22 < 500
    second = first + side + 8 + 10 * len("10 most frequent words") + 22
    corners = [(100, y), (100 + first, y), (100, y + NOTE)]
    assert second + side + 8 + 10 * len("rarer words") + 22 > 500
    for (boxes, _, _), (x, middle) in zip(squares, corners, strict=True):
        np.testing.assert_allclose(boxes, [(x, middle - side / 2, side, side)])
    words = [text for text in found.texts if text[0] == "10 most frequent words"]
    assert words[0][1:3] == (round(100 + first + side + 8, 3), round(y, 3))


def test_a_class_that_just_fits_stays_in_its_line_of_the_legend() -> None:
    side = points(1.25 * 6.5) * 0.62
    words = ("special tokens", "10 most frequent words")
    first, second = (side + 8 + 10 * len(text) + 22 for text in words)
    stream = classed(even=(0.5, 0.0, 0.5, 0.0))
    for room, lines in ((first + second, 1), (first + second - 1, 2)):
        found = drawn(ClassBars(stream, 0, 0, room))
        squares = [boxes[0] for boxes, _, label in found.filled if label != "class shares"]
        assert len({top for _, top, _, _ in squares}) == lines


def test_the_first_class_of_a_legend_stays_where_nothing_fits() -> None:
    found = drawn(ClassBars(classed(), 100, 0, 10))
    assert found.filled[0][0][0][0] == 100
    assert found.filled[0][0][0][1] < FIRST + 1.2 * NOTE


def test_roles_are_counted_the_most_frequent_first() -> None:
    stream = measured([0.1] * 6)
    roles = ["", "self", "induction", "self", "", "duplicate"]
    rows = tuple(
        replace(row, roles=(Role(name, 0.9, 0.1),) if name else ())
        for row, name in zip(stream.rows, roles, strict=True)
    )
    part = RoleLegend(replace(stream, rows=rows), 100, 50)
    assert part.entries == [
        ("self", ROLE_COLORS["self"], 2),
        ("duplicate", ROLE_COLORS["duplicate"], 1),
        ("induction", ROLE_COLORS["induction"], 1),
        ("no clear role", NO_ROLE, 2),
    ]
    assert part.height == int(LINE + 4 * LINE + 12)
    found = drawn(part)
    y = 50 + FIRST
    assert found.texts[0][:3] == ("heads by role", 100, round(y, 3))
    for number, (boxes, color, label) in enumerate(found.filled, 1):
        middle = y + number * LINE + 4
        np.testing.assert_allclose(boxes, [(100, middle - 8, 26, 16)])
        name, expected, count = part.entries[number - 1]
        assert (color, label) == (expected, f"legend {name}")
        assert found.texts[number][:3] == (f"{name}  {count}", 138, round(middle, 3))
    assert [e[0] for e in RoleLegend(measured([0.1]), 0, 0).entries] == ["no clear role"]
    assert RoleLegend(replace(stream, rows=rows[1:2]), 0, 0).entries[-1][0] == "self"
