"""Attention in shifted windows put back into the picture (Liu et al. 2021, section 3.2).

A Swin layer cuts the patches into square windows, in every second layer after rolling the picture
by half a window, and attends inside each. What it attends to is found again by sending the
patches' numbers the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.tokens import AVERAGE, check_patch, patch_name, patch_tokens
from attnviz.models.hugging_face.load.errors import running
from attnviz.models.hugging_face.vision.pictures import PictureReader, over_patches

PADDED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """One layer's attention inside its windows.

    Attributes:
        weights: shape (windows, heads, slots, slots); slots are a window's places, row by row.
        places: the patch in each slot, shape (windows, slots); PADDED beyond the picture.
        rows: patches from top to bottom.
        columns: patches from left to right.
    """

    weights: NDArray[np.float32]
    places: NDArray[np.int64]
    rows: int
    columns: int

    def row(self, patch: int) -> NDArray[np.float32]:
        """What one patch attends to, shape (heads, patches); 0 outside of its window."""
        window, slot = (int(found[0]) for found in np.nonzero(self.places == patch))
        return self._spread(self.weights[window, :, slot], self.places[window])

    def mean(self) -> NDArray[np.float32]:
        """What the patches attend to on average, shape (heads, patches)."""
        inside = self.places != PADDED
        received = np.einsum("whqk,wq->hwk", self.weights.astype(np.float64), inside)
        total = received / (self.rows * self.columns)
        return self._spread(total.reshape(len(total), -1), self.places.ravel())

    def _spread(
        self, weights: NDArray[np.floating], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Slots' weights, shape (heads, slots), where their patches lie."""
        spread = np.zeros((len(weights), self.rows * self.columns), dtype=np.float32)
        inside = places != PADDED
        spread[:, places[inside]] = weights[:, inside]
        return spread


def window_places(rows: int, columns: int, window: int, shift: int) -> NDArray[np.int64]:
    """The patch in each slot of each window, shape (windows, slots).

    The picture is padded at its right and bottom to whole windows, then rolled up and to the left.

    Args:
        rows: patches from top to bottom.
        columns: patches from left to right.
        window: patches along a window's side.
        shift: patches that the picture is rolled by.
    """
    numbers = np.arange(rows * columns).reshape(rows, columns)
    beyond = ((0, -rows % window), (0, -columns % window))
    padded = np.pad(numbers, beyond, constant_values=PADDED)
    rolled = np.roll(padded, (-shift, -shift), axis=(0, 1))
    down, across = rolled.shape[0] // window, rolled.shape[1] // window
    tiles = rolled.reshape(down, window, across, window).transpose(0, 2, 1, 3)
    return tiles.reshape(down * across, window * window)


def read_windows(model: Any, inputs: dict[str, Any]) -> list[Windows]:
    """The attention of every layer of a Swin, in order, from one forward pass."""
    import torch

    from attnviz.models.hugging_face.capture.extent import whole
    from attnviz.models.hugging_face.capture.kernel import Call, watching
    from attnviz.models.hugging_face.capture.probe import key_masses

    layers = {id(part.attention): part for part in windowed(model)}
    grids = dict[int, tuple[int, int]]()
    found = list[Windows]()

    def remember(layer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        grid = named["input_dimensions"] if "input_dimensions" in named else given[1]
        grids[id(layer)] = (int(grid[0]), int(grid[1]))

    def look(call: Call) -> None:
        layer = layers[id(call.module)]
        rows, columns = grids[id(layer)]
        slots = call.key.shape[-2]
        masses = torch.cat([part for _, part in key_masses(call, whole(slots))], dim=-1)
        weights = masses.transpose(1, 2).float().cpu().numpy()
        places = window_places(rows, columns, int(layer.window_size), int(layer.shift_size))
        found.append(Windows(weights, places, rows, columns))

    hooks = [
        layer.register_forward_pre_hook(remember, with_kwargs=True) for layer in layers.values()
    ]
    try:
        with watching(look):
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def windowed(model: Any) -> list[Any]:
    """The layers of a model that attend in shifted windows."""
    return [part for part in model.modules() if hasattr(part, "shift_size")]


# <window_maps> Attention in windows as maps: where one patch looks, or all of them on average.

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
