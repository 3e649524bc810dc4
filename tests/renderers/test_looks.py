"""What every picture and table looks like: `python -m tests.renderers.test_looks` writes it anew.

A picture is kept as a line for each thing in it, with its place in pixels, so that a change can be
read. Letters have a fixed width, so that no version of a font moves anything.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnviz.renderers.figures.fonts import Typeface
from tests.renderers.looks import FIGURES, describe, texts

FOLDER = Path(__file__).parent / "expected"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


@contextmanager
def fixed_letters() -> Iterator[None]:
    def width(self: Typeface, text: str, size: float, *, bold: bool = False) -> float:
        return len(text) * size * (1.7 if bold else 1.6)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Typeface, "width", width)
        yield


def picture(name: str) -> str:
    with fixed_letters():
        return "\n".join(describe(FIGURES[name]())) + "\n"


def tables() -> str:
    found = (f"== {name}\n{text}" for name, text in texts())
    return "\n".join(found).replace("\x1b", "␛")


def differences(found: str, expected: str, close: float) -> list[tuple[str, str]]:
    """Lines that differ in words, or by more than that in a number."""

    def alike(one: str, other: str) -> bool:
        if one == other:
            return True
        if NUMBER.split(one) != NUMBER.split(other):
            return False
        pairs = zip(NUMBER.finditer(one), NUMBER.finditer(other), strict=True)
        return all(near(float(a[0]), float(b[0]), one[a.start() - 1] == ";") for a, b in pairs)

    def near(one: float, other: float, is_color: bool) -> bool:
        # An exponential differs in its last digit between processors, and a colour then by a step.
        return abs(one - other) <= max(close, 1 if is_color else 1e-5 * abs(other))

    one, other = found.split("\n"), expected.split("\n")
    assert len(one) == len(other), set(one) ^ set(other)
    return [
        pair for pair in zip(one, other, strict=True) if pair[0] != pair[1] and not alike(*pair)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_looks_as_expected(name):
    expected = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert differences(picture(name), expected, 0.15) == []


@pytest.mark.slow
@pytest.mark.core
def test_tables_and_data_read_as_expected():
    expected = (FOLDER / "tables.txt").read_text(encoding="utf-8")
    assert differences(tables(), expected, 0) == []


if __name__ == "__main__":
    for name in FIGURES:
        (FOLDER / f"{name}.txt").write_text(picture(name), encoding="utf-8")
    (FOLDER / "tables.txt").write_text(tables(), encoding="utf-8")
