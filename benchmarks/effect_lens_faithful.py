"""How well the effect lens ranks links: its estimates against cutting each link, pocket model.

Run it as a script on pairs that the model was not trained on, one `English<TAB>French` a line; it
prints figures and asserts nothing. Of each pair, stream and head links of some weight are drawn by
chance, the same at each run.

    python benchmarks/effect_lens_faithful.py PAIRS [COUNT [LINKS]]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import LITTLE_EFFECT, MUCH_WEIGHT
from attnviz.core.effects import Intervention, LinkAt, effects_of
from attnviz.core.query import Query
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.effect import effects
from attnviz.features.measures.intervals import rank_correlation
from attnviz.models import Source
from attnviz.models.pocket.translator import load_pocket

LEAST_WEIGHT = 0.02
DRAWN = 60
"""Links of each stream of a pair at most, where no number is given."""

Links = NDArray[np.float64]
"""Of each link its weight, its estimated effect and its exact one, shape (links, 3)."""


def links_of(source: Source, query: Query, drawn: int, seed: int = 0) -> dict[str, Links]:
    """Links of each stream, drawn of those with a weight and with a value."""
    experiment = open_experiment(source, query)
    generator, found = np.random.default_rng(seed), {}
    for item, slopes in zip(
        experiment.attention.maps, explained_by(experiment).gradients, strict=True
    ):
        estimates = effects(item.weights, slopes)
        cells = np.argwhere((item.weights > LEAST_WEIGHT) & np.isfinite(estimates))
        cells = generator.permutation(cells)[:drawn]
        changes = [
            Intervention(links=(LinkAt(item.stream, query_at, key_at, item.layers[layer], head),))
            for layer, head, query_at, key_at in cells.tolist()
        ]
        exact = effects_of(experiment, changes).sum(axis=1)
        places = tuple(cells.T)
        found[item.stream] = np.stack([item.weights[places], estimates[places], exact], axis=1)
    return found


def figures(links: Links) -> str:
    """Rank correlations of a stream's links, and how many of much weight are idle."""
    weight, estimate, exact = links[np.isfinite(links).all(axis=1)].T
    size = abs(exact)
    heavy = weight > MUCH_WEIGHT
    signed, sizes, weights = (
        rank_correlation(*pair)
        for pair in ((estimate, exact), (abs(estimate), size), (weight, size))
    )
    return (
        f"{len(weight):6} links  estimate {signed:.3f}, by size {sizes:.3f}; weight {weights:.3f}; "
        f"{heavy.sum()} above {MUCH_WEIGHT}, idle {(size[heavy] < LITTLE_EFFECT).mean():.1%}"
    )


def main() -> None:
    """Print the figures of each stream and of all."""
    count, drawn = ([*map(int, sys.argv[2:]), 0, 0])[:2]
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines[: count or None]]
    source = load_pocket()
    streams: dict[str, list[Links]] = {}
    for number, (english, french, *_) in enumerate(pairs):
        found = links_of(source, Query(english, french, "cross"), drawn or DRAWN, number)
        for stream, links in found.items():
            streams.setdefault(stream, []).append(links)
    print(f"{len(pairs)} pairs; rank correlation (Spearman) with the exact effect of:")
    for stream, several in streams.items():
        print(f"{stream:8} {figures(np.concatenate(several))}")
    print(f"{'all':8} {figures(np.concatenate([one for own in streams.values() for one in own]))}")


if __name__ == "__main__":
    main()
