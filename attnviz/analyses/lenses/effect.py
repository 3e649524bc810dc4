"""What each link changes, estimated from one forward and one backward pass.

Attribution patching (Nanda 2023; Syed, Rager and Conmy 2023) of the row without the link: hiding
key j from query i scales what is left of the row by 1 / (1 − wᵢⱼ), whatever made the weights. To
first order log p with the link minus log p without it is wᵢⱼ (gᵢⱼ − ḡᵢ) / (1 − wᵢⱼ), with
gᵢⱼ = ∂ log p / ∂wᵢⱼ and ḡᵢ = Σₖ wᵢₖ gᵢₖ. A sink that is no key stays in the denominator, and all of
it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.lenses.layered import through_lens
from attnviz.core.attention_map import Attention
from attnviz.core.lens_inputs import AttentionGradients

UNIT = "effect on log p of the output, nats (first order)"
SINK = 1e-4
"""Rows that sum to less than 1 by more than this have a sink that is no key."""
ALONE = 1e-7
"""A weight that leaves less than this to all others has no effect that could be told."""


def effect(explained: AttentionGradients) -> Attention:
    """Estimated change of the output's log-probability, in nats, when a link is cut.

    Above 0 the link supports the output. All layers and heads stay. A link beside which the query
    sees nothing has no value (NaN).
    """
    attention = explained.attention
    maps = tuple(
        item.with_weights(
            effects(item.weights, gradients).astype(np.float32), values="signed", unit=UNIT
        )
        for item, gradients in zip(attention.maps, explained.gradients, strict=True)
    )
    facts: dict[str, Any] = {"output": explained.output, "read from": [*explained.positions]}
    if explained.probability is not None:
        facts["probability"] = round(explained.probability, 6)
    return through_lens("effect", attention, maps, (), facts)


def effects(
    weights: NDArray[np.floating[Any]], gradients: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """The first-order effect of each link in nats, of the weights' shape (…, queries, keys).

    NaN where the query sees nothing else.
    """
    weights = np.asarray(weights, dtype=np.float64)
    slopes = np.asarray(gradients, dtype=np.float64)
    totals = weights.sum(axis=-1, keepdims=True)
    whole = np.where(totals < 1 - SINK, 1.0, totals)
    rest = whole - weights
    means = (weights * slopes).sum(axis=-1, keepdims=True)
    found: NDArray[np.float64] = np.full(weights.shape, np.nan)
    np.divide(weights * (slopes - means), rest, out=found, where=rest > ALONE)
    return found
