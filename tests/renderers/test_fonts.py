import unicodedata
import warnings
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attnviz.renderers.figures import fonts
from attnviz.renderers.figures.fonts import substitute, typeface

NO_FONT_DRAWS = "\U000f1234"
LEFT_TO_RIGHT = "\u200e"


def test_what_no_font_draws_is_its_code_point():
    assert typeface(["Éléphant", "λόγος", "كتاب", "שלום"]).families == ("DejaVu Sans",)
    face = typeface(["rocket", NO_FONT_DRAWS])
    assert face.missing == {NO_FONT_DRAWS}
    assert face.drawable(f"a{NO_FONT_DRAWS}b") == "a‹F1234›b"
    assert (face.drawable(NO_FONT_DRAWS * 2), substitute("␛")) == ("‹F1234 F1234›", "‹1B›")
    assert substitute("中") == "‹4E2D›"


def test_without_a_chinese_font_code_points_are_shown(monkeypatch):
    monkeypatch.setattr(fonts, "_candidates", lambda missing: iter(()))
    face = typeface(["中国"])
    assert face.families == ("DejaVu Sans",)
    assert face.drawable("中国") == "‹4E2D 56FD›"
    monkeypatch.setattr(fonts, "_candidates", lambda missing: iter(()))
    text = "👩\u200d🔬"
    assert typeface([text]).drawable(text) == "‹1F469 1F52C›"


def test_a_further_font_draws_what_the_first_lacks(monkeypatch):
    drawn = {"DejaVu Sans": "ab", "Second": "c", "Third": "abcd", "Fourth": "e"}
    monkeypatch.setattr(fonts, "_draws", lambda family, character: character in drawn[family])
    monkeypatch.setattr(fonts, "_candidates", lambda missing: iter(["Second", "Third", "Fourth"]))
    assert typeface(["abc"]).families == ("DejaVu Sans", "Second")
    assert typeface(["abd"]).families == ("DejaVu Sans", "Third")
    assert typeface(["abf"]).missing == {"f"}


@pytest.mark.parametrize(("letter", "first"), [("中", "SC"), ("か", "JP"), ("한", "KR")])
def test_a_language_has_its_own_chinese_characters(monkeypatch, letter, first):
    names = [f"Noto Sans CJK {form}" for form in ("JP", "KR", "SC")]
    found = [SimpleNamespace(name=name, style="normal") for name in ("A", *names, "cmr10")]
    monkeypatch.setattr(fonts, "fontManager", SimpleNamespace(ttflist=found))
    candidates = [*fonts._candidates({letter})]
    assert (candidates[0], set(candidates)) == (f"Noto Sans CJK {first}", {"A", *names})


def test_arabic_keeps_its_side_and_order():
    shown = typeface(["كتاب · 4 heads"]).drawable("كتاب · 4 heads")
    assert shown == f"{LEFT_TO_RIGHT}كتاب{LEFT_TO_RIGHT} · 4 heads"
    shown = typeface(["في البيت"]).drawable("في البيت")
    assert shown.strip(LEFT_TO_RIGHT) == "في البيت"


def test_text_is_wrapped_at_spaces():
    face = typeface(["x"])
    assert face.wrap("a short line", 8, 2000) == "a short line"
    lines = face.wrap("mean over the heads of layer 3 " + "x" * 60, 8, 300).split("\n")
    assert all(face.width(line, 8) <= 300 for line in lines)
    assert (lines[0].split()[0], "".join(lines).count("x")) == ("mean", 60)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(categories=None), min_size=1, max_size=6))
@example("中国🚀👩\u200d🔬")
@example("\x1b\u202e\ud800")
@example("हिन्दी ไทย")
@example("$x_1$ \\frac{1}{2}")
@pytest.mark.slow
def test_no_text_makes_matplotlib_miss_a_glyph(text):
    face = typeface([text])
    figure = Figure(figsize=(1, 1))
    for bold in (False, True):
        figure.text(
            0, 0, face.drawable(text), fontproperties=face.font(8, bold=bold), parse_math=False
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FigureCanvasAgg(figure).draw()


@pytest.mark.parametrize("text", ["word", "中国", "كتاب", "[bold]"])
def test_what_is_drawable_is_also_printable(text):
    shown = typeface([text]).drawable(text)
    assert all(unicodedata.category(item) != "Cc" for item in shown)
