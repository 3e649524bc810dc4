"""Every head of a long text, pooled, against a plain forward pass, side by side in one run.

A Llama of 6 layers × 12 heads of size 32 with random weights, float32 on the CPU; and a BERT of the
same size, whose weights are all alike, so that no row can be left out of the search for the
strongest links: its worst case. Run it as a script; it prints times, their ratios, the ratios of
the processor's own time (which neighbours hardly change) and the memory above the loaded model, and
asserts nothing.

    python benchmarks/capture_length.py [TOKENS] [ROUNDS]
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import torch
from transformers import AutoModel, BertConfig, LlamaConfig

from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions
from attnviz.models.hugging_face.capture.region import Region

LAYERS, HEADS, HEAD_SIZE = 6, 12, 32
SIZES = (128, 256)
AIMS = {"llama": (2.0, 2.2), "bert": (2.3, 2.5)}
"""Times the plain pass, without and with the strongest links."""
MEMORY_AIM = 150
"""MiB above the loaded model."""


def make(kind: Any, tokens: int) -> Any:
    """A model, with values as small as training leaves them."""
    torch.manual_seed(0)
    size = HEADS * HEAD_SIZE
    config = kind(
        vocab_size=1000,
        hidden_size=size,
        intermediate_size=8 * size // 3,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=tokens,
    )
    return AutoModel.from_config(config).eval()


def resident() -> float:
    """MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def measure(work: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds that work takes, those of all processors, and the most MiB above what was there."""
    before, peak, running = resident(), [0.0], True

    def watch() -> None:
        while running:
            peak[0] = max(peak[0], resident() - before)
            sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, used = perf_counter(), process_time()
    try:
        work()
        took, used = perf_counter() - start, process_time() - used
    finally:
        running = False
        watcher.join()
    return took, used, peak[0]


def main(tokens: int = 4096, rounds: int = 3) -> None:
    """Print the figures."""
    print(f"{tokens:,} tokens, {LAYERS} layers × {HEADS} heads of size {HEAD_SIZE}, "
          f"{torch.get_num_threads()} threads, median of {rounds} rounds")  # fmt: skip
    compare(
        "llama", make(LlamaConfig, tokens), tokens, rounds, IgnoredPositions(keys=(0,), itself=True)
    )
    ends = (0, tokens - 1)
    compare(
        "bert", make(BertConfig, tokens), tokens, rounds, IgnoredPositions(ends, ends, itself=True)
    )


def compare(name: str, model: Any, tokens: int, rounds: int, left_out: IgnoredPositions) -> None:
    """Print one model's figures."""
    stream = "causal" if name == "llama" else "self"
    inputs = {"input_ids": torch.randint(0, 1000, (1, tokens))}
    sides, ignored = {stream: (tokens, tokens)}, {stream: left_out}

    def plain() -> object:
        with torch.no_grad():
            return model(**inputs, use_cache=False)

    def pool_heads(size: int, links: int = 0) -> Callable[[], object]:
        region = Region(max_size=size, links=links)
        return lambda: capture(model, inputs, sides, region=region, exclusions=ignored)

    runs = {"plain": plain, **{f"{size} × {size}": pool_heads(size) for size in SIZES}}
    runs |= {f"{size} × {size} and links": pool_heads(size, links=20) for size in SIZES}
    plain()
    found = [{name: measure(work) for name, work in runs.items()} for _ in range(rounds)]
    for run in runs:
        took = median(row[run][0] for row in found)
        ratio = median(row[run][0] / row["plain"][0] for row in found)
        used = median(row[run][1] / row["plain"][1] for row in found)
        memory = max(row[run][2] for row in found)
        aim = "" if run == "plain" else f"  (aim {AIMS[name]['links' in run]}, {MEMORY_AIM} MiB)"
        print(f"{name:6} {run:20} {took:6.2f} s  {ratio:5.2f} ×  {used:5.2f} × processor time  "
              f"{memory:5.0f} MiB{aim}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
