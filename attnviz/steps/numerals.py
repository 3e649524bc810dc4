"""Numbers as short texts of one precision, so that a column of them can be read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def numerals(values: NDArray[Any], decimals: int = 3) -> list[list[str]]:
    """Each number of a matrix as text: whole numbers whole, others to so many decimals.

    Very large and very small matrices turn to powers of ten. An exact zero among fractions reads
    "0", one that was rounded to zero "0.000" or "-0.000"; a mask reads 1 and "·".
    """
    if values.dtype == np.bool_:
        return [["1" if cell else "·" for cell in row] for row in values]
    largest = float(np.abs(values).max(initial=0.0))
    if largest < 1e6 and np.array_equal(values, np.round(values)):
        pattern = "{:.0f}"
    elif 0.01 <= largest < 1e4:
        pattern = f"{{:.{decimals}f}}"
    else:
        pattern = "{:.2e}"
    return [[pattern.format(cell) if cell else "0" for cell in row] for row in values.tolist()]
