"""The architectures of pictures that the network inside runs, and how they embed patches."""

from dataclasses import replace

from attnviz.mechanisms.arrays import Array, namespace, transpose
from attnviz.models.light.architecture import Architecture
from attnviz.models.light.architectures import SIZES
from attnviz.models.light.network import LayerPart, Shape, Weights

VIT = Shape(
    layer="encoder.layer.{}",
    attention=LayerPart(
        "attention",
        "attention.query attention.key attention.value output.dense",
        before="layernorm_before",
    ),
    feed_forward=LayerPart("", "intermediate.dense output.dense", before="layernorm_after"),
    last_norm="layernorm",
)
DINO = replace(
    VIT,
    attention=replace(VIT.attention, before="norm1", scale="layer_scale1.lambda1"),
    feed_forward=LayerPart("mlp", "fc1 fc2", before="norm2", scale="layer_scale2.lambda1"),
)
VIT_ROW = Architecture(
    VIT,
    f"- {SIZES.partition(' ')[2]} intermediate_size layer_norm_eps - - image_size patch_size",
    model="ViTModel",
    tokenizer="",
    prefix="vit",
    words="",
    activation="hidden_act",
    choices={"num_channels": (3,), "qkv_bias": (True, False)},
    others="encoder_stride pooler_act pooler_output_size",
    bare_maps=lambda config: () if config.get("qkv_bias", True) else VIT.attention.maps[:3],
    left_out=r"(embeddings\.mask_token|pooler\.|classifier\.)",
)
VISION_ARCHITECTURES = {
    "vit": VIT_ROW,
    "dinov2": replace(
        VIT_ROW,
        shape=DINO,
        numbers=VIT_ROW.numbers.replace("intermediate_size", "-"),
        model="Dinov2Model",
        prefix="dinov2",
        choices={**VIT_ROW.choices, "use_swiglu_ffn": (False,)},
        others="mlp_ratio drop_path_rate layerscale_value use_mask_token out_features out_indices "
        "stage_names apply_layernorm reshape_hidden_states",
        complete=lambda shape, config: replace(
            shape, inner=int(shape.size * config.get("mlp_ratio", 4))
        ),
    ),
}
"""The rows by model type."""


def embed_patches(
    weights: Weights, shape: Shape, pixels: Array, name: str, positions: Array | None = None
) -> Array:
    """A class token and patches with their positions, (pictures, 1 + patches, size).

    Pixels have the shape (pictures, height, width, 3); `name` stands before the weights. Positions
    are the learned ones unless they are given.
    """
    xp, (rows, columns) = namespace(pixels), (one // shape.patch for one in pixels.shape[1:3])
    tiles = xp.reshape(pixels, (-1, rows, shape.patch, columns, shape.patch, 3))
    pixels_of_tiles = xp.permute_dims(tiles, (0, 1, 3, 5, 2, 4))
    flat = xp.reshape(pixels_of_tiles, (-1, rows * columns, 3 * shape.patch**2))
    kernel = xp.reshape(weights[f"{name}.patch_embeddings.projection.weight"], (shape.size, -1))
    patches = flat @ transpose(kernel) + weights[f"{name}.patch_embeddings.projection.bias"]
    first = xp.broadcast_to(weights[f"{name}.cls_token"], (len(flat), 1, shape.size))
    table = weights[f"{name}.position_embeddings"] if positions is None else positions
    return xp.concat((first, patches), axis=1) + table
