"""The effect of each link, estimated from one forward and one backward pass.

Attribution patching (Nanda 2023; Syed, Rager and Conmy 2023) for the row without the link. If key j
is hidden from query i, the rest of the row grows by 1 / (1 − wᵢⱼ). To first order, log p with the
link minus log p without it is wᵢⱼ (gᵢⱼ − ḡᵢ) / (1 − wᵢⱼ), with gᵢⱼ = ∂ log p / ∂wᵢⱼ and
ḡᵢ = Σₖ wᵢₖ gᵢₖ. It is computed as wᵢⱼ (gᵢⱼ − Σₖ≠ⱼ wᵢₖ gᵢₖ / (1 − wᵢⱼ)). A sink that is not a key
stays in the denominator.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.features.lenses.layered import through_lens

UNIT = "effect on log p of the output, nats (first order)"
SINK = 1e-5  # a row whose sum is below 1 by more than this has a sink, if none is known


def effect(inputs: AttentionGradients) -> Attention:
    """Estimated change of the output's log-probability, in nats, when a link is cut.

    Above 0: the link supports the output. NaN: the query has no other key.
    """
    attention = inputs.attention
    maps = tuple(
        item.with_weights(sizes.astype(np.float32), values="signed", unit=UNIT)
        for item, sizes in zip(attention.maps, effects_of_maps(inputs), strict=True)
    )
    facts: dict[str, Any] = {"output": inputs.output, "read from": [*inputs.positions]}
    if inputs.probability is not None:
        facts["probability"] = round(inputs.probability, 6)
    return through_lens("effect", attention, maps, (), facts)


def effects_of_maps(inputs: AttentionGradients) -> Iterator[NDArray[np.float64]]:
    """The first-order effects of each map's links, in nats, with the shape of its weights."""
    sinks = {} if inputs.experiment is None else inputs.experiment.sinks
    for item, slopes in zip(inputs.attention.maps, inputs.gradients, strict=True):
        layers = zip(item.layers, item.weights, slopes, strict=True)
        yield np.stack([effects(w, g, sinks.get((item.stream, at))) for at, w, g in layers])


def effects(
    weights: NDArray[np.floating[Any]],
    gradients: NDArray[np.floating[Any]],
    sinks: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.float64]:
    """The first-order effect of each link in nats, shape (…, queries, keys).

    `sinks` is a sink's share of each row, (…, queries). None: 1 minus the row's sum, unless that is
    rounding.
    """
    weights = np.asarray(weights, dtype=np.float64)
    slopes = np.asarray(gradients, dtype=np.float64)
    totals = weights.sum(axis=-1, keepdims=True)
    remainder = np.where(totals < 1 - SINK, 1 - totals, 0.0)
    sink = remainder if sinks is None else sinks[..., None]
    pulls = weights * slopes
    # 1 − w loses all digits where w is close to 1: add the other weights up instead.
    top = weights.argmax(axis=-1)[..., None]
    others, other_pulls = weights.copy(), pulls.copy()
    np.put_along_axis(others, top, 0, axis=-1)
    np.put_along_axis(other_pulls, top, 0, axis=-1)
    rest = totals + sink - weights
    np.put_along_axis(rest, top, others.sum(axis=-1, keepdims=True) + sink, axis=-1)
    mean = pulls.sum(axis=-1, keepdims=True) - pulls
    np.put_along_axis(mean, top, other_pulls.sum(axis=-1, keepdims=True), axis=-1)
    means: NDArray[np.float64] = np.full(weights.shape, np.nan)
    np.divide(mean, rest, out=means, where=rest > 0)
    return weights * (slopes - means)
