"""An image as a row of patches (Dosovitskiy 2020, section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnviz.errors import InputError, UsageError


class PatchEmbedding(nn.Module):
    """Square patches projected, behind a class token, with learned positions.

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
        """The pixels of each patch in one row, patches from left to right and top to bottom.

        Args:
            images: shape (…, channels, image size, image size).

        Returns:
            Shape (…, patches, channels × patch size²).
        """
        *batch, channels, _, _ = images.shape
        side, patch = self.side, self.patch_size
        tiles = images.reshape(*batch, channels, side, patch, side, patch)
        tiles = tiles.movedim((-4, -2), (-5, -4))
        return tiles.reshape(*batch, side**2, channels * patch**2)

    def forward(self, images: Tensor) -> Tensor:
        """The class token and every patch as vectors that know their place.

        Args:
            images: shape (…, channels, image size, image size).

        Returns:
            Shape (…, 1 + patches, size); the class token stands first.

        Raises:
            InputError: images of another shape.
        """
        if tuple(images.shape[-3:]) != self.image_shape:
            raise InputError(
                f"images of shape {tuple(images.shape)}: the last three axes must be "
                f"{self.image_shape} (channels, height, width)"
            )
        embedded = self.projection(self.patches(images))
        class_token = self.class_token.expand(*embedded.shape[:-2], 1, -1)
        return torch.cat((class_token, embedded), dim=-2) + self.positions
