"""Training runs made to be judged: one that collapses, one that cannot, one that does not learn.

`python -m tests.features.watch.health_runs 20` trains each kind with that many seeds and says
which verdicts its heads got.
"""

import sys
import tempfile
from collections import Counter
from math import cos, pi
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from attnviz.callbacks import Recorder
from attnviz.features.compare.report import History

TOKENS, LENGTH, SIZE, HEADS, STEPS = 12, 16, 32, 2, 240
KINDS = {
    "collapsing": {"scale": 120.0, "rate": 0.05, "warm_up": 0},
    "normalised": {"scale": 120.0, "normalise": True},
    "rate of 0": {"rate": 0.0},
    "normal": {},
}
"""What each kind is trained with."""
ALLOWED = {
    "collapsing": {"collapsed", "saturating", "sink formed"},
    "normalised": {"settled"},
    "rate of 0": {"uniform"},
    "normal": {"settled"},
}
"""The verdicts that its heads may have."""
NEEDED = {"collapsing": "collapsed", "normalised": "settled", "rate of 0": "uniform"}
NEEDED["normal"] = "settled"
"""The verdict that each of its heads must have."""


class Attend(nn.Module):
    """Attention with a residual around it."""

    def __init__(self, *, normalise: bool) -> None:
        super().__init__()
        self.norm, self.normalise = nn.LayerNorm(SIZE), normalise
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.gain = nn.Parameter(torch.ones(2, SIZE // HEADS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to each token what it attends to."""
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        if self.normalise:
            query, key = (
                functional.rms_norm(side, side.shape[-1:]) * gain
                for side, gain in zip((query, key), self.gain, strict=True)
            )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Neighbours(nn.Module):
    """Says at each place the tokens before and after it, which takes both heads."""

    def __init__(self, *, normalise: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, SIZE)
        self.places = nn.Embedding(LENGTH, SIZE)
        self.layers = nn.ModuleList([Attend(normalise=normalise)])
        self.head = nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, 2 * TOKENS))
        for part in self.modules():  # as GPT-2 begins
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores, shape (batch, length, 2, tokens)."""
        x = self.tokens(ids) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(x).unflatten(-1, (2, TOKENS))


def train(
    seed: int,
    folder: Path,
    *,
    scale: float = 1.0,
    rate: float = 0.005,
    warm_up: int = 20,
    normalise: bool = False,
) -> History:
    """The history of a run whose query and key weights begin `scale` times as large."""
    torch.manual_seed(seed)
    model = Neighbours(normalise=normalise)
    for layer in model.layers:
        layer.qkv.weight.data[: 2 * SIZE] *= scale
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    recorder = Recorder(model, torch.randint(TOKENS, (1, LENGTH)), folder, every=20, loggers=[])
    for step in range(STEPS):
        recorder.step(step)
        for group in optimizer.param_groups:
            warm = min((step + 1) / warm_up, 1.0) if warm_up else 1.0
            down = 1.0 if not warm_up else (1 + cos(pi * step / STEPS)) / 2
            group["lr"] = rate * warm * down
        ids = torch.randint(TOKENS, (32, LENGTH))
        wanted = torch.stack([ids[:, :-2], ids[:, 2:]], 2)
        loss = functional.cross_entropy(model(ids)[:, 1:-1].flatten(0, 2), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    recorder.finish()
    return recorder.study.report()


def is_right(kind: str, history: History) -> bool:
    """Whether each head has the verdict that it must have, and no other than it may have."""
    names = [one.name for one in history.verdicts]
    return names.count(NEEDED[kind]) == len(history.heads) == HEADS and {*names} <= ALLOWED[kind]


def main(seeds: int) -> None:
    """Train every kind with so many seeds, and print what their heads got."""
    torch.set_num_threads(1)
    for kind, options in KINDS.items():
        found, right = Counter[str](), 0
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                history = train(seed, Path(folder), **options)
            own = Counter(one.name for one in history.verdicts)
            found += own
            right += is_right(kind, history)
        print(f"{kind}: {right} of {seeds} seeds as they should be · heads {dict(found)}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
