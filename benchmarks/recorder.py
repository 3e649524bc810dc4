"""What sampling costs a training run: 100 steps at a size of 256, with samples every 100 steps.

`python benchmarks/recorder.py` prints what the recorder says, with a logger that takes pictures.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

from attnviz.callbacks import Recorder

SIZE, LENGTH, BATCH, STEPS = 256, 128, 16, 100


class Logger:
    """A logger that counts."""

    def __init__(self) -> None:
        self.pictures = 0

    def log(self, scalars: dict[str, float], picture: Path | None, step: int) -> None:
        """Count the pictures."""
        self.pictures += picture is not None


torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(SIZE, 4, 4 * SIZE, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters())
probe, logger = torch.randn(1, LENGTH, SIZE), Logger()
with tempfile.TemporaryDirectory() as folder:
    recorder = Recorder(model, probe, folder, every=100, loggers=logger)
    for step in range(STEPS):
        recorder.step(step)
        optimizer.zero_grad()
        model(torch.randn(BATCH, LENGTH, SIZE)).square().mean().backward()
        optimizer.step()
    recorder.finish()
print(f"{len(recorder.study.values)} samples, {logger.pictures} pictures")
