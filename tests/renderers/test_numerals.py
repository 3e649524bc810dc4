import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.renderers.printable import one_digit, two_digits


@pytest.mark.parametrize(
    ("weight", "two", "one"),
    [
        (0.0, ".00", ".0"),
        (0.456, ".46", ".5"),
        (0.994, ".99", "1."),
        (0.996, "1.0", "1."),
        (1.0, "1.0", "1."),
        (-0.2, "-.20", "-.2"),
        (-0.004, ".00", ".0"),
        (-1.0, "-1.0", "-1."),
        (0.005, ".01", ".0"),
        (0.949, ".95", ".9"),
        (0.95, ".95", ".9"),
        (0.951, ".95", "1."),
        (0.995, ".99", "1."),
    ],
)
def test_short_numbers(weight, two, one):
    assert (two_digits(weight), one_digit(weight)) == (two, one)


@given(st.floats(-1, 1))
def test_short_numbers_are_short_and_true(weight):
    two, one = two_digits(weight), one_digit(weight)
    assert (len(two), len(one)) == (3 + two.startswith("-"), 2 + one.startswith("-"))
    assert float(two) == pytest.approx(weight, abs=0.00501)
    assert float(one) == pytest.approx(weight, abs=0.0501)
