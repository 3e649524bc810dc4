"""A row of a table is cut where a console is narrower than it was told, and never broken."""

from dataclasses import replace

import pytest

from attnviz.renderers import Display
from attnviz.renderers.text.console import console_of, console_text
from attnviz.renderers.text.table import matrix
from tests.samples import self_map


@pytest.mark.parametrize("colored", [True, False])
def test_a_row_stays_one_line(colored):
    item = self_map([f"word{place}" for place in range(30)], layers=1, heads=1)
    table = matrix(replace(item, key_side="columns"), 60, colored=colored)[0]
    wide, narrow = (console_of(Display(width=size)) for size in (400, 24))
    for console in (wide, narrow):
        console.print(table)
    assert console_text(narrow).count("\n") == console_text(wide).count("\n")
