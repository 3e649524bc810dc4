"""Attention rollout (Abnar and Zuidema 2020, section 3): how much of each input reaches a layer."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.lenses.layered import Layered, Steps, extension_notes, layered, through_lens
from attnviz.core.attention_map import Attention, AttentionMap

UNIT = "share of an input's identity (rollout)"


def rollout(attention: Attention) -> Attention:
    """How much of each input token is in each position after each layer.

    R⁰ = I, Rˡ = Âˡ Rˡ⁻¹ with Â = rownorm(mean over heads + I). For a decoder with cross-attention,
    which the paper does not treat, the target's and the source's shares are kept side by side: each
    layer mixes both by its self-attention, then takes half of the target's position from the rolled
    out source by its cross-attention. Rows sum to 1; across a decoder the shares of source and
    target together do.

    Raises:
        UsageError: layers are missing, or the stream does not attend to itself.
    """
    graph = layered(attention)
    if graph.across is None:
        maps: tuple[AttentionMap, ...] = (_as_map(attention.main, rolled(graph.within)),)
    else:
        target, source = rolled_across(graph)
        maps = (
            _as_map(attention.main, source),
            _as_map(attention.map_of("encoder"), rolled(graph.source)),
            _as_map(attention.map_of("decoder"), target),
        )
    return through_lens("rollout", attention, maps, extension_notes("rollout", attention))


def rolled(steps: Steps | None) -> Steps:
    """Rˡ for each layer l: the products of the steps so far, newest on the left."""
    assert steps is not None
    return np.stack(list(accumulate(steps, lambda before, step: step @ before)))


def rolled_across(graph: Layered) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares of target and source in each of the decoder's positions after each layer."""
    assert graph.across is not None
    read = rolled(graph.source)[-1]
    queries, keys = graph.across.shape[1:]
    target, source = np.eye(queries), np.zeros((queries, keys))
    targets, sources = [], []
    for step, cross in zip(graph.within, graph.across, strict=True):
        target, source = step @ target, step @ source
        # rownorm(cross + I) again: a row of cross-attention that sums to 1 weighs as the residual.
        mass = 1 + cross.sum(axis=-1, keepdims=True)
        target, source = target / mass, (source + cross @ read) / mass
        targets.append(target)
        sources.append(source)
    return np.stack(targets), np.stack(sources)


def _as_map(item: AttentionMap, depths: NDArray[np.float64]) -> AttentionMap:
    weights = depths[:, None].astype(np.float32)
    return item.with_weights(weights, heads=("mean",), unit=UNIT)
