"""What the rows name: a formula, a lens, a measure, a format, a rule for caches, a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.measures import HeadMeasure
from attnviz.features.cache.report import CacheState
from attnviz.features.lenses.layered import through_lens
from attnviz.mechanisms.arrays import Array, Mask, transpose
from attnviz.mechanisms.formula import Calculation, Formula, Part, in_heads, weigh_values
from attnviz.renderers import Display, Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE = 10.0


@Formula
def cosine(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1
) -> Calculation:
    """Attention by the cosine of query and key, times a fixed scale (Swin v2).

    See Liu 2022, section 3.3, where the scale is learned. Works on numpy and torch alike: arrays of
    shape (…, positions, size), a mask that is True where a key may be seen.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    query = query / (query**2).sum(-1)[..., None] ** 0.5
    key = key / (key**2).sum(-1)[..., None] ** 0.5
    scores = SCALE * query @ transpose(key)
    scores = yield Part("scores", scores, f"{SCALE:g} · cos(query, key)")
    yield from weigh_values(scores, value, mask, "scores")


def sharper(attention: Attention) -> Attention:
    """The weights of each row squared and divided by their sum: softmax at half the temperature."""
    maps = []
    for item in attention.maps:
        squared = item.weights**2
        total = squared.sum(axis=-1, keepdims=True)
        weights = np.divide(squared, total, out=np.zeros_like(squared), where=total > 0)
        maps.append(replace(item, weights=weights))
    return through_lens("sharper", attention, tuple(maps))


def far(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to tokens at least five places away; nothing across two texts."""
    queries, keys = len(subject.item.query_tokens), len(subject.item.key_tokens)
    if subject.item.query_side != subject.item.key_side:
        return None
    targets = abs(np.arange(queries)[:, None] - np.arange(keys)) >= 5
    return subject.share_on("far", targets, ("never far away", "only far away"))


def peak(cache: CacheState) -> NDArray[np.float64]:
    """The largest weight that any query so far gave to each key, shape (heads, keys)."""
    largest: NDArray[np.float64] = cache.weights.max(axis=1)
    return largest


class DotRenderer:
    """A graph a text: `dot -Tsvg` draws it."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def add(self, attention: Attention, views: Views) -> str:
        """The links that the table's view calls the strongest."""
        links = [
            f"  {json.dumps(link.query)} -> {json.dumps(link.key)} [label={link.weight:.2f}];"
            for link in views()[0].links
        ]
        return "\n".join([f"digraph {json.dumps(attention.id or 'text')} {{", *links, "}\n"])

    def finish(self) -> str:
        """Nothing is left to say."""
        return ""


def received(item: AttentionMap, *, title: str, subtitle: str = "") -> Figure:
    """What each key receives from all queries, as bars."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.bar(range(len(item.key_tokens)), item.weights.mean(axis=(0, 1)).sum(axis=0))
    names = [token.text for token in item.key_tokens]
    axes.set_xticks(range(len(names)), names, rotation=90, parse_math=False)
    axes.set_title(f"{title}\n{subtitle}", parse_math=False)
    return figure
