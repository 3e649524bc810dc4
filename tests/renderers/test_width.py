"""Pictures laid out for a paper's column, and the fonts in them."""

import re
import zlib

import pytest
from matplotlib.text import Text
from PIL import Image

from attnviz.core.attention_map import Token
from attnviz.core.errors import OutputError, UsageError
from attnviz.features.grid.picture import grid, panels
from attnviz.features.lines.picture import lines
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.figures.fonts import can_embed, typeface
from attnviz.renderers.figures.heatmap import heatmap
from tests.invoke import attnviz as shell

from .pictures import fitted, map_of, shares

PIXELS = {"single": 669, "double": 1401}  # 85 and 178 mm at 200 to the inch, rounded down
TITLE = "a model with a rather long name · layer 3 head 11 (previous token .83)"


def words(count, length=6):
    return tuple(Token(f"{place}" + "m" * (length - 1)) for place in range(count))


def inside(figure):
    """Every text lies on the page, and none is smaller than 6 points."""
    width, height = figure.get_size_inches() * 200
    figure.canvas.draw()
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            assert min(box.x0, box.y0) > -1, text
            assert box.x1 < width + 1, text
            assert box.y1 < height + 1, text
            assert text.get_fontsize() >= 6, text
    return width


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "heads", "tokens", "width"),
    [
        (heatmap, (1, 1), 1, "single"),
        (heatmap, (1, 1), 9, "single"),
        (heatmap, (1, 1), 9, "double"),
        (heatmap, (1, 1), 700, "single"),
        (grid, (4, 6), 9, "double"),
        (grid, (12, 16), 70, "single"),
        (lines, (1, 1), 9, "double"),
        (lines, (2, 3), 120, "single"),
    ],
)
def test_a_picture_is_as_wide_as_the_column(draw, heads, tokens, width):
    side = words(tokens)
    shown = map_of(shares(*heads, tokens, tokens), side, side)
    figure = fitted(draw, shown, width, title=TITLE, subtitle="rows attend to columns")
    assert inside(figure) == pytest.approx(PIXELS[width])
    for axes in figure.axes:
        box = axes.get_position()
        assert 0 <= box.x0 < box.x1 <= 1
    if draw is heatmap and tokens > 9:  # what room there is is used
        assert figure.axes[0].get_position().width > 1 / 3


@pytest.mark.slow
def test_panels_fit_the_column_or_say_so():
    maps = [map_of(shares(1, 1, 9, 9, seed=seed), words(9), words(9)) for seed in range(4)]
    for width, pixels in PIXELS.items():
        assert inside(fitted(panels, maps * 2, width, title=TITLE)) == pytest.approx(pixels)
    side = tuple(Token("W" * 12, label="M" * 12) for _ in range(3))
    with pytest.raises(OutputError, match=r"no room in 85 mm .*: choose --style width=double$"):
        fitted(panels, [map_of(shares(1, 1, 3, 3), side, side)] * 4, "single", title=TITLE)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [heatmap, lines])
def test_labels_that_leave_no_room_are_an_error(draw):
    side = tuple(Token("W" * 12, label="M" * 12) for _ in range(3))
    shown = map_of(shares(1, 1, 3, 3), side, side)
    with pytest.raises(OutputError, match="choose --style width=double"):
        fitted(draw, shown, "single", title="x")
    assert inside(fitted(draw, shown, "double", title="x")) == pytest.approx(PIXELS["double"])


def width_of(path):
    with Image.open(path) as picture:
        return picture.width


@pytest.mark.slow
def test_width_is_that_of_every_picture_written(tmp_path):
    import attnviz

    places = {name: tmp_path / f"{name}.png" for name in ("heatmap", "grid", "lines")}
    names = {"lines": "picture"}
    options = [f"--{names.get(name, name)}={path}" for name, path in places.items()]
    assert (
        shell("self", "the cat sat", "-f", "none", "--style", "width=single", *options).status == 0
    )
    result = attnviz.attend("the cat sat", model="pocket")
    for name, path in places.items():
        assert width_of(path) == PIXELS["single"]
        getattr(result, name)(path, width="double")
        assert width_of(path) == PIXELS["double"]
    with pytest.raises(UsageError, match="unknown width 'singel': choose from single, double"):
        result.heatmap(width="singel")


def test_width_without_a_picture_is_refused():
    answer = shell("self", "the cat sat", "--style", "width=single")
    assert answer.status == 2
    assert answer.mistake.endswith("--style width is for pictures: name a file for one")


def objects(pdf):
    """The bytes of a .pdf, its compressed streams unpacked."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    plain = [zlib.decompress(stream) for stream in streams if stream[:1] == b"\x78"]
    return b"\n".join([pdf, *plain])


def test_a_pdf_embeds_truetype_and_nothing_else():
    figure = fitted(heatmap, map_of(shares(4, 5), words(4), words(5)), "single", title="été ▁ →")
    found = objects(figure_bytes(figure, ".pdf"))
    assert b"/FontFile2" in found
    assert b"/Type3" not in found
    (box,) = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) ", found)
    assert float(box) == pytest.approx(PIXELS["single"] / 200 * 72, abs=0.01)


@pytest.mark.slow
def test_a_pdf_draws_what_is_no_truetype():
    families = typeface(["中国"]).families
    if can_embed(families):
        pytest.skip("no font here draws Chinese, or it is TrueType")
    found = objects(figure_bytes(heatmap(map_of(shares(2, 2)), title="中国"), ".pdf"))
    assert b"/Type3" in found
    assert b"/FontFile2" not in found
