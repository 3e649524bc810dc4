"""Attention in windows as maps: where one patch looks, or all of them on average."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from attnviz.attention_map import AttentionMap, Token
from attnviz.errors import AttentionError, UsageError
from attnviz.hugging_face.border import running
from attnviz.hugging_face.picture_reader import PictureReader, over_patches
from attnviz.hugging_face.windows import Windows, read_windows
from attnviz.patches import AVERAGE, check_patch, patch_name, patch_tokens

ALL = "all"
"""Asked for instead of a patch: every query."""


def window_maps(
    reader: PictureReader, inputs: dict[str, Any], patch: str | None
) -> tuple[AttentionMap, ...]:
    """One query's attention in each layer, over the coarser patches of the later ones.

    Args:
        reader: a model that attends in windows.
        inputs: the picture as it takes it.
        patch: the query, "ROW,COLUMN"; None: the mean over all.

    Raises:
        UsageError: every query was asked for.
        AttentionError: the windows do not reach a kernel.
    """
    import torch

    if patch == ALL:
        raise UsageError(
            f"'{reader.name}' attends in windows: choose one --patch, or none for the mean"
        )
    with running(reader.model, "picture"), torch.inference_mode():
        layers = read_windows(reader.model, inputs)
    if not layers:
        raise AttentionError(
            f"architecture '{reader.model.config.model_type}' computes attention in windows by "
            "hand, where it cannot be read"
        )
    finest = layers[0]
    at = None if patch is None else check_patch(patch, finest.rows, finest.columns)
    query = AVERAGE if at is None else Token(patch_name(*at))
    named = [(str(number), layer) for number, layer in enumerate(layers)]
    maps = []
    for (rows, columns, _), run in groupby(named, key=lambda item: shape_of(item[1])):
        stage = list(run)
        weights = np.stack([look_of(layer, at, finest) for _, layer in stage])
        keys = patch_tokens(rows, columns)
        names = tuple(name for name, _ in stage)
        maps.append(over_patches(names, weights[:, :, None], (query,), keys))
    return tuple(maps)


def shape_of(layer: Windows) -> tuple[int, int, int]:
    """What layers that can be stacked agree in: patches down, across, and heads."""
    return layer.rows, layer.columns, layer.weights.shape[1]


def look_of(layer: Windows, at: tuple[int, int] | None, finest: Windows) -> Any:
    """What a patch of the finest layer attends to in another, shape (heads, patches)."""
    if at is None:
        return layer.mean()
    row = at[0] * layer.rows // finest.rows
    column = at[1] * layer.columns // finest.columns
    return layer.row(row * layer.columns + column)
