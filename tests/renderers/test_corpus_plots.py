"""Where the parts of a corpus' picture lie, in pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.core.corpus_report import StreamReport
from attnviz.core.measures import Meaning, Role
from attnviz.renderers.colors import NO_ROLE, ROLE_COLORS
from attnviz.renderers.figures.corpus_overview import ClassBars, MeasurePlots
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
