"""Attention rollout (Abnar and Zuidema 2020, section 3): how much of each input reaches a layer."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.lenses.layered import (
    LayerGraph,
    Steps,
    extension_notes,
    layer_graph,
    through_lens,
)
from attnviz.core.attention_map import Attention, AttentionMap

UNIT = "share of an input's identity (rollout)"


def rollout(attention: Attention) -> Attention:
    """How much of each input token is in each position after each layer.

    R⁰ = I, Rˡ = Âˡ Rˡ⁻¹ with Â = rownorm(mean over heads + I). The paper does not treat decoders
    with cross-attention. There each layer mixes the shares of target and source by its
    self-attention, then takes half of each position from the encoder's rollout by its
    cross-attention. Rows sum to 1, over source and target together.

    Raises:
        UsageError: layers are missing, or the stream does not attend to itself.
    """
    graph = layer_graph(attention)
    if graph.across is None:
        maps: tuple[AttentionMap, ...] = (_as_map(attention.main, multiply_steps(graph.within)),)
    else:
        target, source = roll_out_across(graph)
        maps = (
            _as_map(attention.main, source),
            _as_map(attention.map_of("encoder"), multiply_steps(graph.source)),
            _as_map(attention.map_of("decoder"), target),
        )
    return through_lens("rollout", attention, maps, extension_notes("rollout", attention))


def multiply_steps(steps: Steps | None) -> Steps:
    """Rˡ for each layer l: the product of the steps so far, newest on the left."""
    assert steps is not None
    return np.stack(list(accumulate(steps, lambda before, step: step @ before)))


def roll_out_across(graph: LayerGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares of target and source in each decoder position after each layer."""
    assert graph.across is not None
    read = multiply_steps(graph.source)[-1]
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
