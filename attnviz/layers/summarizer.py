"""A small encoder–decoder that writes a short text about a long one (Vaswani 2017)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from attnviz.layers.decoder_block import DecoderBlock
from attnviz.layers.sinusoidal_positions import SinusoidalPositions
from attnviz.layers.text_encoder import TextEncoder


class SummarizerWeights(NamedTuple):
    """Weights of all three attentions, one matrix a layer.

    Attributes:
        source: (…, heads, sources, sources).
        target: (…, heads, targets, targets), zero above the diagonal.
        cross: (…, heads, targets, sources): from what each summary position was written.
    """

    source: tuple[Tensor, ...]
    target: tuple[Tensor, ...]
    cross: tuple[Tensor, ...]


class Summarizer(nn.Module):
    """Source self-attention, then decoder blocks over it, and logits over the vocabulary.

    Source and target share the vocabulary and its embedding.

    Args:
        vocabulary_size: how many token numbers there are.
        size: features of a position.
        heads: how many a block; must divide the size.
        layers: how many blocks, in the encoder and again in the decoder.
        dropout: share dropped in training, from 0 to 1.
        padding: the token number that stands for nothing.

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
        self.encoder = TextEncoder(
            vocabulary_size, size, heads, layers, dropout=dropout, padding=padding
        )
        self.positions = SinusoidalPositions(size, dropout=dropout)
        self.blocks = nn.ModuleList(
            DecoderBlock(size, heads, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(size)
        self.output = nn.Linear(size, vocabulary_size)

    def forward(
        self, source: Tensor, target: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, SummarizerWeights | None]:
        """Logits of the token that follows each target position.

        Args:
            source: token numbers (…, sources), padding at the end.
            target: token numbers written so far (…, targets), padding at the end.
            need_weights: give the weights back too.

        Returns:
            logits (…, targets, vocabulary size); none of them depends on a later target. And the
            weights of all three attentions, or None.
        """
        memory, over_source = self.encoder(source, need_weights=need_weights)
        hidden = self.positions(self.encoder.embedding(target))
        pairs = []
        for block in self.blocks:
            hidden, weights = block(
                hidden,
                memory,
                target_mask=self.encoder.real(target),
                source_mask=self.encoder.real(source),
                need_weights=need_weights,
            )
            pairs.append(weights)
        logits = self.output(self.norm(hidden))
        if not need_weights:
            return logits, None
        over_target, crossed = zip(*pairs, strict=True)
        return logits, SummarizerWeights(over_source, over_target, crossed)
