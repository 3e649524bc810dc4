"""Numbers and settings that the property tests share."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

checked = settings(deadline=None, derandomize=True, max_examples=50)
numbers = st.floats(-8, 8, allow_subnormal=False)


def matrix(*shape: int) -> st.SearchStrategy[np.ndarray]:
    """Matrices of float64 from −8 to 8."""
    return arrays(np.float64, shape, elements=numbers)
