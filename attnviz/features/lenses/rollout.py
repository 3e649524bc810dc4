"""Attention rollout and flow (Abnar and Zuidema 2020, section 3): what reaches a layer.

Each layer is a row of nodes, and Â gives the edges between them. Rollout multiplies them: how much
of each input is in a position. Flow takes them as capacities: a position receives the maximum flow
from an input, which finds bottlenecks.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from attnviz.core import errors, notices
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.features.lenses.layered import (
    LayerGraph,
    Steps,
    extension_notes,
    layer_graph,
    through_lens,
)

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


FLOW_UNIT = "largest flow from an input"
MOST_SOLVES = 10_000  # most pairs of positions: each is a maximum-flow problem

Node = tuple[str, int, int]  # sequence, layer (0: the input) and position


def flow(
    attention: Attention,
    queries: Sequence[int] | None = None,
    remedy: str = "shorten the text, or use --lens rollout",
) -> Attention:
    """The largest flow from each input token to each position after the last layer.

    The result is one map with values from 0 to 1, whose rows need not sum to 1. `queries` limits
    the rows; `remedy` ends the error message if there are still too many.

    Raises:
        UsageError: layers are missing.
        UnfitTextError: there are more than 10,000 pairs of positions.
    """
    item = attention.main
    rows = range(len(item.query_tokens)) if queries is None else queries
    solves = len(rows) * len(item.key_tokens)
    if solves > MOST_SOLVES:
        raise errors.UnfitTextError(
            f"flow would solve {solves:,} maximum-flow problems, more than {MOST_SOLVES:,}: "
            f"{remedy}"
        )
    graph = layer_graph(attention)
    cost = f"flow takes {solves:,} maximum-flow problems over {len(item.layers)} layers"
    notices.notify(cost)
    last = item.with_weights(
        flows(graph, rows).astype(np.float32)[None, None],
        query_tokens=tuple(item.query_tokens[row] for row in rows),
        layers=("flow",),
        heads=("mean",),
        unit=FLOW_UNIT,
    )
    return through_lens("flow", attention, (last,), (*extension_notes("flow", attention), cost))


def flows(
    graph: LayerGraph, queries: Sequence[int] | None = None, *, own: bool = False
) -> NDArray[np.float64]:
    """Maximum flows (queries, keys) from positions at the top to each input.

    With cross-attention the inputs are the source's, unless `own` asks for the target's.
    """
    from igraph import Graph

    edges = list(_edges(graph))
    numbers: dict[Node, int] = {}
    for edge in edges:
        for node in edge[:2]:
            numbers.setdefault(node, len(numbers))
    ends = [(numbers[above], numbers[below]) for above, below, _ in edges]
    capacities = [capacity for *_, capacity in edges]
    network = Graph(len(numbers), ends, directed=True)
    depth, length = graph.within.shape[:2]
    inputs, keys = "own", length
    if graph.across is not None and not own:
        inputs, keys = "source", graph.across.shape[2]
    rows = range(length) if queries is None else queries
    values = np.zeros((len(rows), keys))
    for place, query in enumerate(rows):
        top = numbers["own", depth, query]
        for key in range(keys):
            bottom = numbers.get((inputs, 0, key))
            if bottom is not None:
                values[place, key] = network.maxflow_value(top, bottom, capacities)
    return values


def _edges(graph: LayerGraph) -> Iterator[tuple[Node, Node, float]]:
    """Edges with capacities, from the top down: flow ends at an input."""
    if graph.across is None or graph.source is None:
        yield from _downwards("own", "own", graph.within)
        return
    yield from _downwards("source", "source", graph.source)
    # A decoder's layer has two rows of nodes: "mid" after self-attention, and "own" after
    # cross-attention, which mixes "mid" and the encoder's top as the rollout does.
    yield from _downwards("mid", "own", graph.within)
    top = len(graph.source)
    for layer, cross in enumerate(graph.across, 1):
        for query, row in enumerate(cross):
            mass = 1 + float(row.sum())
            yield ("own", layer, query), ("mid", layer, query), 1 / mass
            for key, weight in enumerate(row.tolist()):
                if weight > 0:
                    yield ("own", layer, query), ("source", top, key), weight / mass


def _downwards(
    above: str, below: str, steps: NDArray[np.float64]
) -> Iterator[tuple[Node, Node, float]]:
    for layer, step in enumerate(steps, 1):
        for query, row in enumerate(step.tolist()):
            for key, capacity in enumerate(row):
                if capacity > 0:
                    yield (above, layer, query), (below, layer - 1, key), capacity
