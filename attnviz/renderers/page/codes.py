"""Weights as codes, companded, deflated and spelt in base64.

A weight w is kept as the whole number nearest to levels × √(w / scale), which is off by at most
scale / levels at the top of the scale and by much less for small weights, which are most.

Where weights are few, codes go to 32,767 and take two bytes each. Where they are many, shares go to
1,020 (off by less than 0.001): codes below 255 take one byte, the others a mark of 255 and two
bytes behind all of them. Signed values then go to 510 on either side: one byte holds -126 to 126
as 2 to 254, and 1 and 255 are the marks.
"""

from __future__ import annotations

import base64
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FINE_LEVELS, SHARE_LEVELS, SIGNED_LEVELS = 32767, 1020, 510
SHARE_MARK, SIGNED_MARK = 255, 127


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of one map.

    Attributes:
        scale: the weight that the highest code stands for.
        levels: the highest code.
        layers: each layer's codes as base64.
    """

    scale: float
    levels: int
    layers: tuple[str, ...]


def scale_of(weights: NDArray[np.float32], signed: bool) -> float:
    """The weight that the highest code shall stand for, 1 for shares."""
    if signed:
        return float(max(weights.max(), -weights.min())) or 1.0
    largest = float(weights.max())
    # A share of 1.0004 is rounding, not a share above 1.
    return largest if largest > 1 + 1e-3 else 1.0


def encode(weights: NDArray[np.float32], signed: bool, fine: bool) -> Codes:
    """The codes of a map's weights, layer by layer.

    Args:
        weights: shape (layers, heads, queries, keys).
        signed: whether weights may be negative.
        fine: whether they are so few that each may take two bytes.
    """
    scale = scale_of(weights, signed)
    levels = FINE_LEVELS if fine else SIGNED_LEVELS if signed else SHARE_LEVELS
    pack = _pack_fine if fine else _pack_signed if signed else _pack_shares
    # zlib lets other threads run.
    with ThreadPoolExecutor() as threads:
        layers = threads.map(
            lambda layer: deflated(pack(_companded(layer, scale, levels))), weights
        )
        return Codes(scale, levels, tuple(layers))


def deflated(data: bytes) -> str:
    """The bytes packed by zlib, in base64."""
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def _companded(weights: NDArray[np.float32], scale: float, levels: int) -> NDArray[np.int16]:
    """Codes from -levels to levels."""
    roots = np.sqrt(np.minimum(np.abs(weights) * np.float32(1 / scale), 1)) * np.float32(levels)
    codes: NDArray[np.int16] = np.rint(np.copysign(roots, weights)).astype(np.int16)
    return codes


def _pack_fine(codes: NDArray[np.int16]) -> bytes:
    return codes.astype("<i2").tobytes()


def _pack_shares(codes: NDArray[np.int16]) -> bytes:
    codes = np.maximum(codes, 0)
    low = np.minimum(codes, SHARE_MARK).astype(np.uint8)
    return low.tobytes() + codes[codes >= SHARE_MARK].astype("<u2").tobytes()


def _pack_signed(codes: NDArray[np.int16]) -> bytes:
    low = (np.clip(codes, -SIGNED_MARK, SIGNED_MARK) + 128).astype(np.uint8)
    sizes = np.abs(codes)
    return low.tobytes() + sizes[sizes >= SIGNED_MARK].astype("<u2").tobytes()
