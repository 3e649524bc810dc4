"""The options that all pictures share: what each does, where, and what is refused."""

import io
from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

import attnviz
from attnviz.core.attention_map import Token
from attnviz.core.errors import OutputError, UsageError
from attnviz.core.options.look import Look
from attnviz.features.grid.picture import grid
from attnviz.features.lines.picture import lines
from attnviz.renderers.figures.figure import figure_bytes, fit_width
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.look import color_table, doubt_of, drawing, lightness, relative_luminance
from tests.invoke import attnviz as shell
from tests.samples import notes_of

from .pictures import fitted, map_of, picture_and_bar, shares

LABELS = ("the", "professor", "مرحبا", "你好", "😀", "$x_1$", "a" * 40, "it")


def row(count):
    return tuple(Token(LABELS[place % len(LABELS)]) for place in range(count))


def shown(draw=heatmap, count=6, **look):
    """A picture of two heads, or of one as a heat map, with this look."""
    item = map_of(shares(1, 1 + (draw is not heatmap), count, count), row(count), row(count))
    with drawing(Look(**look), ("a note",), draw.__name__):
        return fit_width(draw, item, title="the model", subtitle="how it is read")


def numbers(figure):
    return [text for text in figure.axes[0].texts if text.get_gid() is None]


def contrast(text, ground):
    light, dark = sorted(
        (float(relative_luminance(np.array(to_rgb(c)) * 255)) for c in (text, ground)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
@pytest.mark.parametrize(
    ("count", "width"), [(8, "single"), (11, "single"), (30, "single"), (64, "double")]
)
def test_a_column_holds_labels_and_numbers(count, width, suffix):
    weights = shares(1, 1, count, count, sharpness=1)
    figure = fitted(heatmap, map_of(weights, row(count), row(count)), width, title="t")
    figure_bytes(figure, suffix)
    picture, bar = picture_and_bar(figure)
    for labels in (picture.get_yticklabels(), picture.get_xticklabels(), bar.get_yticklabels()):
        # The box of a line has room above letters, and a slanted one is wider than its ink.
        boxes = [one.get_window_extent().padded(-1) for one in labels if one.get_rotation() != 45]
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))
    page = figure.bbox.extents
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent().extents
            assert (box[:2] > page[:2] - 1).all(), text
            assert (box[2:] < page[2:] + 1).all(), text
            assert text.get_fontsize() >= 6, text
    image = picture.images[0]
    for text in numbers(figure):
        column, place = text.get_position()
        ground = image.cmap(image.norm(weights[0, 0, place, column]))[:3]
        assert contrast(text.get_color(), ground) >= 4.5
    boxes = [text.get_window_extent() for text in numbers(figure)]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_matplotlib_finds_titles_axes_and_bars():
    for draw, names in (
        (heatmap, ("query (attends)", "key (attended)")),
        (grid, ("", "")),  # names of heads stand above their tiles
    ):
        axes, bar = shown(draw).axes
        assert axes.get_title() == "the model"
        assert (axes.get_ylabel(), axes.get_xlabel()) == names
        assert axes.images[0].colorbar.ax is bar
        assert bar.get_ylabel().startswith("share of a row's attention")
        axes.images[0].set_cmap("magma")
        assert axes.images[0].colorbar.cmap.name == "magma"
    assert shown(lines).axes[0].get_title() == "the model"


@pytest.mark.parametrize("draw", [heatmap, grid, lines])
def test_the_look_of_every_picture(draw):
    assert shown(draw, title="Fig. 1 中").axes[0].get_title() == "Fig. 1 中"
    plain = shown(draw, no_title=True)
    assert plain.axes[0].get_title() == ""
    assert "how it is read" not in {text.get_text() for text in plain.texts}
    assert "a note" in notes_of(plain)
    sharp = Image.open(io.BytesIO(figure_bytes(shown(draw, dpi=400), ".png")))
    assert sharp.size == tuple(np.rint(shown(draw).get_size_inches() * 400).astype(int))
    sizes = {text.get_fontsize() for text in shown(draw, font_size=15).texts}
    assert min(sizes) == 2 * min(text.get_fontsize() for text in shown(draw).texts)


def test_colours_scales_and_numbers_as_asked_for():
    figure = shown(cmap="viridis", scale="0-0.5", values="no")
    image = figure.axes[0].images[0]
    assert (image.get_clim(), numbers(figure)) == ((0, 0.5), [])
    assert np.array_equal(image.cmap(image.norm(0.5))[:3], color_table("viridis")[-1] / 255)
    assert [text.get_text() for text in figure.axes[1].get_yticklabels()][-1] == "> 0.5"
    # Equal data, equal colour: also in another picture.
    other = shown(grid, cmap="viridis", scale="0-0.5").axes[0].images[0]
    assert np.array_equal(image.cmap(image.norm(0.3)), other.cmap(other.norm(0.3)))
    assert len(numbers(shown(count=24, values="yes"))) > 24
    with pytest.raises(OutputError, match=r"--style values=yes: the numbers do not fit .*leave"):
        shown(count=64, values="yes", width="double")

    weights = shares(1, 2, 4, 4) * np.array([1, 0.1], np.float32)[:, None, None]
    for scale, tops in ((None, weights.max() * np.array([1, 0.1])), ("own", [1, 1])):
        with drawing(Look(scale=scale)):
            axes = grid(map_of(weights), title="t").axes[0]
        pixels = np.asarray(axes.images[0].get_array())
        halves = np.split(pixels[:, : pixels.shape[1] // 2 * 2], 2, axis=1)
        largest = [half.max() / axes.images[0].get_clim()[1] for half in halves]
        assert largest == pytest.approx(tops, rel=0.2)
        written = [text.get_text() for text in axes.texts if text.get_gid() == "largest"]
        assert len(written) == (2 if scale else 0)

    weights = np.array([[0.98, 0.004, 0.016], [0.5, 0.25, 0.25], [0, 0.01, 0.99]], np.float32)
    figure = fitted(heatmap, map_of(weights), "double", title="t")
    texts = {text.get_position(): text.get_text() for text in numbers(figure)}
    assert texts[0, 0] == ".98"
    assert (1, 0) not in texts  # rounded it would read as 0
    assert (0, 2) not in texts  # nor is an exact 0 written, such as that of a hidden cell
    assert notes_of(figure) == ("cells without a number: below .005",)
    assert numbers(fitted(heatmap, map_of(shares(30, 30)), "single", title="t")) == []


@pytest.mark.parametrize(
    ("name", "signed", "doubt"),
    [
        ("viridis", False, ""),
        ("gray_r", False, ""),
        ("RdBu", True, ""),
        ("jet", False, "equal steps in value are unequal steps in lightness"),
        ("hot", False, "equal steps in value are unequal steps in lightness"),
        ("tab10", False, "equal steps in value are unequal steps in lightness"),
        ("seismic", True, "equal steps in value are unequal steps in lightness"),
        ("RdBu", False, "shares need one direction"),
        ("viridis", True, "signed values need two colours"),
    ],
)
def test_colours_that_mislead_are_noted(name, signed, doubt):
    found = doubt_of(color_table(name), signed=signed)
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)


PICTURE = ("self", "the cat sat", "-f", "none", "--heatmap", "{}/a.png")


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (("--style", "cmap=virids"), "no colour map of matplotlib. Did you mean 'viridis'?"),
        (("--style", "scale=0.5-0.1"), "is no scale: write own, shared, or its ends as 0-0.1"),
        (("--style", "sacle=own"), "Did you mean 'scale'?"),
    ],
)  # fmt: skip
def test_a_look_that_cannot_be_is_refused_at_once(options, mistake, tmp_path):
    answer = shell(*(word.format(tmp_path) for word in PICTURE), *options)
    assert (answer.status, [*tmp_path.iterdir()]) == (2, [])
    assert answer.mistake.endswith(mistake)


def test_an_option_without_use_is_noted(tmp_path):
    files = ("--heatmap", f"{tmp_path}/a.png", "--picture", f"{tmp_path}/b.png")
    answer = shell("self", "the cat sat", "-f", "none", *files, "--style", "values=no,cmap=jet")
    assert answer.err.splitlines()[:2] == [
        "note: --style cmap=jet: equal steps in value are unequal steps in lightness (L*); even "
        "are viridis, cividis and gray_r",
        "note: --style values changes nothing in the lines",
    ]


def test_python_takes_the_same_options():
    found = attnviz.attend("the cat sat", model="pocket")
    with pytest.warns(UserWarning, match="unequal steps"):
        figure = found.picture("heatmap", cmap="jet", title="mine")
    assert figure.axes[0].get_title() == "mine"
    assert found.heatmap(no_title=True).axes[0].get_title() == ""
    for wrong, words in ({"dpi": 10}, "50 to 1200"), ({"tilte": "x"}, "Did you mean 'title'"):
        with pytest.raises(UsageError, match=words):
            found.picture("grid", **wrong)
    with pytest.raises(UsageError, match=r"call \.picture\(cmap=…\)"):
        attnviz.attend("the cat sat", cmap="jet")


@pytest.mark.parametrize("picture", ["heatmap", "grid", "lines"])
def test_what_changes_a_picture_stands_in_it(picture):
    found = attnviz.attend("xylophon zzz qqq", model="pocket")
    assert found.notes
    assert set(found.notes) <= set(notes_of(found.picture(picture)))


def test_lightness_is_that_of_cielab():
    greys = np.repeat(np.array([[0], [5], [119], [255]], np.uint8), 3, axis=1)
    assert lightness(greys) == pytest.approx([0, 1.371, 50.03, 100], abs=0.01)
