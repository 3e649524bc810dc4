"""How often a 95 % interval of a corpus covers the mean: 93.5 to 96.5 % with 30 texts and with 200.

Run it as a script. It draws texts from populations whose mean is known: distributions like those of
measures, and what the shipped model's heads measure on random sentences of different lengths. For
comparison it prints Student's t, percentiles of a bootstrap and its BCa (scipy, fewer trials).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from scipy import stats

from attnviz.analyses.heads import measure_heads
from attnviz.core.query import Query
from attnviz.features.heads.probes import WORDS
from attnviz.features.measures.intervals import intervals
from attnviz.models.pocket.translator import load_pocket

TRIALS, RESAMPLED, SENTENCES = 20_000, 600, 400
GOAL = 0.935, 0.965
DRAWN: dict[str, tuple[float, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]]] = {
    "share near 1, beta(8, 1)": (8 / 9, lambda draw, shape: draw.beta(8, 1, shape)),
    "share, beta(2, 5)": (2 / 7, lambda draw, shape: draw.beta(2, 5, shape)),
    "share near 0, beta(1, 20)": (1 / 21, lambda draw, shape: draw.beta(1, 20, shape)),
    "share near 0, beta(0.5, 8)": (0.5 / 8.5, lambda draw, shape: draw.beta(0.5, 8, shape)),
    "distance, gamma(2)": (2.0, lambda draw, shape: draw.gamma(2, 1, shape)),
    "span, log-normal": (np.exp(0.125), lambda draw, shape: np.exp(draw.normal(0, 0.5, shape))),
    "entropy, normal": (0.0, lambda draw, shape: draw.normal(size=shape)),
}


def ends_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The interval of each row of values."""
    mean = values.mean(axis=1)
    apart = values - mean[:, None]
    count = np.full(len(values), values.shape[1])
    return intervals(count, mean, (apart**2).sum(axis=1), (apart**3).sum(axis=1))


def students(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = stats.t.ppf(0.975, values.shape[1] - 1) * stats.sem(values, axis=1)
    return values.mean(axis=1) - half, values.mean(axis=1) + half


def bootstrap_ends(method: str) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    def ends(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        few = values[:RESAMPLED]
        found = stats.bootstrap((few,), np.mean, axis=1, n_resamples=999, method=method, batch=50)
        return found.confidence_interval.low, found.confidence_interval.high

    return ends


def measured_values() -> dict[str, np.ndarray]:
    """What heads measure on random sentences: a population of values for each measure and head."""
    generator, model = random.Random(0), load_pocket()
    found: dict[str, list[np.ndarray]] = {}
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(3, 25)))
             for _ in range(SENTENCES)]  # fmt: skip
    for attention in model.attend([Query(text) for text in texts]):
        for name, measure in measure_heads(attention.main, repeated=False).items():
            found.setdefault(name, []).append(measure.values.ravel())
    return {name: np.stack(values) for name, values in found.items() if len(values) == SENTENCES}


def line(name: str, size: int, values: np.ndarray, mean: float, *, compared: bool) -> float:
    """Print one line; answers the coverage."""
    ways = {"this": ends_of, "t": students}
    if compared:
        ways |= {"percentile": bootstrap_ends("percentile"), "BCa": bootstrap_ends("BCa")}
    covered = {}
    for way, ends in ways.items():
        low, high = ends(values)
        covered[way] = float(((low <= mean) & (mean <= high)).mean())
    told = "  ".join(f"{way} {share:.1%}" for way, share in covered.items())
    print(f"{size:4} texts  {name:30} {told}", flush=True)
    return covered["this"]


def main() -> None:
    """Print how often each population's mean is covered."""
    draw, found = np.random.default_rng(0), []
    for size in (30, 200):
        for name, (mean, values_of) in DRAWN.items():
            values = values_of(draw, (TRIALS, size))
            found.append(line(name, size, values, mean, compared=True))
        for name, population in measured_values().items():
            heads = population.shape[1]
            chosen = draw.integers(0, SENTENCES, (TRIALS // heads, size))
            values = np.moveaxis(population[chosen], 2, 0) - population.mean(axis=0)[:, None, None]
            values = values.reshape(-1, size)
            found.append(line(f"{name}, {heads} heads", size, values, 0.0, compared=False))
    inside = sum(GOAL[0] <= share <= GOAL[1] for share in found)
    print(f"{inside} of {len(found)} between {GOAL[0]:.1%} and {GOAL[1]:.1%}")


if __name__ == "__main__":
    main()
