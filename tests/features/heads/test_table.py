"""Heads as a table, at every width."""

from attnviz.features.heads.table import measures_table
from attnviz.renderers import Display
from tests.renderers.heads import report


def test_a_table_without_heads_and_with_hostile_names():
    empty = report()
    empty = type(empty)(empty.caption, empty.measures, (), empty.provenance)
    assert "layer head role" in measures_table(empty, Display(width=80))
    text = measures_table(report(sinks="\x1b[31m[red]\n is a sink"), Display(width=80))
    assert "\x1b" not in text
    assert "[red]" in text
