"""Token numbers into vectors that know their context: the trunk of the small task models."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.encoder_block import EncoderBlock
from attnviz.layers.sinusoidal_positions import SinusoidalPositions


class TextEncoder(nn.Module):
    """Embedding, sinusoidal positions and encoder blocks, normalised at the end.

    Args:
        vocabulary_size: how many token numbers there are.
        size: features of a position.
        heads: how many a block; must divide the size.
        layers: how many blocks.
        dropout: share dropped in training, from 0 to 1.
        padding: the token number that stands for nothing and is never looked at.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self,
        vocabulary_size: int,
        size: int = 128,
        heads: int = 4,
        layers: int = 2,
        *,
        dropout: float = 0.1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = nn.Embedding(vocabulary_size, size, padding_idx=padding)
        self.positions = SinusoidalPositions(size, dropout=dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(size, heads, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(size)

    def real(self, tokens: Tensor) -> Tensor:
        """True where a token is no padding, in the shape of the token numbers."""
        return tokens != self.padding

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Each token's vector.

        Args:
            tokens: token numbers (…, positions), padding at the end.
            need_weights: give the weights back too.

        Returns:
            vectors (…, positions, size); those of padding mean nothing. And for each block weights
            (…, heads, positions, positions), or None.
        """
        real = self.real(tokens)
        hidden = self.positions(self.embedding(tokens))
        collected = []
        for block in self.blocks:
            hidden, weights = block(hidden, key_mask=real, need_weights=need_weights)
            collected.append(weights)
        return self.norm(hidden), tuple(collected) if need_weights else None
