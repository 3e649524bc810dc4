"""The table: readable at any width, true to the map, plain unless colour is asked for."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.analyses.select import sharpest
from attnviz.core.attention_map import Attention
from attnviz.renderers import Display
from attnviz.renderers.printable import two_digits
from attnviz.renderers.text.console import wrap_text
from attnviz.renderers.text.table import FIRST_ROWS, TableRenderer, strongest_line
from attnviz.runs.outputs import views_of
from tests.samples import RAW, attention_of, checked, odd_words, self_map

WORDS = ["The", "professor", "who", "supervised", "a", "student", "published", "one", "paper"]
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def shown(attention: Attention, width: int = 80, colors: str | None = None, **display: bool) -> str:
    renderer = TableRenderer(Display(width, colors, **{"short": True, **display}))
    text = renderer.add(attention, views_of(attention)) + renderer.finish()
    assert isinstance(text, str)
    return text


def widest(text: str) -> int:
    return max(map(cell_len, STYLE.sub("", text).splitlines()))


def test_a_number_is_never_cut():
    item = self_map(["responsible", "recognition"] * 8, 2, 4)
    text = shown(attention_of(item), width=20)
    arrows = [line for line in text.splitlines() if "→" in line]
    assert len(arrows) > 8
    assert len(re.findall(r"(?m)(^| )(\.\d\d|1\.0)$", text)) >= len(arrows)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 11, 15, 20, 26, 32, 40, 50, 60])
def test_three_to_sixty_tokens_read_at_eighty_columns(count):
    words = [WORDS[place % len(WORDS)] for place in range(count)]
    text = shown(attention_of(self_map(words, 2, 4)))
    assert widest(text) <= 80
    assert "rows attend to columns" in text
    if count <= FIRST_ROWS:
        for place, word in enumerate(words):
            assert re.search(rf"(?m)^( *{place} )?{word}\b", text), (place, word)
    else:
        assert f"the {FIRST_ROWS} of {count} rows that say most" in text
    assert "broken" not in text


@checked
@example(["👩\u200d👩\u200d👧", "🇫🇷", "❤\ufe0f"] * 5, 37, True)
@example(["你好你好你好你好你好"] * 9, 30, False)
@given(st.lists(odd_words, min_size=1, max_size=40), st.integers(30, 200), st.booleans())
@pytest.mark.slow
def test_no_line_is_wider_than_the_terminal(words, width, signed):
    for form in ({}, {"whole": True, "short": False}, {"pieces": True}, {"hints": True}):
        text = shown(attention_of(self_map(words, 2, 3, signed=signed)), width, **form)
        assert widest(text) <= width
        assert not RAW.search(text)


@pytest.mark.slow
@checked
@given(st.integers(1, 12), st.integers(0, 99))
def test_the_numbers_are_the_maps_and_rows_are_queries(count, seed):
    words = [f"w{place}" for place in range(count)]
    item = self_map(words, seed=seed)
    lines = shown(attention_of(item), 120).splitlines()
    start = next(place for place, line in enumerate(lines) if line.split() == words)
    for word, line, row in zip(words, lines[start + 1 :], item.weights[0, 0], strict=False):
        assert line.split() == [word, *(two_digits(float(value / row.sum())) for value in row)]


def test_tables_name_repeats_and_break_captions():
    words = [f"w{place}" for place in range(40)]
    item = self_map(words)
    lines = shown(attention_of(item), 60, whole=True, short=False).splitlines()
    cells: dict[str, list[str]] = {}
    for line in lines[lines.index(next(x for x in lines if x.split()[:1] == ["w0"])) :]:
        name, *numbers = line.split() or [""]
        if numbers and not numbers[0].startswith("w"):
            cells.setdefault(name, []).extend(numbers)
    rows = item.weights[0, 0] / item.weights[0, 0].sum(axis=-1, keepdims=True)
    assert cells == {
        word: [two_digits(float(value)) for value in row]
        for word, row in zip(words, rows, strict=True)
    }
    text = shown(attention_of(self_map(["the", "cat", "the", "dog", "sat", "down"], 1, 6)))
    listed = text[text.index("heads that") : text.index("the other")]
    assert "the[0]" in listed
    assert not re.search(r"\bthe\b(?!\[)", listed)
    renderer = TableRenderer(Display(many=True))
    found = [attention_of(self_map(["a", "b"])) for _ in range(2)]
    texts = [renderer.add(item, views_of(item)) for item in found]
    assert texts[0].startswith("0:\n")
    assert texts[1].startswith("\n0:\n")
    lines = wrap_text("one · two · three", 11, between=" · ")
    assert [line.plain for line in lines] == ["one · two", "three"]
    assert [line.plain for line in wrap_text("one", 1)] == ["one"]


def test_what_to_type_next_is_for_a_terminal():
    attention = attention_of(self_map(WORDS, 2, 4))
    hint = "another head: --head"
    assert hint in shown(attention, hints=True)
    assert hint not in shown(attention)

    found = sharpest(self_map(["a", "b"]).with_weights(np.full((1, 1, 2, 2), 0.5, np.float32)))
    assert found is not None

    def said(layer: str, head: str) -> str:
        return strongest_line(replace(found, layer=layer, head=head)).plain

    assert said("2", "3") == "a → b  .50 in layer 2 head 3  (--head 2.3 shows it)"
    assert said("mean", "3") == "a → b  .50 in head 3"
    assert said("mean", "max") == "a → b  .50"


@pytest.mark.parametrize("colors", ["truecolor", "256", "standard"])
def test_colour_comes_only_when_asked_for(colors):
    attention = attention_of(self_map(WORDS, 1, 2))
    plain, colored = shown(attention), shown(attention, colors=colors)
    assert "\x1b" not in plain
    assert re.search(r"\x1b\[[0-9;]*4[0-9]", colored)
    rows = [line.rstrip() for line in STYLE.sub("", colored).splitlines()]
    assert rows == plain.splitlines()
