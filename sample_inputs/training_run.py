"""A small transformer learns to repeat the token before, and attnviz samples its attention.

`python training_run.py samples` takes seconds; then `attnviz history samples` shows what its heads
became. With a second argument it stops at that step.
"""

import sys

import torch
from torch import nn

from attnviz import callbacks

TOKENS, LENGTH, SIZE = 16, 12, 32


class Repeater(nn.Module):
    """Says at each place the token that stands before it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, SIZE)
        self.positions = nn.Parameter(torch.randn(LENGTH, SIZE))
        layer = nn.TransformerEncoderLayer(SIZE, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(SIZE, TOKENS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores, shape (batch, length, tokens)."""
        return self.out(self.encoder(self.tokens(ids) + self.positions))


torch.set_num_threads(1)
torch.manual_seed(0)
folder = sys.argv[1]
last = int(sys.argv[2]) if len(sys.argv) > 2 else 200
model = Repeater()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
probe = torch.randint(TOKENS, (1, LENGTH))
names = [chr(ord("a") + int(token)) for token in probe[0]]
recorder = callbacks.Recorder(model, probe, folder, every=25, tokens=names)
for step in range(last + 1):
    recorder.step(step)
    ids = torch.randint(TOKENS, (32, LENGTH))
    loss = nn.functional.cross_entropy(model(ids)[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
