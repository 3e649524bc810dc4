"""Which form a matrix takes at which width, and what each form says."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from attnviz.core.attention_map import AttentionMap, Token, View
from attnviz.renderers import Display, Views
from attnviz.renderers.printable import two_digits
from attnviz.renderers.text.table import TableRenderer, matrix
from tests.samples import attention_of, checked, odd_words, self_map


def shown(item: AttentionMap, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, emoji=False, markup=False)
    for part in matrix(item, width, colored=False):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def words(count: int) -> list[str]:
    return [f"w{place}" for place in range(count)]


@checked
@given(st.lists(odd_words, min_size=1, max_size=60), st.integers(20, 200), st.booleans())
@pytest.mark.slow
def test_every_form_keeps_to_the_width(found, width, signed):
    for line in shown(self_map(found, signed=signed), width):
        assert cell_len(line) <= width


@checked
@given(st.integers(1, 60), st.integers(40, 200))
@pytest.mark.slow
def test_every_form_has_a_row_for_each_query(count, width):
    lines = shown(self_map(words(count)), width)
    for place in range(count):
        named = [line for line in lines if f"w{place}" in line.split()[:2]]
        assert len(named) >= 1


def test_columns_patches_and_parts_have_their_names():
    item = self_map(words(12))
    assert shown(item, 64)[0].split() == words(12)
    narrow = shown(item, 63)
    assert "--max-rows 0 prints all 12" in narrow[-1]
    for line, row in zip(narrow, item.weights[0, 0], strict=False):
        name, _, *links = line.replace(" ·", "").split()
        keys = np.argsort(-row, kind="stable")[:3]
        assert links == [part for key in keys for part in (f"w{key}", two_digits(float(row[key])))]
        assert name == f"w{np.where(item.weights[0, 0] == row)[0][0]}"
    item = replace(self_map([str(place) for place in range(12)]), key_side="columns")
    for width, start in ((63, "0"), (39, "0"), (38, "1")):
        assert shown(item, width)[0].split()[0] == start, width
    assert "shades:" in " ".join(shown(item, 19))

    keys = tuple(Token(f"key{number}") for number in range(90))
    weights = np.full((1, 1, 2, 90), 0.0004, np.float32)
    weights[..., 0, 5], weights[..., 1, 7] = 0.012, 0.0061
    item = AttentionMap("causal", keys[3:5], keys, weights, starts=(2700, 0))
    seen = View(item, "", "")
    lines = TableRenderer(Display(width=40)).add(attention_of(item), Views(lambda: [seen]))
    assert "2700 key3 → key5 .012" in lines
    assert "2701 key4 → key7 .006" in lines
