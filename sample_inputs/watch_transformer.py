"""torch's own nn.Transformer learns to swap the halves of a row of digits.

Plain PyTorch that knows nothing of attnviz: `attnviz watch --html page.html --
watch_transformer.py` shows where its encoder, its decoder and the attention between them look.
"""

import torch
from torch import nn

DIGITS, LENGTH, SIZE = 10, 8, 32


class Swap(nn.Module):
    """An encoder, a decoder and a guess of the next digit."""

    def __init__(self):
        super().__init__()
        self.digits = nn.Embedding(DIGITS + 1, SIZE)  # the last begins what is written
        self.places = nn.Embedding(LENGTH, SIZE)
        self.transformer = nn.Transformer(SIZE, 2, 1, 1, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(SIZE, DIGITS)

    def forward(self, source, target):
        """From two rows of digits, each (batch, length), to (batch, length, digits)."""
        source, target = (self.digits(row) + self.places.weight for row in (source, target))
        later = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.transformer(source, target, tgt_mask=later, tgt_is_causal=True))


torch.manual_seed(0)
model = Swap()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
begin = torch.full((64, 1), DIGITS)
for _ in range(80):
    source = torch.randint(DIGITS, (64, LENGTH))
    wanted = source.roll(LENGTH // 2, 1)
    guess = model(source, torch.cat([begin, wanted[:, :-1]], 1))
    loss = nn.functional.cross_entropy(guess.flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = (guess.argmax(-1) == wanted).float().mean()
print("it has learned to swap" if right > 0.9 else "it has learned nothing")
