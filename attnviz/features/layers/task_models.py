"""Small task models: a text encoder, classifiers of tokens and of texts, and a summarizer."""

from typing import NamedTuple

from torch import Tensor, nn

from attnviz.features.layers.blocks import DecoderBlock, EncoderBlock, SinusoidalPositions


class TextEncoder(nn.Module):
    """Embedding, sinusoidal positions and encoder blocks, normalised at the end.

    Args:
        layers: how many blocks.
        padding: the token number of padding, which no token attends to.
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
        """True where a token is no padding."""
        return tokens != self.padding

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The vectors (…, positions, size) of token numbers (…, positions), padding at the end.

        Vectors of padding mean nothing. The weights are those of each block.
        """
        real = self.real(tokens)
        states = self.positions(self.embedding(tokens))
        matrices = []
        for block in self.blocks:
            states, weights = block(states, key_mask=real, need_weights=need_weights)
            matrices.append(weights)
        return self.norm(states), tuple(matrices) if need_weights else None


class _Classifier(nn.Module):
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


class TokenClassifier(_Classifier):
    """A `TextEncoder` with a linear map from each position to label logits."""

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Logits (…, positions, labels) of tokens (…, positions), padding at the end.

        Leave the logits of padding out of a loss. The weights are those of each block.
        """
        states, weights = self.encoder(tokens, need_weights=need_weights)
        return self.output(states), weights


def mean_of_real(states: Tensor, real: Tensor) -> Tensor:
    """The mean (…, size) of vectors (…, positions, size) where they are real; else zeros."""
    real_states = states.masked_fill(~real[..., None], 0.0)
    return real_states.sum(dim=-2) / real.sum(dim=-1, keepdim=True).clamp(min=1)


class SequenceClassifier(_Classifier):
    """A `TextEncoder` whose mean over the real positions becomes label logits."""

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Logits (…, labels) of texts of tokens (…, positions), and each block's weights."""
        states, weights = self.encoder(tokens, need_weights=need_weights)
        return self.output(mean_of_real(states, self.encoder.real(tokens))), weights


class SummarizerWeights(NamedTuple):
    """Weights of all three attentions, one matrix a layer."""

    source: tuple[Tensor, ...]  # (…, heads, sources, sources)
    target: tuple[Tensor, ...]  # (…, heads, targets, targets), zero above the diagonal
    cross: tuple[Tensor, ...]  # (…, heads, targets, sources)


class Summarizer(nn.Module):
    """Source self-attention, then decoder blocks over it, and logits over the vocabulary.

    Source and target share the vocabulary and its embedding. The options are those of
    `TextEncoder`, with as many layers in the decoder as in the encoder (Vaswani 2017).
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
        """Logits (…, targets, vocabulary size) of the token after each target position.

        Source (…, sources) and target (…, targets), written so far, are token numbers with padding
        at the end. No logit depends on a later target.
        """
        memory, over_source = self.encoder(source, need_weights=need_weights)
        states = self.positions(self.encoder.embedding(target))
        pairs = []
        for block in self.blocks:
            states, weights = block(
                states,
                memory,
                target_mask=self.encoder.real(target),
                source_mask=self.encoder.real(source),
                need_weights=need_weights,
            )
            pairs.append(weights)
        logits = self.output(self.norm(states))
        if not need_weights:
            return logits, None
        over_target, over_memory = zip(*pairs, strict=True)
        return logits, SummarizerWeights(over_source, over_target, over_memory)
