"""How cost grows with the length of a text: 1 to 64 thousand tokens, against a plain forward pass.

A Llama of 2 layers × 2 heads of size 64 with random weights, float32 on the CPU. Each length is run
plain, in 256 × 256 blocks, with each head's 20 exact strongest links, and with all measures of the
heads on the last 1,024 tokens, in turns. Run it as a script; it prints the processor, and for each
length the seconds of the plain pass, ratios of the processor's own time, and the memory above the
loaded model. It asserts nothing.

    python benchmarks/growth.py [MOST_THOUSANDS] [ROUNDS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from capture_length import measure
from transformers import AutoModel, LlamaConfig

from attnviz.analyses.heads import measure_heads
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions
from attnviz.models.hugging_face.capture.region import Region

BLOCKS, LINKS, WINDOW = 256, 20, 1024
LONG = 32
"""Thousands of tokens from which one round, of minutes, is enough."""


def make(tokens: int) -> Any:
    """A model that reads so many tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=tokens,
    )
    return AutoModel.from_config(config).eval()  # type: ignore[no-untyped-call]


def runs_of(model: Any, tokens: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    inputs = {"input_ids": torch.randint(0, 1000, (1, tokens))}
    sides = {"causal": (tokens, tokens)}
    ignored = {"causal": IgnoredPositions(keys=(0,), itself=True)}

    def plain() -> object:
        with torch.no_grad():
            return model(**inputs, use_cache=False)

    def read(region: Region) -> Any:
        return capture(model, inputs, sides, region=region, exclusions=ignored)

    def measures() -> object:
        (found,) = read(Region(window=(tokens - WINDOW, tokens - 1)))
        names = tuple(Token(str(place)) for place in range(WINDOW))
        heads = tuple(map(str, range(found.weights.shape[1])))
        item = AttentionMap("causal", names, names, found.weights, found.layers, heads)
        return measure_heads(item, repeated=False)

    return {
        "plain": plain,
        "blocks": lambda: read(Region(max_size=BLOCKS, links=0)),
        "and links": lambda: read(Region(max_size=BLOCKS, links=LINKS)),
        "measures": measures,
    }


def main(most: int = 64, rounds: int = 3) -> None:
    """Print a line for each length."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")
    print(f"{name}, {torch.get_num_threads()} threads, median of {rounds} rounds")
    length = 1
    while length <= most:
        runs = runs_of(make(1024 * length), 1024 * length)
        for work in runs.values() if length < LONG else ():
            work()  # not counted
        turns = range(rounds if length < LONG else 1)
        found = [{name: measure(work) for name, work in runs.items()} for _ in turns]
        ratios = (
            f"{name} {median(row[name][1] / row['plain'][1] for row in found):.2f} × "
            f"{max(row[name][2] for row in found):.0f} MiB"
            for name in runs
            if name != "plain"
        )
        memory = max(row["plain"][2] for row in found)
        took = median(row["plain"][1] for row in found)
        print(f"{length:3}k  {took:7.2f} s {memory:.0f} MiB  {'  '.join(ratios)}", flush=True)
        length *= 2


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
