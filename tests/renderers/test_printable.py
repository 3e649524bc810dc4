import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.renderers.printable import printable, shorten, shorten_words

ANY_TEXT = st.text(st.characters(categories=None), max_size=12)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("word", "word"),
        ("Éléphant", "Éléphant"),
        ("[bold]", "[bold]"),
        ("", ""),
        (" ", "␣"),
        ("   ", "␣␣␣"),
        ("a b", "a b"),
        ("\u00a0", "‹A0›"),
        ("\u3000", "‹3000›"),
        ("\n", "⏎"),
        ("a\nb", "a⏎b"),
        ("\t", "⇥"),
        ("\x1b[31mred", "␛[31mred"),
        ("\x00", "␀"),
        ("\x7f", "␡"),
        ("\x9b", "‹9B›"),
        ("a\u202eb", "a‹202E›b"),
        ("\u2066", "‹2066›"),
        ("\u200b", "‹200B›"),
        ("\ufeff", "‹FEFF›"),
        ("\u2028\u2029", "‹2028›‹2029›"),
        ("\ud800", "‹D800›"),
        ("a\u00adb", "a‹AD›b"),
        ("\u3164", "‹3164›"),
        ("\u2800", "‹2800›"),
        ("\U000e0041", "‹E0041›"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
    ],
)
def test_what_cannot_be_seen_becomes_visible(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d🔬",
        "👩🏽\u200d🔬",
        "❤\ufe0f\u200d🔥",
        "می\u200cخواهم",
        "क\u094d\u200dष",
        "\u0600",
        "葛\U000e0100",
        "❤\ufe0f",
    ],
)
def test_joiners_stay_where_they_shape_what_is_read(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ab\u200dc", "ab‹200D›c"),
        ("pass\u200cword", "pass‹200C›word"),
        ("\u200d", "‹200D›"),
        ("می\u200c", "می‹200C›"),
        ("👩\u200da", "👩‹200D›a"),
        ("😀\U000e0101\U000e0102", "😀\U000e0101‹E0102›"),
        (" \ufe0f", " ‹FE0F›"),
    ],
)
def test_joiners_and_selectors_without_work_are_shown(text, shown):
    assert printable(text) == shown


@given(ANY_TEXT)
@example("\u202e\x1b]0;title\x07")
def test_nothing_that_steers_a_terminal_is_left(text):
    shown = printable(text)
    steering = {character for character in shown if _steers(character)}
    assert (steering, bool(shown)) == (set(), bool(text))


def _steers(character):
    category = unicodedata.category(character)
    bidirectional = unicodedata.bidirectional(character)
    return category in ("Cc", "Cs", "Zl", "Zp") or bidirectional in (
        *("LRE", "RLE", "LRO", "RLO", "PDF"),
        *("LRI", "RLI", "FSI", "PDI"),
    )


@given(ANY_TEXT)
def test_printing_twice_changes_nothing(text):
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("professor", 9, "professor"),
        ("professor", 8, "profess…"),
        ("professor", 1, "…"),
        ("professor", 0, ""),
        ("professor", -3, ""),
        ("", 4, ""),
        ("中国中国", 8, "中国中国"),
        ("中国中国", 7, "中国中…"),
        ("中国中国", 6, "中国…"),
    ],
)
def test_long_text_ends_in_an_ellipsis(text, width, cut):
    assert shorten(text, width) == cut


@given(ANY_TEXT, st.integers(0, 12))
@example("❤\ufe0f❤\ufe0f❤\ufe0f", 5)
@example("👩\u200d🔬👩\u200d🔬", 3)
@example("e" + "\u0301" * 400, 3)
def test_shortened_text_fits_its_cells(text, width):
    cut = shorten(printable(text), width)
    assert cell_len(cut) <= width
    assert len(cut) <= width * 8 + 1


@given(ANY_TEXT)
def test_text_that_fits_is_not_touched(text):
    shown = printable(text)
    assert shorten(shown, 200) == shown


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("Anna lived with her mother.", 18, "Anna lived with…"),  # a word would be broken
        ("Anna lived with her mother.", 16, "Anna lived with…"),  # the cut is between words
        ("Anna lived with her mother.", 17, "Anna lived with…"),  # and behind the space
        ("Anna lived", 18, "Anna lived"),
        ("Unbelievablylongword without", 18, "Unbelievablylongw…"),  # no word fits
        ("A supercalifragilistic day", 18, "A supercalifragil…"),  # "A…" would name nothing
        ("", 18, ""),
    ],
)
def test_labels_are_cut_between_words(text, width, cut):
    assert shorten_words(text, width) == cut
