import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attnviz.renderers.colors import block_peaks


@given(
    st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99)
)
def test_a_block_keeps_the_weight_furthest_from_zero(queries, keys, rows, columns, seed):
    weights = np.random.default_rng(seed).normal(size=(2, queries, keys)).astype(np.float32)
    small = block_peaks(weights, rows, columns)
    assert small.shape == (2, -(-queries // rows), -(-keys // columns))
    for layer, row, column in np.ndindex(small.shape):
        block = weights[
            layer, row * rows : (row + 1) * rows, column * columns : (column + 1) * columns
        ].ravel()
        assert small[layer, row, column] == block[np.abs(block).argmax()]


def test_blocks_of_one_weight_are_the_weights():
    weights = np.array([[0.1, -0.4]], dtype=np.float32)
    assert np.array_equal(block_peaks(weights, 1, 1), weights)
