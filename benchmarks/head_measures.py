"""Every measure of 144 heads at 512 tokens, in passes of one entropy, in turns in one run.

Run it as a script; it prints times, their ratios, by the clock and by the processor's own time
(which neighbours hardly change), and memory beside those of rollout and flow, and asserts nothing.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time

import numpy as np

from attnviz.analyses.heads import measure_heads
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.features.lenses.rollout import flow, rollout

LAYERS, HEADS, LENGTH, ROUNDS = 12, 12, 512, 9
FLOW_LENGTH = 12


def draw_map(length: int, causal: bool) -> AttentionMap:
    """Softmax over random scores; words repeat as in a text, with marks and special tokens."""
    generator = np.random.default_rng(0)
    scores = generator.normal(scale=2, size=(LAYERS, HEADS, length, length)).astype(np.float32)
    if causal:
        scores[..., ~np.tri(length, dtype=bool)] = -np.inf
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    words = [f"w{number}" for number in generator.zipf(1.5, size=length).clip(max=200)]
    words[9::12] = [","] * len(words[9::12])
    tokens = (Token("[CLS]", special=True), *map(Token, words[1:-1]), Token("[SEP]", special=True))
    return AttentionMap("causal" if causal else "self", tokens, tokens, weights)


def seconds(work: Callable[[], object], clock: Callable[[], float] = perf_counter) -> float:
    """How long one call takes."""
    start = clock()
    work()
    return clock() - start


def entropy_pass(weights: np.ndarray) -> np.ndarray:
    """What every measure together is held against."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return -(weights * np.log(weights)).sum(-1)


def peak_of(work: Callable[[], object]) -> int:
    """The most memory that one call holds at a time, in bytes."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    """Measure encoders and decoders in turns, then memory, then the lenses."""
    for causal in (False, True):
        item = draw_map(LENGTH, causal)
        weights = item.weights
        works = (partial(measure_heads, item), partial(entropy_pass, weights))
        print(f"{item.stream}: {LAYERS * HEADS} heads × {LENGTH} tokens, "
              f"{len(measure_heads(item))} measures")  # fmt: skip
        for name, clock in (("clock", perf_counter), ("processor", process_time)):
            times = [[seconds(work, clock) for work in works] for _ in range(ROUNDS + 1)]
            ours, one = (median(column) for column in zip(*times[1:], strict=True))
            ratio = median(all_of / entropy for all_of, entropy in times[1:])
            print(f"  {name:14} {ours:.3f} s / {one:.3f} s = {ratio:.2f}  (target: at most 3)")
        memory = peak_of(works[0]) / weights.nbytes
        print(f"  memory beside  {memory:.2f} × the map  (target: at most 4 with the map)")
    print(f"lenses over the same {LAYERS} layers × {HEADS} heads")
    for name, lens, length in (("rollout", rollout, LENGTH), ("flow", flow, FLOW_LENGTH)):
        text = Attention((draw_map(length, True),), Provenance("file", "random"))
        print(f"  {name}, {length} tokens".ljust(24), f"{seconds(partial(lens, text)):.3f} s")


if __name__ == "__main__":
    main()
