"""The built-in worked example: three positions of four features, small enough to check by hand."""

from __future__ import annotations

import numpy as np

from attnviz.steps.given import Given


def worked_example() -> Given:
    """Self-attention of head size 2 over three positions, its inputs and projections 0 or 1."""
    inputs = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=np.float64)
    straight = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float64)
    swapped = straight[:, ::-1]
    return Given(
        title="worked example",
        query_input=inputs,
        key_value_input=inputs,
        projections={"w_query": straight, "w_key": swapped, "w_value": straight},
    )
