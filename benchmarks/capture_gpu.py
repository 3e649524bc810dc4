"""Every head of a 7 B Llama in blocks, against a plain forward pass, on a GPU in one run.

Random weights in bfloat16, made on the device, so nothing is downloaded. For each length it prints
the median time of a plain SDPA forward pass and of one that also reads all 1,024 heads pooled to
256 × 256, their ratio, and the peak memory of both above the loaded model; it asserts nothing.

    python benchmarks/capture_gpu.py [TOKENS ...]      # 1024 4096 16384 131072
    python benchmarks/capture_gpu.py --toy             # a small shape, wherever there is room
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import AutoModel, LlamaConfig

from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.region import Region

ROUNDS = 3
AIM = 2.2
"""Times a plain forward pass at 131,072 tokens."""


@dataclass(frozen=True)
class Shape:
    """How large the model and its maps are."""

    layers: int
    heads: int
    head_size: int
    inner: int
    map_size: int
    lengths: tuple[int, ...]


FULL = Shape(32, 32, 128, 11_008, 256, (1024, 4096, 16_384, 131_072))
TOY = Shape(2, 4, 16, 96, 32, (128, 512))


def make(shape: Shape, device: torch.device) -> Any:
    """A model of that shape, on the device from the start."""
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=shape.heads * shape.head_size,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=max(shape.lengths),
    )
    with device:
        return AutoModel.from_config(config, dtype=torch.bfloat16).eval()


def measure(work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """The seconds that work takes, and its peak GiB above what was there; 0 GiB off a GPU."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if on_gpu else 0
    start = perf_counter()
    kept = work()
    if on_gpu:
        torch.cuda.synchronize()
    took = perf_counter() - start
    del kept
    peak = torch.cuda.max_memory_allocated() - before if on_gpu else 0
    return took, peak / 2**30


def compare(model: Any, shape: Shape, tokens: int, device: torch.device) -> None:
    """Print one line for one length, after a round of both that is not counted."""
    inputs = {"input_ids": torch.randint(0, 32_000, (1, tokens), device=device)}
    region = Region(max_size=shape.map_size, links=0)

    def plain() -> object:
        with torch.no_grad():
            return model(**inputs, use_cache=False)

    def pool_heads() -> object:
        return capture(model, inputs, {"causal": (tokens, tokens)}, region=region)

    rounds = [(measure(plain, device), measure(pool_heads, device)) for _ in range(1 + ROUNDS)][1:]
    forward = median(plain_run[0] for plain_run, _ in rounds)
    taken = median(pooled_run[0] for _, pooled_run in rounds)
    peaks = [max(row[place][1] for row in rounds) for place in (0, 1)]
    print(f"{tokens:9,}  {forward:8.3f} s {peaks[0]:7.2f} GiB  {taken:8.3f} s {peaks[1]:7.2f} GiB  "
          f"{taken / forward:5.2f} ×", flush=True)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Print the figures."""
    shape = TOY if "--toy" in arguments else FULL
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and shape is FULL:
        sys.exit("no GPU is at hand: --toy runs a small shape on the processor")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(
        f"{name}: {shape.layers} layers × {shape.heads} heads of size {shape.head_size}, ", end=""
    )
    print(f"bfloat16, maps of {shape.map_size}²; aim {AIM} × at 131,072 tokens")
    print("   tokens   plain forward            every head pooled        ratio")
    model = make(shape, device)
    lengths = [int(argument) for argument in arguments if argument.isdecimal()] or shape.lengths
    for tokens in lengths:
        compare(model, shape, tokens, device)


if __name__ == "__main__":
    main(sys.argv[1:])
