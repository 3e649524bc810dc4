"""One label for a whole text, as for its sentiment."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.text_encoder import TextEncoder


def mean_of_real(hidden: Tensor, real: Tensor) -> Tensor:
    """The mean over the positions that are no padding; zeros where all of them are.

    Args:
        hidden: shape (…, positions, size).
        real: boolean (…, positions), False for padding.

    Returns:
        Shape (…, size).
    """
    kept = hidden.masked_fill(~real[..., None], 0.0)
    return kept.sum(dim=-2) / real.sum(dim=-1, keepdim=True).clamp(min=1)


class SequenceClassifier(nn.Module):
    """A text encoder whose mean over the real positions becomes label logits.

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
        labels: int = 2,
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
        """Logits of every label for each text.

        Args:
            tokens: token numbers (…, positions), padding at the end.
            need_weights: give the weights back too.

        Returns:
            logits (…, labels), and for each block weights (…, heads, positions, positions) or None.
        """
        hidden, weights = self.encoder(tokens, need_weights=need_weights)
        return self.output(mean_of_real(hidden, self.encoder.real(tokens))), weights
