"""Attention in shifted windows put back into the picture (Liu et al. 2021, section 3.2).

A Swin layer cuts the patches into square windows, in every second layer after rolling the picture
by half a window, and attends inside each. What it attends to is found again by sending the
patches' numbers the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    from attnviz.hugging_face.blocks import whole
    from attnviz.hugging_face.interface import Call, watching
    from attnviz.hugging_face.probe import key_masses

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
