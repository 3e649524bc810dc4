"""Blocks of transformers and their parts: positions, feed-forward, patches, encoder, decoder."""

import torch
from torch import Tensor, nn

from attnviz.core.errors import InputError, UsageError
from attnviz.features.layers.attention import Attended, Mask, MultiHeadAttention
from attnviz.mechanisms.relative import sinusoidal_positions


class SinusoidalPositions(nn.Module):
    """The inputs plus sinusoids of their positions, nothing learned (Vaswani 2017, section 3.5)."""

    table: Tensor

    def __init__(self, size: int, length: int = 512, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = size
        self.dropout = nn.Dropout(dropout)
        table = torch.from_numpy(sinusoidal_positions(length, size))
        self.register_buffer("table", table, persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs (…, positions, size) plus their positions' waves."""
        positions = inputs.shape[-2]
        if positions > len(self.table):
            longer = torch.from_numpy(sinusoidal_positions(positions, self.size))
            self.table = longer.to(self.table)
        total: Tensor = self.dropout(inputs + self.table[:positions].to(inputs))
        return total


class FeedForward(nn.Sequential):
    """Two linear maps with a GELU between, for each position alone (Vaswani 2017, section 3.3)."""

    def __init__(self, size: int, hidden_size: int | None = None, *, dropout: float = 0.0) -> None:
        hidden_size = hidden_size or 4 * size
        super().__init__(
            nn.Linear(size, hidden_size),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size, size),
            nn.Dropout(dropout),
        )


class PatchEmbedding(nn.Module):
    """Square patches behind a class token, with learned positions (Dosovitskiy 2020, section 3.1).

    Args:
        image_size: pixels on each side of the image.
        patch_size: pixels on each side of a patch; must divide the image's.
        channels: colours of a pixel.
        size: features of a position.

    Raises:
        UsageError: patches that do not fill the image.
    """

    def __init__(
        self, image_size: int = 224, patch_size: int = 16, channels: int = 3, size: int = 768
    ) -> None:
        super().__init__()
        if patch_size < 1 or image_size % patch_size:
            raise UsageError(
                f"patches of {patch_size} pixels do not fill an image of {image_size} pixels: "
                "choose a patch size that divides the image's"
            )
        self.image_shape = (channels, image_size, image_size)
        self.patch_size = patch_size
        self.side = image_size // patch_size
        self.projection = nn.Linear(channels * patch_size**2, size)
        self.class_token = nn.Parameter(torch.zeros(size))
        self.positions = nn.Parameter(torch.empty(self.side**2 + 1, size))
        nn.init.trunc_normal_(self.positions, std=0.02)
        nn.init.trunc_normal_(self.class_token, std=0.02)

    def patches(self, images: Tensor) -> Tensor:
        """Images as (…, patches, channels × patch size²), from left to right and top to bottom."""
        *batch, channels, _, _ = images.shape
        side, patch = self.side, self.patch_size
        tiles = images.reshape(*batch, channels, side, patch, side, patch)
        tiles = tiles.movedim((-4, -2), (-5, -4))
        return tiles.reshape(*batch, side**2, channels * patch**2)

    def forward(self, images: Tensor) -> Tensor:
        """The class token and every patch with their positions, (…, 1 + patches, size).

        Raises:
            InputError: images that are not (…, channels, image size, image size).
        """
        if tuple(images.shape[-3:]) != self.image_shape:
            raise InputError(
                f"images of shape {tuple(images.shape)}: the last three axes must be "
                f"{self.image_shape} (channels, height, width)"
            )
        patches = self.projection(self.patches(images))
        class_token = self.class_token.expand(*patches.shape[:-2], 1, -1)
        return torch.cat((class_token, patches), dim=-2) + self.positions


class EncoderBlock(nn.Module):
    """Self-attention and feed-forward, each normalised before it (Vaswani 2017; Xiong 2020)."""

    def __init__(
        self, size: int, heads: int, hidden_size: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size)
        self.attention = MultiHeadAttention(size, heads, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, hidden_size, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        inputs: Tensor,
        mask: Mask = None,
        *,
        key_mask: Mask = None,
        need_weights: bool = False,
    ) -> Attended:
        """The inputs (…, positions, size) after attention and feed-forward."""
        update, weights = self.attention(
            self.attention_norm(inputs), mask=mask, key_mask=key_mask, need_weights=need_weights
        )
        inputs = inputs + self.dropout(update)
        return inputs + self.feed_forward(self.feed_forward_norm(inputs)), weights


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each normalised before it."""

    def __init__(
        self, size: int, heads: int, hidden_size: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size)
        self.attention = MultiHeadAttention(size, heads, causal=True, dropout=dropout)
        self.cross_norm = nn.LayerNorm(size)
        self.cross = MultiHeadAttention(size, heads, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, hidden_size, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        target: Tensor,
        source: Tensor,
        *,
        target_mask: Mask = None,
        source_mask: Mask = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """The target (…, targets, size) after attention over itself and over an encoded source.

        `target_mask` and `source_mask` are boolean (…, positions), False for padding. The weights
        are a pair: over the target, zero above the diagonal, and over the source.
        """
        update, over_target = self.attention(
            self.attention_norm(target), key_mask=target_mask, need_weights=need_weights
        )
        target = target + self.dropout(update)
        update, over_source = self.cross(
            self.cross_norm(target), source, key_mask=source_mask, need_weights=need_weights
        )
        target = target + self.dropout(update)
        output = target + self.feed_forward(self.feed_forward_norm(target))
        return output, (over_target, over_source) if need_weights else None


class VisionTransformerBlock(nn.Module):
    """Patch embedding and one encoder block, by default ViT-Base's (Dosovitskiy 2020).

    Raises:
        UsageError: patches that do not fill the image, or a size that the heads do not divide.
    """

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        channels: int = 3,
        size: int = 768,
        heads: int = 12,
        hidden_size: int | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = PatchEmbedding(image_size, patch_size, channels, size)
        self.block = EncoderBlock(size, heads, hidden_size, dropout=dropout)

    def forward(self, images: Tensor, *, need_weights: bool = False) -> Attended:
        """The encoded class token and patches, (…, 1 + patches, size), of images."""
        output, weights = self.block(self.embedding(images), need_weights=need_weights)
        return output, weights
