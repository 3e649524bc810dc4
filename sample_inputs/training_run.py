"""A small transformer learns to repeat the token before, and attnviz samples its attention.

`python training_run.py samples` takes seconds; then `attnviz compare samples` shows what its heads
became. With a second argument it stops at that step. With `hot` as the third it goes wrong: queries
and keys begin twelve times too large, and the learning rate is three times as high. With `clipped`
the same run is kept in check: where a head's largest score is over 8, its query and key weights are
made smaller by as much. With 20 other seeds `hot` learns nothing 20 times, and `clipped` learns 20
times.
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
mode = sys.argv[3] if len(sys.argv) > 3 else ""
model = Repeater()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2 if mode else 3e-3)
if mode:
    for layer in model.encoder.layers:
        layer.self_attn.in_proj_weight.data[: 2 * SIZE] *= 12
probe = torch.randint(TOKENS, (1, LENGTH))
names = [chr(ord("a") + int(token)) for token in probe[0]]
recorder = callbacks.Recorder(model, probe, folder, every=5 if mode else 25, tokens=names)


def clip(step: int, most: float = 8.0) -> None:
    """Scale each head's queries and keys so that its largest score was at most that."""
    for (_, path, head), values in recorder.study.values.get(step, {}).items():
        if values["score-max"] > most:
            attention = model.get_submodule(path)
            size = SIZE // attention.num_heads
            for side in (0, SIZE):
                rows = slice(side + int(head) * size, side + (int(head) + 1) * size)
                for given in (attention.in_proj_weight, attention.in_proj_bias):
                    given.data[rows] *= (most / values["score-max"]) ** 0.5


for step in range(last + 1):
    recorder.step(step)
    if mode == "clipped":
        clip(step)
    ids = torch.randint(TOKENS, (32, LENGTH))
    loss = nn.functional.cross_entropy(model(ids)[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
recorder.finish()
if mode:
    print("it has learned to repeat" if loss.item() < 1 else "it has learned nothing")
