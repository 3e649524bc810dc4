"""Heads as a table, at every width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from attnviz.renderers import Display
from attnviz.renderers.text.head_tables import measures_table
from tests.renderers.heads import report, row


def lines(width: int = 80, **fields: object) -> list[str]:
    return measures_table(report(**fields), Display(width=width)).splitlines()


def test_a_head_is_a_line_under_what_an_even_look_gives() -> None:
    found = lines()
    assert found[0] == "made up · self"
    header, even, first, *_ = found[found.index("") + 1 :]
    assert header.split() == ["layer", "head", "role", "entr", "offs", "prev", "ind"]
    assert even.split() == ["uniform", "2.00", "0.00", ".10", "–"]
    assert first.split() == ["0", "2", "previous-token", ".99", "1.25", "-1.50", ".99", "–"]


def test_columns_stand_below_one_another() -> None:
    found = lines()
    table = found[found.index("") + 1 :][:5]
    assert len({line.rfind(line.split()[-1]) + len(line.split()[-1]) for line in table}) == 1


@pytest.mark.parametrize("width", [20, 30, 40, 50, 80, 200])
def test_no_line_is_wider_than_the_display_where_names_and_roles_fit(width: int) -> None:
    for line in lines(max(width, 32)):
        assert cell_len(line) <= max(width, 32)


def test_what_has_no_room_is_named() -> None:
    found = "\n".join(lines(40))
    assert "no room for" in found
    assert "prev" in found
    assert "-f tsv shows them as a table, -f json as data" in " ".join(found.split())


def test_the_measure_that_sorts_is_kept() -> None:
    text = measures_table(report(), Display(width=36), keep="offset")
    assert "offs" in text
    assert "prev " not in text


def test_masks_that_differ_have_lines_of_their_own() -> None:
    rows = (row(0, 0, 0.2, even=0.1), row(1, 0, 0.2, even=0.3), row(2, 0, 0.2, even=0.1))
    text = measures_table(report(*rows), Display(width=80))
    even = [line.split() for line in text.splitlines() if "uniform" in line and ":" not in line]
    assert [line[:2] for line in even] == [["0,2", "uniform"], ["1", "uniform"]]


def test_streams_are_told_apart() -> None:
    rows = (row(0, 0, 0.2), row(0, 0, 0.2, stream="decoder"))
    text = measures_table(report(*rows), Display(width=80))
    assert " stream layer head" in text
    assert "decoder     0    0" in text


def test_without_heads_the_table_is_its_header() -> None:
    empty = report()
    empty = type(empty)(empty.caption, empty.measures, (), empty.provenance)
    assert "layer head role" in measures_table(empty, Display(width=80))


def test_colours_come_only_where_the_display_has_them() -> None:
    assert "\x1b" not in measures_table(report(), Display(width=80))
    assert "\x1b[" in measures_table(report(), Display(width=80, colors="truecolor"))


def test_a_name_can_neither_style_nor_break_the_table() -> None:
    text = measures_table(report(sinks="\x1b[31m[red]\n is a sink"), Display(width=80))
    assert "\x1b" not in text
    assert "[red]" in text
