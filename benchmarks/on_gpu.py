"""What questions about a long prompt cost on a GPU, as ratios to the plain forward pass.

The questions of `long_prompts.py` to a model as wide as one of 7 B, with fewer layers and random
weights in bfloat16, made on the device: nothing is downloaded. It prints the device and the table,
with the most memory above the model, and stops before five minutes are over; it asserts nothing.

    python benchmarks/on_gpu.py [--tokens N …] [--layers N] [--heads N] [--only NAME …]
    python benchmarks/on_gpu.py --device cpu     # a small model and short texts, to try it
"""

from __future__ import annotations

import sys

import torch
from long_prompts import LENGTHS, Shape, ask

FULL = Shape(layers=8, heads=32, groups=8, size=128, dtype=torch.bfloat16)
SMALL, SHORT = Shape(layers=2, heads=4, groups=2, size=16), (200, 500)
SECONDS = 270
"""When no further question is asked."""

if __name__ == "__main__":
    tries = any(one.endswith("cpu") for one in sys.argv)
    ask(SMALL if tries else FULL, SHORT if tries else LENGTHS, "cuda", SECONDS)
