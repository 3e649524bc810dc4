"""The first block of a vision transformer, from pixels (Dosovitskiy 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.encoder_block import EncoderBlock
from attnviz.layers.patch_embedding import PatchEmbedding


class VisionTransformerBlock(nn.Module):
    """Patch embedding and one encoder block; the defaults are those of ViT-Base.

    Args:
        image_size: pixels on each side of the image.
        patch_size: pixels on each side of a patch; must divide the image's.
        channels: colours of a pixel.
        size: features of a position.
        heads: how many; must divide the size.
        hidden_size: features inside the feed-forward network; None: four times the size.
        dropout: share dropped in training, from 0 to 1.

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

    def forward(
        self, images: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Class token and patches after one look at each other.

        Args:
            images: shape (…, channels, image size, image size).
            need_weights: give the weights back too.

        Returns:
            output (…, 1 + patches, size), 197 positions for 224² pixels in patches of 16²; and
            weights (…, heads, 1 + patches, 1 + patches) or None.

        Raises:
            InputError: images of another shape.
        """
        output, weights = self.block(self.embedding(images), need_weights=need_weights)
        return output, weights
