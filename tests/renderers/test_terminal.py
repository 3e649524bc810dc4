from itertools import pairwise

import numpy as np
import pytest
from rich.cells import cell_len
from rich.text import Text

from attnviz.analyses.view import views
from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.renderers import Display
from attnviz.renderers.colors import color_of
from attnviz.renderers.text.heatmap import (
    Layout,
    TerminalGrid,
    TerminalHeatmap,
    key_ruler,
    layout_of,
    paint,
)
from tests.renderers.pictures import map_of, shares, tokens

COLORS = [None, "standard", "256", "truecolor"]


def shown(renderer, item, **display):
    attention = Attention((item,), Provenance("file", "m"))
    return renderer(Display(**display)).add(attention, lambda: views(attention))


def rgb(value):
    return "#{:02x}{:02x}{:02x}".format(*color_of(value))


def test_a_line_holds_two_rows_the_upper_as_ink_the_lower_as_ground():
    (line,) = paint(np.array([[0.0], [1.0]], dtype=np.float32), (0.0, 1.0), "truecolor")
    (span,) = line.spans
    assert line.plain == "▀"
    assert span.style.color.name == rgb(0.0)
    assert span.style.bgcolor.name == rgb(1.0)


def test_without_colour_a_line_holds_one_row_in_shades():
    image = np.array([[0.0, 0.1, 0.3, 0.5, 1.0], [np.inf] * 5], dtype=np.float32)
    assert [line.plain for line in paint(image, (0.0, 1.0), None)] == [" ░▒▓█", "│││││"]


def test_negative_values_have_other_shades_and_colours():
    image = np.array([[-1.0, 1.0]], dtype=np.float32)
    for colors in COLORS:
        (line,) = paint(image, (-1.0, 1.0), colors)
        cells = [(text.plain, str(text.spans)) for text in line.divide([1])]
        assert cells[0] != cells[1]


@pytest.mark.parametrize("colors", ["256", "standard"])
def test_on_fewer_colours_a_larger_weight_is_never_lighter(colors):
    values = np.linspace(0, 1, 50, dtype=np.float32)[None]
    (line,) = paint(values, (0.0, 1.0), colors)
    inks = [span.style.color.get_truecolor() for span in line.spans]
    lightness = [0.2 * ink.red + 0.7 * ink.green + 0.1 * ink.blue for ink in inks]
    assert all(after <= before + 12 for before, after in pairwise(lightness))
    assert len(set(inks)) >= 4


@pytest.mark.parametrize("renderer", [TerminalHeatmap, TerminalGrid])
@pytest.mark.parametrize("colors", COLORS)
@pytest.mark.parametrize("width", [20, 50, 80, 132])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 11, 11), (1, 12, 90, 7), (1, 2, 3, 400)])
@pytest.mark.slow
def test_no_line_is_wider_than_the_terminal(renderer, colors, width, shape):
    text = shown(renderer, map_of(shares(*shape)), width=width, colors=colors)
    assert max(cell_len(Text.from_ansi(line).plain) for line in text.splitlines()) <= width


def test_cells_are_square_and_as_large_as_fit():
    item = map_of(shares(1, 1, 11, 11))
    assert layout_of(item, 66, colored=True) == Layout(1, 1, 4, 4)
    assert layout_of(item, 25, colored=True) == Layout(1, 1, 2, 2)
    assert layout_of(item, 8, colored=True) == Layout(2, 2, 1, 1)
    assert layout_of(item, 66, colored=False) == Layout(1, 1, 2, 1)


def test_the_strongest_weight_of_a_block_is_what_it_shows_and_that_is_said():
    weights = np.zeros((1, 1, 200, 200), dtype=np.float32)
    weights[0, 0, 3, 150] = 1
    text = shown(TerminalHeatmap, map_of(weights), width=80)
    assert text.count("█") == 2
    assert "strongest of 3 × 3 weights" in text


def test_positions_stand_above_their_columns():
    line = key_ruler(30, Layout(1, 1, 2, 2))
    for position in (0, 2, 28):
        assert line[2 * position :].startswith(str(position))


def test_rows_carry_position_and_token():
    text = shown(TerminalHeatmap, map_of(shares(1, 1, 3, 3)), width=80)
    assert [line.split()[:2] for line in text.splitlines()[4:7]] == [
        ["0", "word0"],
        ["1", "word1"],
        ["2", "word2"],
    ]


def test_keys_of_another_text_are_listed():
    keys = tuple(Token(word) for word in ("rouge", "voiture"))
    text = shown(TerminalHeatmap, map_of(shares(1, 1, 3, 2), tokens(3), keys), width=80)
    assert "columns: 0 rouge  1 voiture" in text


def test_every_head_has_a_thumbnail_under_its_name():
    weights = np.zeros((2, 12, 8, 8), dtype=np.float32)
    weights[..., 0, 0] = 1
    text = shown(TerminalGrid, map_of(weights), width=80)
    assert text.count("█") == 24 + 1
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("head")]
    assert [head for line in heads for head in line] == [str(head) for head in range(12)]
