"""The picture model's forward pass: a vision transformer (Dosovitskiy 2021), numpy or torch.

Patches and a class token, pre-norm layers and a classifier over the class token's last state. The
weights have the names that transformers gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.mechanisms.arrays import Array, namespace, transpose
from attnviz.models.pocket.transformer import BlockNames, Watch, Weights, layer_norm, run_block

PROJECTIONS = ("attention.query", "attention.key", "attention.value", "output.dense")
NAMES = BlockNames(
    attention_norm="layernorm_before",
    attention="attention",
    projections=PROJECTIONS,
    feed_forward_norm="layernorm_after",
    inner="intermediate.dense",
    outer="output.dense",
)


@dataclass(frozen=True, slots=True)
class VisionSizes:
    """Pixels of the picture's side and of a patch's, features, heads and layers."""

    side: int = 80
    patch: int = 8
    size: int = 96
    heads: int = 4
    feed_forward: int = 256
    layers: int = 4

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> VisionSizes:
        """The sizes that a configuration of transformers tells."""
        sides = (config[f"{name}_size"] for name in ("image", "patch", "hidden"))
        counts = ("num_attention_heads", "intermediate_size", "num_hidden_layers")
        return cls(*sides, *(config[name] for name in counts))

    @property
    def patches(self) -> int:
        """The number of patches in a row and in a column."""
        return self.side // self.patch


def embed_patches(weights: Weights, sizes: VisionSizes, pixels: Array) -> Array:
    """A class token and patches with their positions, (pictures, 1 + patches, size).

    Pixels are red, green and blue from −1 to 1, shape (pictures, side, side, 3).
    """
    xp, count = namespace(pixels), sizes.patches
    tiles = xp.reshape(pixels, (-1, count, sizes.patch, count, sizes.patch, 3))
    turned = xp.permute_dims(tiles, (0, 1, 3, 5, 2, 4))
    rows = xp.reshape(turned, (-1, count * count, 3 * sizes.patch**2))
    name = "vit.embeddings.patch_embeddings.projection"
    kernel = xp.reshape(weights[f"{name}.weight"], (sizes.size, -1))
    patches = rows @ transpose(kernel) + weights[f"{name}.bias"]
    first = xp.broadcast_to(weights["vit.embeddings.cls_token"], (len(rows), 1, sizes.size))
    return xp.concat((first, patches), axis=1) + weights["vit.embeddings.position_embeddings"]


def encode_patches(
    weights: Weights, sizes: VisionSizes, inputs: Array, watch: Watch | None = None
) -> tuple[Array, list[Array]]:
    """The last states of an embedded picture (…, positions, size), and each layer's weights."""
    shares = []
    for number in range(sizes.layers):
        layer = f"vit.encoder.layer.{number}"
        inputs, share = run_block(weights, layer, inputs, sizes.heads, None, watch, NAMES)
        shares.append(share)
    return layer_norm(weights, "vit.layernorm", inputs), shares
