"""Heads as a table, at every width."""

from attnviz.renderers import Display
from attnviz.renderers.text.head_tables import measures_table
from tests.renderers.heads import report


def lines(width: int = 80, **fields: object) -> list[str]:
    return measures_table(report(**fields), Display(width=width)).splitlines()


def test_what_has_no_room_is_named():
    found = "\n".join(lines(40))
    assert "no room for" in found
    assert "prev" in found
    assert "-f tsv shows them as a table, -f json as data" in " ".join(found.split())


def test_the_measure_that_sorts_is_kept():
    text = measures_table(report(), Display(width=36), keep="offset")
    assert "offs" in text
    assert "prev " not in text


def test_without_heads_the_table_is_its_header():
    empty = report()
    empty = type(empty)(empty.caption, empty.measures, (), empty.provenance)
    assert "layer head role" in measures_table(empty, Display(width=80))


def test_colours_come_only_where_the_display_has_them():
    assert "\x1b" not in measures_table(report(), Display(width=80))
    assert "\x1b[" in measures_table(report(), Display(width=80, colors="truecolor"))


def test_a_name_can_neither_style_nor_break_the_table():
    text = measures_table(report(sinks="\x1b[31m[red]\n is a sink"), Display(width=80))
    assert "\x1b" not in text
    assert "[red]" in text
