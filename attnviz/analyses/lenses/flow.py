"""Attention flow (Abnar and Zuidema 2020, section 3): the most that can reach an output.

Each layer is a row of nodes, and Â gives the capacities of the edges. A position receives the
maximum flow from an input. Unlike rollout, this finds bottlenecks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.lenses.layered import (
    LayerGraph,
    extension_notes,
    layer_graph,
    through_lens,
)
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError
from attnviz.core.notices import notify

UNIT = "largest flow from an input"
MOST_SOLVES = 10_000
"""Most pairs of positions: each is a maximum-flow problem."""

Node = tuple[str, int, int]
"""Sequence, layer (0: the input) and position."""


def flow(
    attention: Attention,
    queries: Sequence[int] | None = None,
    remedy: str = "shorten the text, or use --lens rollout",
) -> Attention:
    """The largest flow from each input token to each position after the last layer.

    The result is one map with values from 0 to 1, whose rows need not sum to 1. `queries` limits
    the rows; `remedy` ends the error message if there are still too many.

    Raises:
        UsageError: layers are missing, or there are more than 10,000 pairs of positions.
    """
    item = attention.main
    rows = range(len(item.query_tokens)) if queries is None else queries
    solves = len(rows) * len(item.key_tokens)
    if solves > MOST_SOLVES:
        raise UsageError(
            f"flow would solve {solves:,} maximum-flow problems, more than {MOST_SOLVES:,}: "
            f"{remedy}"
        )
    graph = layer_graph(attention)
    cost = f"flow takes {solves:,} maximum-flow problems over {len(item.layers)} layers"
    notify(cost)
    shown = item.with_weights(
        flows(graph, rows).astype(np.float32)[None, None],
        query_tokens=tuple(item.query_tokens[row] for row in rows),
        layers=("flow",),
        heads=("mean",),
        unit=UNIT,
    )
    return through_lens("flow", attention, (shown,), (*extension_notes("flow", attention), cost))


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
    found = np.zeros((len(rows), keys))
    for place, query in enumerate(rows):
        top = numbers["own", depth, query]
        for key in range(keys):
            bottom = numbers.get((inputs, 0, key))
            if bottom is not None:
                found[place, key] = network.maxflow_value(top, bottom, capacities)
    return found


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
