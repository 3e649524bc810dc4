"""A label for every token, as for named entities."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.text_encoder import TextEncoder


class TokenClassifier(nn.Module):
    """A text encoder with a linear map from each position to label logits.

    Args:
        vocabulary_size: how many token numbers there are.
        labels: how many labels there are.
        size: features of a position.
        heads: how many a block; must divide the size.
        layers: how many blocks.
        dropout: share dropped in training, from 0 to 1.
        padding: the token number that stands for nothing.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self,
        vocabulary_size: int,
        labels: int,
        size: int = 128,
        heads: int = 4,
        layers: int = 2,
        *,
        dropout: float = 0.1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = TextEncoder(
            vocabulary_size, size, heads, layers, dropout=dropout, padding=padding
        )
        self.output = nn.Linear(size, labels)

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Logits of every label at every token.

        Args:
            tokens: token numbers (…, positions), padding at the end.
            need_weights: give the weights back too.

        Returns:
            logits (…, positions, labels); those of padding mean nothing, so leave them out of a
            loss. And for each block weights (…, heads, positions, positions), or None.
        """
        hidden, weights = self.encoder(tokens, need_weights=need_weights)
        return self.output(hidden), weights
