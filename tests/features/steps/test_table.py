import numpy as np
import pytest
from rich.cells import cell_len

from attnviz.features.steps.arithmetic import Steps, arithmetic
from attnviz.features.steps.given import PROJECTIONS, CalculationInputs, worked_example
from attnviz.features.steps.show import numerals, table
from attnviz.renderers import Display


def sentence(size: int, words: int = 9) -> Steps:
    draw = np.random.default_rng(0).standard_normal
    names = tuple(f"word{number}" for number in range(words))
    projections = {name: draw((size, size)) for name in PROJECTIONS}
    given = CalculationInputs("drawn", draw((words, size)), None, projections, None, names, names)
    return arithmetic(given, causal=True)


def test_the_worked_example_fits_or_says_what_is_cut():
    text = table(arithmetic(worked_example()), Display(80))
    for line in ("scores  3 × 3", "= query @ keyᵀ", "= softmax(scaled_scores)", "w_key  4 × 2"):
        assert line in text
    assert "q2  0.053  0.053  0.894" in text
    assert "showing" not in text
    text = table(sentence(64), Display(80))
    assert "showing 11 of 64 rows, " in text
    assert "…" in text
    found = {"inputs": np.eye(2), "scores": 5 * np.eye(2)}
    text = table(arithmetic(CalculationInputs.from_matrices(found, "wrong")), Display(80))
    assert "note: 'scores' as given differs" in text.partition("inputs  2")[0]


@pytest.mark.parametrize("width", [30, 50, 80, 200])
@pytest.mark.parametrize("size", [1, 4, 64])
@pytest.mark.slow
def test_no_line_is_wider_than_the_display(width, size):
    text = table(sentence(size, words=40), Display(width))
    assert max(map(cell_len, text.splitlines())) <= width


def test_colours_are_those_of_the_display_and_of_no_token():
    steps = arithmetic(worked_example())
    assert "\x1b[" not in table(steps, Display(80))
    assert "\x1b[38;2;" in table(steps, Display(80, "truecolor"))
    names = ("\x1b[31mred", "[bold]")
    steps = arithmetic(CalculationInputs("two", np.eye(2), query_tokens=names, key_tokens=names))
    text = table(steps, Display(80))
    assert "\x1b" not in text
    assert "[bold]" in text


def test_whole_numbers_and_exact_zeros_stay():
    assert numerals(np.array([[1.0, -20.0]])) == [["1", "-20"]]
    assert numerals(np.array([[0.0, 0.0001, 0.5]])) == [["0", "0.000", "0.500"]]
    assert numerals(np.array([[1e-5, 2e-5]])) == [["1.00e-05", "2.00e-05"]]
    assert numerals(np.array([[True, False]])) == [["1", "·"]]
