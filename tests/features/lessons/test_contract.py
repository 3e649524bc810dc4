"""What every row of the table of lessons promises."""

import base64
import csv
import inspect
import json
import re
from functools import cache

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.cells import cell_len

from attnviz.features.lessons import LESSONS, drawing
from attnviz.features.lessons.drawing import draw_lesson, lesson_page
from attnviz.features.lessons.lesson import Heat, Lesson, byte_size
from attnviz.features.lessons.masks import masking_lesson
from attnviz.renderers import Display
from attnviz.storage.columns import is_header
from attnviz.storage.documents import dump_json
from tests.invoke import attnviz

SHORT = {"linear": {"length": 256}, "training": {"length": 2, "steps": 10}}
"""Of lessons that would take seconds."""


@cache
def calculated(name: str) -> Lesson:
    return LESSONS[name].load()(**SHORT.get(name, {}))


each_lesson = pytest.mark.parametrize("name", LESSONS)


@each_lesson
def test_a_lesson_has_title_sentences_and_a_table_that_fits(name):
    lesson = calculated(name)
    assert inspect.getdoc(LESSONS[name].load()).splitlines()[0] == LESSONS[name].summary
    assert lesson.title.startswith(f"{name} · ")
    assert len(lesson.explanation) == 3
    assert any(map(str.isdigit, lesson.reference))  # the year
    for panel in (one for one in lesson.panels if isinstance(one, Heat)):
        assert panel.values.shape == (len(panel.rows), len(panel.columns))
    for width in (50, 80, 160):
        lines = calculated(name).table(Display(width)).splitlines()
        assert max(map(cell_len, lines)) <= width
        rule = next(number for number, line in enumerate(lines) if line.startswith("──"))
        numbers = [line for line in lines[rule + 1 : rule + 8] if any(map(str.isdigit, line))]
        assert numbers
        assert all("…" not in cell for line in numbers for cell in line.split()[-1:])


@each_lesson
def test_json_and_csv_hold_the_rows_by_column(name):
    lesson = calculated(name)
    records = json.loads(dump_json(lesson.data()))["rows"]
    for record, row in zip(records, lesson.rows, strict=True):
        assert tuple(record.items()) == tuple(zip(lesson.columns, row, strict=True))
    arguments = [f"--{option}={value}" for option, value in SHORT.get(name, {}).items()]
    header, *rows = csv.reader(attnviz("lesson", name, *arguments, "-f", "csv").text.splitlines())
    assert tuple(header) == lesson.columns
    assert is_header(header)  # so that a second run may replace the file
    assert len(rows) == len(lesson.rows)
    if name != "linear":  # that one measures time
        assert [[str(cell) for cell in row] for row in lesson.rows] == rows


def test_pictures_show_the_numbers():
    lesson = calculated("scaling")
    scaled, unscaled = draw_lesson(lesson).axes[0].lines[:2]
    assert tuple(scaled.get_ydata()) == lesson.column("scaled_entropy")
    assert tuple(unscaled.get_ydata()) == lesson.column("unscaled_entropy")
    (many, *_) = draw_lesson(calculated("rotary")).axes[0].lines
    assert [(len(one.get_xdata()) <= 24, one.get_marker()) for one in (scaled, many)] == [
        (True, "o"),
        (False, "None"),
    ]
    axes = draw_lesson(LESSONS["masking"].load()("a b c")).axes[0]
    shown = axes.images[0].get_array()
    assert shown.shape == (3, 7)
    assert len(axes.texts) == 9 + 6
    shown = draw_lesson(masking_lesson("a \U000f0123 b"))
    notes = [text.get_text() for text in shown.texts if "no installed font" in text.get_text()]
    assert notes == ["1 character shown as ‹code point›: no installed font draws it"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (2048, "2 KiB"), (3 * 2**20, "3 MiB")]
)
def test_bytes_are_told_in_three_digits(count, text):
    assert byte_size(count) == text


@each_lesson
def test_the_page_holds_every_number_and_no_script(name, monkeypatch):
    lesson, figures = calculated(name), list[Figure]()

    def draw(shown: Lesson) -> Figure:
        figures.append(draw_lesson(shown))
        return figures[0]

    monkeypatch.setattr(drawing, "draw_lesson", draw)
    monkeypatch.setattr(
        drawing.sheet, "figure_bytes", lambda figure, suffix: b"<svg>" + suffix.encode()
    )
    page = lesson_page(lesson, "attnviz <script>")
    assert any(name in text.get_text() for text in figures[0].findobj(Text))
    assert any(axes.lines or axes.images for axes in figures[0].axes)
    of_shares = [one for one in figures[0].axes if one.get_ylabel().startswith("share of")]
    assert all(axes.get_ylim()[1] < 1.1 for axes in of_shares)  # no share is above 1
    edges = [axes.get_position().extents for axes in figures[0].axes]
    assert all(
        0 < low < high < 1 for x, y, *ends in edges for low, high in ((x, ends[0]), (y, ends[1]))
    )
    assert page.count("<tr>") == len(lesson.rows) + 1
    assert page.count("<td") == sum(map(len, lesson.rows))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page
    picture = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert picture is not None
    assert base64.b64decode(picture[1]) == b"<svg>.svg"


def test_html_is_written_and_holds_no_markup_of_words(tmp_path):
    page = lesson_page(LESSONS["masking"].load()("a <b>&amp; c"))
    assert "<b>" not in page
    assert "&lt;" in page
    ran = attnviz("lesson", "scaling", "--html", str(tmp_path / "a.html"), "-q")
    assert "512 random queries" in ran.text
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "<h1>scaling" in page
    assert b"</svg>" in base64.b64decode(re.findall('base64,([^"]+)"', page)[0])
