import math

import numpy as np
import pytest

from attnviz.mechanisms.relative import sinusoidal_positions


def slowly(length, size, base):
    """The definition, a cell at a time."""
    cells = np.zeros((length, size))
    for position in range(length):
        for column in range(size):
            angle = position / base ** (2 * (column // 2) / size)
            cells[position, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return cells


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 64, 65])
@pytest.mark.parametrize("base", [10.0, 10000.0])
def test_it_is_the_definition_cell_by_cell(size, base):
    found = sinusoidal_positions(50, size, base)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, slowly(50, size, base), rtol=0, atol=1e-6)


def test_by_hand_position_zero_is_zeros_and_ones():
    np.testing.assert_array_equal(sinusoidal_positions(1, 5), [[0, 1, 0, 1, 0]])


@pytest.mark.parametrize(("length", "size"), [(0, 4), (3, 0)])
def test_nothing_to_encode_is_an_empty_table(length, size):
    assert sinusoidal_positions(length, size).shape == (length, size)
