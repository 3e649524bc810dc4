"""Which form a matrix takes at which width, and what each form says."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from attnviz.core.attention_map import AttentionMap
from attnviz.renderers.text.table import NEGATIVE_SHADES, SHADES, matrix
from tests.samples import checked, odd_words, self_map


def shown(item: AttentionMap, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, emoji=False, markup=False)
    for part in matrix(item, width, colored=False):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def words(count: int) -> list[str]:
    return [f"w{place}" for place in range(count)]


def test_words_stand_over_two_digits_while_they_fit() -> None:
    item = self_map(["a", "bb"]).with_weights(np.array([[[[0.25, 0.75], [1, 0]]]], np.float32))
    assert shown(item, 80) == ["      a   bb", "a   .25  .75", "bb  1.0  .00"]


def test_long_words_are_cut_before_anything_else_gives() -> None:
    lines = shown(self_map(["extraordinarily", "long"] * 3), 50)
    assert "extr…" in lines[0]
    assert lines[1].startswith("extraordinari…")
    assert len(lines[1].split()) == 7


def test_then_position_numbers_stand_over_one_digit() -> None:
    item = self_map(words(20))
    lines = shown(item, 80)
    assert lines[0].split() == [str(place) for place in range(20)]
    for place, line in enumerate(lines[1:]):
        number, word, *cells = line.split()
        assert (number, word) == (str(place), f"w{place}")
        assert [float(cell) for cell in cells] == pytest.approx(
            item.weights[0, 0, place].tolist(), abs=0.0501
        )


def test_then_shades_under_a_ruler_with_a_legend() -> None:
    weights = np.zeros((1, 1, 30, 30), np.float32)
    weights[..., 0] = 0.3
    weights[..., 29] = 0.75
    item = self_map(words(30)).with_weights(weights, query_side="target", key_side="source")
    lines = shown(item, 80)
    assert lines[0].strip().split() == ["1", "2"]
    assert lines[1].strip() == "0123456789" * 3
    assert len(lines) == 33
    for line in lines[2:32]:
        assert line.endswith("→ w29 .75")
        assert line.split("→")[0].split(maxsplit=2)[2].strip() == f"▒{' ' * 28}█"
    assert lines[32].startswith("shades: ░ from .05  ▒ from .20  ▓ from .40  █ from .70")


def test_a_sink_beyond_the_scale_of_shades_is_said() -> None:
    weights = np.zeros((1, 1, 30, 30), np.float32)
    weights[..., 0] = 0.3
    weights[..., 29] = 0.7
    lines = shown(self_map(words(30)).with_weights(weights), 80)
    assert lines[2].split("→")[0].split(maxsplit=2)[2].strip() == f"█{' ' * 28}█"
    assert lines[32].startswith("shades: ░ from .01  ▒ from .06  ▓ from .12  █ from .21")
    assert lines[33].strip() == "special tokens and sinks beyond the scale are drawn at its end"


def test_shades_below_zero_look_different_and_are_explained() -> None:
    weights = np.full((1, 1, 30, 30), -0.8, np.float32)
    lines = shown(self_map(words(30), signed=True).with_weights(weights), 80)
    assert NEGATIVE_SHADES[4] * 30 in lines[2]
    assert not set(SHADES[1:4]) & set(lines[2])
    assert "the same below 0" in " ".join(lines[32:])


def test_at_last_only_the_strongest_keys_of_each_row() -> None:
    item = self_map(words(120))
    lines = shown(item, 80)
    for place in range(120):
        best = int(item.weights[0, 0, place].argmax())
        assert f"→ {best} w{best} " in lines[place]
    assert "120 columns do not fit 80" in " ".join(lines[120:])


@checked
@given(st.lists(odd_words, min_size=1, max_size=60), st.integers(20, 200), st.booleans())
@pytest.mark.slow
def test_every_form_keeps_to_the_width(found: list[str], width: int, signed: bool) -> None:
    for line in shown(self_map(found, signed=signed), width):
        assert cell_len(line) <= width


@checked
@given(st.integers(1, 60), st.integers(40, 200))
@pytest.mark.slow
def test_every_form_has_a_row_for_each_query(count: int, width: int) -> None:
    lines = shown(self_map(words(count)), width)
    for place in range(count):
        named = [line for line in lines if f"w{place}" in line.split()[:2]]
        assert len(named) >= 1
