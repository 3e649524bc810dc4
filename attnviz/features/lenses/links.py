"""Measured effects of single links, beside their first-order estimates."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.select import cells_between_words, link_at
from attnviz.core.attention_map import (
    LITTLE_EFFECT,
    LITTLE_WEIGHT,
    MUCH_WEIGHT,
    Attention,
    AttentionMap,
    MeasuredLink,
)
from attnviz.core.effects import Experiment, Intervention, LinkAt, effects_of
from attnviz.core.errors import AttentionError
from attnviz.features.measures.intervals import rank_correlation

LISTED = 10  # most links in a list of contrasts


def with_links(estimates: Attention, experiment: Experiment, count: int) -> Attention:
    """Estimated effects beside the weights; the `count` largest are measured too."""
    with_lists = with_contrasts(estimates, experiment.attention)
    return with_measured(with_lists, experiment, count) if count else with_lists


def with_measured(estimates: Attention, experiment: Experiment, count: int) -> Attention:
    """Measure the largest estimates, and note how well both agree, or why none was measured."""
    links, agreement = tuple[MeasuredLink, ...](), float("nan")
    try:
        links = measure_links(experiment, estimates, count)
        pairs = np.array([(one.estimated, one.measured) for one in links], np.float64)
        agreement = rank_correlation(pairs[:, 0], pairs[:, 1])
        note = (
            f"effects are estimates by the gradient; the {len(links)} largest were also "
            "measured by a cut"
        )
    except AttentionError as error:
        note = f"effects are estimates by the gradient, and none was measured: {error}"
    facts: dict[str, Any] = {"measured links": len(links)}
    if np.isfinite(agreement):
        note += f": their rank correlation with the estimates is {agreement:.2f}"
        facts["rank correlation"] = round(agreement, 6)
    with_note = estimates.with_maps(estimates.maps, notes=[note], settings=facts)
    return replace(with_note, measured=links)


def measure_links(
    experiment: Experiment, estimates: Attention, count: int
) -> tuple[MeasuredLink, ...]:
    """Cut each of the links with the largest estimates alone, largest first."""
    raw = {(item.stream, name): item for item in experiment.attention.maps for name in item.layers}
    largest = []
    for item in estimates.maps:
        sizes = np.abs(np.nan_to_num(item.weights)).ravel()
        for place in np.argpartition(-sizes, min(count, sizes.size) - 1)[:count]:
            cell = tuple(map(int, np.unravel_index(place, item.weights.shape)))
            largest.append((float(sizes[place]), item, cell))
    largest = sorted(largest, key=lambda one: -one[0])[:count]
    cells, changes = [], []
    for _, item, (layer, head, query, key) in largest:
        names = item.place(layer, head)
        own = raw[item.stream, names[0]]
        weight = own.weights[own.layers.index(names[0]), int(names[1]), query, key]
        link = link_at(item, (layer, head, query, key), float(weight))
        cells.append((item.stream, link, float(item.weights[layer, head, query, key])))
        changes.append(
            Intervention(links=(LinkAt(item.stream, query, key, names[0], int(names[1])),))
        )
    effects = effects_of(experiment, changes).sum(axis=1)
    return tuple(
        MeasuredLink(stream, link, estimate, float(effect))
        for (stream, link, estimate), effect in zip(cells, effects, strict=True)
    )


def with_contrasts(estimates: Attention, raw: Attention) -> Attention:
    """List the links between words whose weight and estimated effect disagree.

    `raw` holds the maps of every layer. A note counts the heavy links without an effect.
    """
    plain = {
        (item.stream, layer): dict(zip(item.heads, weights, strict=True))
        for item in raw.maps
        for layer, weights in zip(item.layers, item.weights, strict=True)
    }
    idle, decisive, heavy, without = [], [], 0, 0
    for item in estimates.maps:
        places = [item.place(*at) for at in np.ndindex(item.weights.shape[:2])]
        weights = np.reshape([plain[item.stream, at][n] for at, n in places], item.weights.shape)
        between = cells_between_words(item)
        there = ~np.isnan(item.weights) & (True if between is None else between)
        sizes = np.abs(np.nan_to_num(item.weights))
        strong, little = there & (weights > MUCH_WEIGHT), sizes < LITTLE_EFFECT
        heavy += int(strong.sum())
        without += int((strong & little).sum())
        weak = there & (weights < LITTLE_WEIGHT) & ~little
        idle += _largest(item, weights, np.where(strong & little, weights, 0))
        decisive += _largest(item, weights, np.where(weak, sizes, 0))
    idle.sort(key=lambda one: -one.link.weight)
    decisive.sort(key=lambda one: -abs(one.estimated))
    ends = "patches" if estimates.main.key_side == "picture" else "words"
    note = f"{without} of {heavy} links between {ends} with a weight above {MUCH_WEIGHT} change "
    note += f"log p by less than {LITTLE_EFFECT} nats (estimated)"
    with_note = estimates.with_maps(estimates.maps, notes=[note] if heavy else [])
    return replace(with_note, idle=tuple(idle[:LISTED]), decisive=tuple(decisive[:LISTED]))


def _largest(
    item: AttentionMap, weights: NDArray[np.floating], order: NDArray[np.floating]
) -> list[MeasuredLink]:
    """The cells with the largest positive `order`."""
    places = np.argsort(-order, axis=None, kind="stable")[:LISTED]
    cells = [np.unravel_index(place, order.shape) for place in places if order.flat[place]]
    return [
        MeasuredLink(
            item.stream, link_at(item, cell, float(weights[cell])), float(item.weights[cell])
        )
        for cell in cells
    ]
