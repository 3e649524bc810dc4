"""What sampling costs a training run: steps with a sample in every hundred beside bare ones.

Run it as a script; it prints the ratio of both times, in turns, and asserts nothing.
`--logged` also draws the picture of all heads, as a run that has a logger does.
"""

from __future__ import annotations

import sys
import tempfile
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from attnviz import callbacks

LAYERS, HEADS, SIZE, LENGTH, BATCH, TOKENS = 4, 4, 128, 128, 8, 500
EVERY, STEPS, TURNS = 100, 100, 3


class Decoder(nn.Module):
    """A causal model of four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, SIZE)
        layer = nn.TransformerEncoderLayer(SIZE, HEADS, 4 * SIZE, batch_first=True)
        self.body = nn.TransformerEncoder(layer, LAYERS)
        self.out = nn.Linear(SIZE, TOKENS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, ids: Any) -> Any:
        return self.out(self.body(self.tokens(ids), mask=self.mask, is_causal=True))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Decoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    probe = torch.randint(TOKENS, (1, LENGTH))
    writer = SimpleNamespace(add_scalar=lambda *_: None, add_figure=draw_figure)
    loggers = writer if "--logged" in sys.argv else []

    def steps(recorder: Any, first: int) -> float:
        start = perf_counter()
        for step in range(first, first + STEPS):
            if recorder is not None:
                recorder.step(step)
            ids = torch.randint(TOKENS, (BATCH, LENGTH), device=device)
            found = model(ids)[:, :-1].flatten(0, 1)
            loss = nn.functional.cross_entropy(found, ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        return perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        recorder = callbacks.Recorder(model, probe, folder, every=EVERY, loggers=loggers)
        recorder.step(0)  # what is imported once is no part of a long run
        ratios = []
        for turn in range(1, TURNS + 1):
            bare, sampled = (steps(one, turn * STEPS) for one in (None, recorder))
            ratios.append(sampled / bare)
            start = perf_counter()
            recorder.step((TURNS + turn) * STEPS)
            alone = perf_counter() - start
            print(
                f"{STEPS} steps: bare {bare:.2f} s, sampled {sampled:.2f} s, ratio "
                f"{sampled / bare:.4f}; a sample alone {alone * 1e3:.0f} ms, "
                f"{alone / bare:.2%} of the bare steps",
                flush=True,
            )
        print(f"median ratio {median(ratios):.4f} on {device}")


def draw_figure(_: str, figure: Any, __: int) -> None:
    figure.canvas.draw()


if __name__ == "__main__":
    main()
