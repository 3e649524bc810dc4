import inspect
import io
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

import attnviz
from attnviz.core.attention_map import Token
from attnviz.core.errors import UsageError
from attnviz.features.grid.picture import grid
from attnviz.renderers import PICTURE_SUFFIXES
from attnviz.renderers.figures.figure import figure_bytes, overlap_area
from attnviz.renderers.figures.heatmap import heatmap
from tests.invoke import OWN, fresh
from tests.samples import notes_of

from .pictures import map_of, shares, tokens

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}
DRAW = pytest.mark.parametrize("draw", [heatmap, grid])
SUFFIX = pytest.mark.parametrize("suffix", PICTURE_SUFFIXES)
CALLED = ("fit_width", "titled_figure", "draw_film", "draw_strips")


def drawn(draw, suffix, **told):
    return figure_bytes(draw(map_of(shares(4, 5)), title="multi-head · seed 0"), suffix, **told)


@DRAW
@SUFFIX
@pytest.mark.slow
@pytest.mark.core
def test_the_same_map_gives_the_same_bytes(draw, suffix):
    assert drawn(draw, suffix) == drawn(draw, suffix)


@pytest.mark.slow
@SUFFIX
def test_a_readers_settings_do_not_reach_the_bytes(suffix):
    settings = {
        "savefig.bbox": "tight", "savefig.dpi": 50, "svg.fonttype": "none", "text.usetex": True,
        "axes.grid": True, "font.size": 40, "axes.facecolor": "red", "figure.autolayout": True,
    }  # fmt: skip
    words = Token("$x_1$"), Token("$")
    item = map_of(shares(2, 2), words, words)
    with mpl.rc_context(settings):
        changed = figure_bytes(heatmap(item, title="$a$"), suffix)
        assert mpl.rcParams["font.size"] == 40
    assert changed == figure_bytes(heatmap(item, title="$a$"), suffix)


def test_every_figure_has_settings_of_its_own():
    found = 0
    root = Path(attnviz.__file__).parent
    for path in (*root.glob("renderers/figures/*.py"), *root.glob("features/**/*.py")):
        if "-> Figure:" not in path.read_text(encoding="utf-8"):
            continue
        module = import_module(".".join(("attnviz", *path.relative_to(root).with_suffix("").parts)))
        for name, function in inspect.getmembers(module, inspect.isfunction):
            answer = inspect.signature(function).return_annotation
            makes = getattr(answer, "__name__", answer) == "Figure"
            own = function.__module__ == module.__name__ and not name.startswith("_")
            # These are called by a function with settings of its own, or call one.
            if makes and own and name not in CALLED:
                assert hasattr(function, "__wrapped__"), f"{module.__name__}.{name}"
                found += 1
    assert found > 15


@pytest.mark.slow
def test_a_broken_matplotlib_leaves_no_folder(tmp_path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nnot a setting\nbackend: nope\n")
    (tmp_path / "made").mkdir()
    (tmp_path / "file").touch()
    settings = {
        "MPLBACKEND": "nope", "MATPLOTLIBRC": str(tmp_path), "TMPDIR": str(tmp_path / "made"),
        "MPLCONFIGDIR": str(tmp_path / "file" / "none"),
    }  # fmt: skip
    path = tmp_path / "a.png"
    done = fresh("self", "the $x_1 cat", *OWN, "--heatmap", path, "-q", "-f", "none", **settings)
    assert (done.status, done.err) == (0, "")
    assert path.stat().st_size
    assert not [*(tmp_path / "made").iterdir()]


@pytest.mark.slow
def test_files_keep_provenance_and_pixels():
    told = "own layer · seed 0\nmodèle ‹x› \x1b"
    png = Image.open(io.BytesIO(drawn(heatmap, ".png", provenance=told)))
    assert png.text["Description"] == "own layer · seed 0\nmodèle ‹x› ␛"
    assert "modèle".encode() in drawn(heatmap, ".svg", provenance=told)
    assert b"/Subject" in drawn(heatmap, ".pdf", provenance=told)
    figure = heatmap(map_of(shares(4, 5)), title="x")
    png = Image.open(io.BytesIO(figure_bytes(figure, ".png")))
    assert png.size == tuple(np.rint(figure.get_size_inches() * 200).astype(int))
    assert png.info["dpi"] == pytest.approx((200, 200), abs=0.1)


@SUFFIX
@DRAW
@pytest.mark.slow
def test_odd_text_is_drawn_in_every_format(draw, suffix):
    odd = "中国 كتاب 🚀 $x_1$ [bold] \x1b[31m \u202e \ud800 & <b>"
    odd_map = map_of(shares(2, 2), unit=odd, layers=(odd,), heads=("$1$",))
    figure = draw(odd_map, title=odd, subtitle=odd)
    assert figure_bytes(figure, suffix, provenance=odd).startswith(MAGIC[suffix])


@pytest.mark.slow
def test_a_long_title_is_broken_or_cut():
    figure = heatmap(map_of(shares(2, 2)), title="a long title " * 12, subtitle="more " * 60)
    right = figure.get_size_inches()[0] * 200
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= right
    figure = grid(map_of(shares(2, 2)), title="word " * 100_000, subtitle="x" * 100_000)
    assert figure.axes[0].get_title().endswith("…")
    assert max(figure.get_size_inches()) < 6


def test_characters_that_no_font_draws_are_noted():
    missing = map_of(shares(1, 2), keys=(tokens(1)[0], tokens(1)[0]), unit="\U000f1234")
    assert notes_of(heatmap(missing, title="x")) == (
        "1 character shown as ‹code point›: no installed font draws it",
    )


def test_threads_draw_as_one_does():
    with mpl.rc_context({"font.size": 3.0}):  # as the reader chose
        before = dict(mpl.rcParams)
        alone = [drawn(heatmap, suffix) for suffix in (".svg", ".pdf")]
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda suffix: drawn(heatmap, suffix), (".svg", ".pdf") * 6)
        assert {*found} == {*alone}
        assert dict(mpl.rcParams) == before


def test_a_date_that_is_none_is_one_line(monkeypatch):
    for date in ("x", "9" * 20, "0x1"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
        with pytest.raises(UsageError, match=f"SOURCE_DATE_EPOCH '{date}' is no time in seconds"):
            drawn(heatmap, ".pdf")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert drawn(heatmap, ".pdf").startswith(MAGIC[".pdf"])


def test_boxes_overlap_by_their_common_area():
    boxes = [(1, 1, 4, 3), (0, 0, 9, 9), (-3, 0, 1, 1), (2, 0, 3, 2), (5, 5, 6, 6)]
    assert [overlap_area((0, 0, 2, 2), box) for box in boxes] == [1, 4, 1, 0, 0]
    assert [overlap_area(box, (0, 0, 2, 2)) for box in boxes] == [1, 4, 1, 0, 0]
