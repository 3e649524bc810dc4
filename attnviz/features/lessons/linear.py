"""Linear attention: its cost by length, measured on this machine, and what it remembers."""

import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attnviz.features.lessons.lesson import Curves, Lesson, check_range
from attnviz.mechanisms.dot_product import scaled, single_head
from attnviz.mechanisms.linear import delta_rule, linear, retention

SHORTEST, LONGEST = 64, 16384
REPEATS = 3
KEEP = 0.9
DRAWS = 8  # errors are means over this many sets of random pairs


def linear_lesson(length: int = 4096, size: int = 64, seed: int = 0) -> Lesson:
    """Standard against linear attention: time and memory as the length grows.

    One head of each runs in float32 on numpy over the same random queries, keys and values. Time
    is the shortest of three runs; memory is the peak of one run beyond its inputs.

    A row holds, for each length: seconds and bytes of both.
    """
    check_range("length", length, SHORTEST, LONGEST)
    random = np.random.default_rng(seed)
    lengths = [length >> halvings for halvings in range(16) if length >> halvings >= SHORTEST]
    lengths.reverse()
    readings = [*zip(*(_measure(random, positions, size) for positions in lengths), strict=True)]
    standard, short, standard_bytes, short_bytes = (column[-1] for column in readings)
    panels = tuple(
        Curves(
            heading,
            "positions",
            up,
            {
                name: (lengths, [value / unit for value in column])
                for name, column in zip(("standard", "linear"), columns, strict=True)
            },
            doubling=True,
            tenfold=True,
        )
        for heading, up, columns, unit in (
            ("time, shortest of three runs", "milliseconds", readings[:2], 1e-3),
            ("memory at its peak", "MiB", readings[2:], 2.0**20),
        )
    )
    return Lesson(
        f"linear · standard against linear attention, head size {size}, numpy on this machine",
        {
            "length": lengths,
            "standard_time_seconds": readings[0],
            "linear_time_seconds": readings[1],
            "standard_memory_bytes": readings[2],
            "linear_memory_bytes": readings[3],
        },
        (
            f"At {lengths[-1]} positions standard attention takes {standard / short:.3g} times the "
            f"time and {standard_bytes / short_bytes:.3g} times the memory of linear attention.",
            "Standard attention stores a weight for each pair: twice the length needs four times "
            "the memory. Linear attention stores two sums over the keys: twice the length needs "
            "twice the memory.",
            "The price: its weights come from a feature map, not from a softmax, and are less "
            "sharp.",
        ),
        "Katharopoulos 2020 (Transformers are RNNs), section 3.2.1",
        panels,
    )


def _measure(random: np.random.Generator, length: int, size: int) -> tuple[float, ...]:
    inputs = [random.standard_normal((length, size), dtype=np.float32) for _ in range(3)]
    runs = (partial(scaled, *inputs), partial(linear, *inputs, need_weights=False))
    return (*map(shortest_run, runs), *map(peak_bytes, runs))


def shortest_run(run: Callable[[], Any]) -> float:
    """Seconds of the shortest of three runs, after one that warms up."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(run: Callable[[], Any]) -> int:
    """The peak of memory during a run, in bytes beyond what was in use before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def delta_lesson(length: int = 64, size: int = 32, seed: int = 0) -> Lesson:
    """Linear attention forgets; the delta rule corrects what its state says.

    Random pairs of a key and a value are written into a state one after another, then the state is
    queried with each key. The error is the length of the difference from the value, divided by the
    length of the value: 0 is exact, 1 is as bad as an empty state. Softmax attention, which keeps
    every pair, is compared with them.

    A row holds, for each number of pairs: the mean errors over all of them, and the error of the
    delta rule for the newest pair.
    """
    check_range("length", length, 2, 1024)
    check_range("size", size, 2, 256)
    counts = [2**power for power in range(11) if 2**power <= length]
    errors = {count: _recall_errors(count, size, seed) for count in counts}
    at = max((count for count in counts if count <= size), default=counts[-1])
    ages, names = np.arange(at), list(errors[at])
    means = {name: [float(rules[name].mean()) for rules in errors.values()] for name in names}
    newest = [float(rules["delta rule"][0]) for rules in errors.values()]
    full = counts.index(at)
    return Lesson(
        f"delta · pairs kept in a state of {size} × {size} numbers, seed {seed}",
        {
            "pairs": counts,
            **{f"{name.replace(' ', '_')}_error": column for name, column in means.items()},
            "delta_newest_error": newest,
        },
        (
            f"Linear attention adds every value to one sum: with {at} pairs each answer contains "
            f"parts of all others, and the error is {means['linear'][full]:.2f}.",
            f"Retention keeps {KEEP:.0%} of the state at each step, so old pairs fade: the error "
            f"is {errors[at]['retention'][0]:.2f} for the newest and "
            f"{errors[at]['retention'][-1]:.2f} for the oldest.",
            "The delta rule first subtracts what the state already answers to a key: the newest "
            f"pair is exact ({newest[full]:.0e}), and the error over {at} pairs is "
            f"{means['delta rule'][full]:.2f}. Beyond {size} pairs no state of this size can hold "
            "all; only the softmax can, since it keeps every pair.",
        ),
        "Schlag 2021 (Linear transformers are secretly fast weight programmers), section 4; Yang "
        "2024 (DeltaNet), section 2",
        (
            Curves(
                "error by the number of pairs",
                "pairs written",
                "error",
                {name: (counts, column) for name, column in means.items()},
                doubling=True,
                top=2.0,
                level=(1.0, "an empty state"),
            ),
            Curves(
                f"error by age, {at} pairs written",
                "pairs written since",
                "error",
                {name: (ages, errors[at][name]) for name in names},
                top=2.0,
            ),
        ),
    )


def _recall_errors(count: int, size: int, seed: int) -> dict[str, Any]:
    """The error of each mechanism by the age of a pair, newest first."""
    random = np.random.default_rng(seed)
    key, value = random.standard_normal((2, DRAWS, count, size))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value /= np.linalg.norm(value, axis=-1, keepdims=True)
    # The queries come after the last pair, at positions whose own keys and values are zero.
    query, none = np.concatenate([key, key], axis=-2), np.zeros_like(key)
    keys, values = (np.concatenate([one, none], axis=-2) for one in (key, value))
    once = np.concatenate([np.ones((DRAWS, count, 1)), none[..., :1]], axis=-2)
    last = (np.arange(count) + 1)[:, None]
    outputs = {
        "linear": retention(query, keys, values, keep=np.ones(1), base=None)[0],
        "retention": retention(query, keys, values, keep=np.array([KEEP]), base=None)[0],
        "delta rule": delta_rule(query, keys, values, beta=once)[0] * size**0.5,
    }
    outputs["retention"][:, count:] /= KEEP**last  # undo what fades while the queries run
    answers = {name: one[:, count:] for name, one in outputs.items()}
    answers["softmax"] = single_head(40 * key, key, value)[0]
    return {
        name: np.linalg.norm(one - value, axis=-1).mean(axis=0)[::-1]
        for name, one in answers.items()
    }
