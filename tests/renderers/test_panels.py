from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.figures.panels import panels
from tests.samples import ODD, self_map

WORDS = ["the", "cat", "sat", "on", "a", "mat"]


def lenses(words: list[str] = WORDS, below: int = 4) -> list[AttentionMap]:
    first, second = (
        replace(self_map(words, seed=seed), stream=name)
        for seed, name in enumerate(("raw", "rollout"))
    )
    row = AttentionMap(
        "gradient",
        (Token("→ mat .42", special=True),),
        first.key_tokens[:below],
        np.full((1, 1, 1, below), 1 / below),
        query_side="output",
        unit="share of relevance",
    )
    return [first, second, row]


def by_name(maps: list[AttentionMap]) -> dict[str, object]:
    figure = panels(maps, title="x")
    return {axes.get_label(): axes for axes in figure.axes if axes.get_label() in names(maps)}


def names(maps: list[AttentionMap]) -> list[str]:
    return [item.stream for item in maps]


def test_one_scale_holds_for_small_shares_too() -> None:
    maps = [item.with_weights(item.weights / 10) for item in lenses()[:2]]
    limits = {axes.images[0].get_clim() for axes in by_name(maps).values()}  # type: ignore[attr-defined]
    assert len(limits) == 1
    assert limits.pop()[1] < 0.5


@pytest.mark.parametrize("words", [["a"], list(ODD), [f"w{n}" for n in range(900)]])
@pytest.mark.slow
def test_any_tokens_of_any_number_are_drawn(words: list[str]) -> None:
    figure = panels(lenses(words, 1), title="x", subtitle="y")
    assert figure_bytes(figure, ".png").startswith(b"\x89PNG")


def test_an_output_alone_is_not_called_a_query() -> None:
    from attnviz.renderers.figures.heatmap import OUTPUT_AXES, heatmap

    row = lenses()[2]
    axes = heatmap(row, title="x").axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == OUTPUT_AXES
