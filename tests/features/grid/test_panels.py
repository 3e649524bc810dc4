from dataclasses import replace

import numpy as np
import pytest

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.features.grid.picture import panels
from attnviz.renderers.figures.figure import figure_bytes
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


def test_panels_end_at_their_largest_value():
    first, second, row = lenses()
    high = second.with_weights(0.9 + second.weights / 10)
    found = by_name([first, high, row])
    limits = {name: axes.images[0].get_clim() for name, axes in found.items()}  # type: ignore[attr-defined]
    assert [limits[name][0] for name in ("raw", "gradient")] == pytest.approx([0, 0])
    assert limits["rollout"][0] >= 0.89
    for name, item in zip(limits, (first, high, row), strict=True):
        assert item.weights.max() <= limits[name][1] + 1e-6 <= 1.1 * item.weights.max()
    assert [axes.get_title() for axes in found.values()] == [*found]  # type: ignore[attr-defined]
    from attnviz.renderers.figures.heatmap import OUTPUT_AXES, heatmap

    row = lenses()[2]
    axes = heatmap(row, title="x").axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == OUTPUT_AXES


@pytest.mark.parametrize("words", [["a"], list(ODD), [f"w{n}" for n in range(900)]])
@pytest.mark.slow
def test_any_tokens_of_any_number_are_drawn(words):
    figure = panels(lenses(words, 1), title="x", subtitle="y")
    assert figure_bytes(figure, ".png").startswith(b"\x89PNG")


def test_a_page_of_one_panel_is_no_wider_than_it():
    one, two = (panels(lenses()[:count], title="x").get_figwidth() for count in (1, 2))
    assert one < 0.75 * two
