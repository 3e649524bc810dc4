from itertools import pairwise

import numpy as np
import pytest
from rich.cells import cell_len
from rich.text import Text

from attnviz.analyses.view import views
from attnviz.core.attention_map import Attention, Provenance
from attnviz.features.terminal.heatmap import (
    Layout,
    TerminalGrid,
    TerminalHeatmap,
    layout_of,
    paint,
)
from attnviz.renderers import Display
from tests.renderers.pictures import map_of, shares

COLORS = [None, "standard", "256", "truecolor"]


def shown(renderer, item, **display):
    attention = Attention((item,), Provenance("file", "m"))
    return renderer(Display(**display)).add(attention, lambda: views(attention))


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
