"""The page of steps in a real browser: by mouse and by keys."""

import itertools
import json
from typing import Any

import pytest

from attnviz.core.registry import MECHANISMS
from attnviz.features.steps.arithmetic import Steps, arithmetic
from attnviz.features.steps.given import seeded_sentence, worked_example
from attnviz.features.steps.show import steps_page
from tests.renderers.page.conftest import open_page, spare_tabs

from .highlights import shape, sources

__all__ = ["open_page", "spare_tabs"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LIT = """() => [...document.querySelectorAll("td.source")].map((cell) => {
  const figure = cell.closest("figure");
  const table = cell.closest("table");
  const row = cell.closest("tr");
  const cells = [...row.querySelectorAll("td")];
  return [figure.id.replace(/^m0-/, ""), [...figure.querySelectorAll("table")].indexOf(table),
    [...table.querySelectorAll("tbody tr")].indexOf(row), cells.indexOf(cell)];
})"""


def lit(opened: Any) -> set[tuple[str, int, int, int]]:
    return {tuple(cell) for cell in opened.tab.evaluate(LIT)}


def cell(opened: Any, name: str, number: int, row: int, column: int) -> Any:
    table = opened.tab.locator(f"#m0-{name} table").nth(number)
    return table.locator("tbody tr").nth(row).locator("td").nth(column)


def steps_of(name: str, heads: int) -> Steps:
    given = seeded_sentence("The cat sat", 4, 0, row=MECHANISMS[name], heads=heads)
    return arithmetic(given, mechanism=name, heads=heads)


@pytest.mark.parametrize(("name", "heads"), [("rotary", 2), ("additive", 2), ("online", 1)])
def test_pointing_lights_up_what_makes_a_number(name, heads, open_page):
    steps = steps_of(name, heads)
    opened = open_page(steps_page([steps]))
    for matrix in steps:
        last = tuple(count - 1 for count in shape(matrix))
        for place in {(0, 0, 0), last}:
            cell(opened, matrix.name, *place).hover()
            operands = (steps.matrix(one) for one in matrix.operands)
            expected = set(itertools.chain(*(sources(matrix, one, place) for one in operands)))
            assert lit(opened) == expected, (matrix.name, place)


def test_the_line_stays_over_the_number_pointed_at(open_page):
    opened = open_page(steps_page([steps_of("rotary", 2)]))
    place = cell(opened, "scores", 0, 0, 0)
    place.evaluate("(cell) => scrollBy(0, cell.getBoundingClientRect().bottom - innerHeight + 4)")
    opened.drawn()
    box = place.bounding_box()
    opened.tab.mouse.move(box["x"] + 5, box["y"] + 5)
    shown = []
    for _ in range(4):
        opened.drawn()
        shown.append(opened.tab.locator("#made").inner_text())
        opened.tab.mouse.move(box["x"] + 6 + len(shown), box["y"] + 5)
    assert set(shown) == {shown[0]} != {""}
    assert shown[0].startswith("scores")


@pytest.mark.core
def test_a_product_is_written_out(open_page):
    opened = open_page(steps_page([arithmetic(worked_example())]))
    cell(opened, "scores", 0, 2, 2).hover()
    said = opened.tab.locator("#made").inner_text()
    assert said == "scores [q2, k2] = 8 = query @ keyᵀ = 2 · 2 + 2 · 2"
    cell(opened, "weights", 0, 0, 0).hover()
    assert "made of scaled_scores row q0" in opened.tab.locator("#made").inner_text()


def test_it_works_by_keys_alone(open_page):
    opened = open_page(steps_page([arithmetic(worked_example())]))
    cell(opened, "scores", 0, 0, 0).focus()
    opened.key("ArrowDown")
    opened.key("ArrowRight")
    made = opened.tab.locator("#made")
    assert made.inner_text().startswith("scores [q1, k1] = 0")
    opened.key("End")
    assert made.inner_text().startswith("scores [q1, k2] = 4")
    opened.key("Enter")  # keeps it, wherever the mouse goes
    opened.tab.mouse.move(5, 5)
    assert made.inner_text().startswith("scores [q1, k2]")
    opened.key("Escape")
    assert made.inner_text() == ""
    assert lit(opened) == set()
    opened.key("ArrowLeft")
    assert made.inner_text().startswith("scores [q1, k1]")


def test_tab_goes_from_matrix_to_matrix_of_every_example(open_page):
    opened = open_page(steps_page([arithmetic(worked_example())]))
    cell(opened, "key", 0, 0, 0).focus()
    opened.key("Tab", 3)  # the two names of the next formula, then its numbers
    where = opened.tab.evaluate("() => document.activeElement.closest('figure').id")
    assert where == "m0-value"
    found = [arithmetic(worked_example(name)) for name in ("self", "cross")]
    opened = open_page(steps_page(found))
    assert opened.tab.locator("section").count() == 2
    assert json.loads(opened.tab.locator("#document").inner_text())["title"] == "2 calculations"
