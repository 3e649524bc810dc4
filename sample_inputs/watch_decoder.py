"""A small decoder, written by hand, learns to spell words backwards while one watches.

Plain PyTorch that knows nothing of attnviz: `attnviz watch --html page.html -- watch_decoder.py`
shows where it looks, and how it comes to that.
"""

import argparse
import math

import torch
from torch import nn

LETTERS = "abcdefgh>"


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x):
        """From (batch, length, size) to the same."""
        batch, length, size = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(size // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, size))


class Decoder(nn.Module):
    """One layer of it, and a guess of the next letter at each place."""

    def __init__(self, length, size=32, heads=2):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), size), nn.Embedding(length, size)
        self.attn, self.norm = Attention(size, heads), nn.LayerNorm(size)
        self.head = nn.Linear(size, len(LETTERS))

    def forward(self, letters):
        """From (batch, length) to (batch, length, letters of the alphabet)."""
        x = self.letters(letters) + self.places.weight
        return self.head(self.norm(x + self.attn(x)))


def words(count, letters):
    """Words, a >, and the words backwards: "bad>dab"."""
    word = torch.randint(len(LETTERS) - 1, (count, letters))
    return torch.cat([word, torch.full((count, 1), len(LETTERS) - 1), word.flip(1)], 1)


parser = argparse.ArgumentParser()
parser.add_argument("--letters", type=int, default=6)
parser.add_argument("--steps", type=int, default=100)
asked = parser.parse_args()

torch.manual_seed(0)
model = Decoder(2 * asked.letters)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(asked.steps):
    batch = words(64, asked.letters)
    guess = model(batch[:, :-1])[:, asked.letters :]
    loss = nn.functional.cross_entropy(guess.flatten(0, 1), batch[:, asked.letters + 1 :].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

test = words(1000, asked.letters)
right = model(test[:, :-1])[:, asked.letters :].argmax(-1) == test[:, asked.letters + 1 :]
print(f"{right.float().mean():.0%} of the letters are right")
