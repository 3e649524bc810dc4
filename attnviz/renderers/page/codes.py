"""Weights as codes of one byte, companded, deflated and spelt in base64.

A weight w is kept as the whole number nearest to 510 √(w / scale). Half a step of it is at most
scale / 510 < 0.002 at the top of the scale and much less for small weights, which are most. Codes
below 255 take one byte; the few from 255 on take a mark of 255 and two bytes behind all others.
A signed weight keeps its sign: one byte holds -126 to 126 as 2 to 254, and 1 and 255 are marks.
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

LEVELS = 510
SHARE_MARK, SIGNED_MARK = 255, 127
# Small weights gain from a small scale, but their codes then fill the byte and pack less well.
_HEADROOM = 8.0


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of one map.

    Attributes:
        scale: the weight that the highest code stands for.
        layers: each layer's codes as base64.
    """

    scale: float
    layers: tuple[str, ...]


def scale_of(weights: NDArray[np.float32], signed: bool) -> float:
    """The weight that the highest code shall stand for; never below the largest weight."""
    if signed:
        return float(max(weights.max(), -weights.min())) or 1.0
    largest = float(weights.max())
    # A share of 1.0004 is rounding, not a share above 1.
    return largest if largest > 1 + 1e-3 else min(1.0, _HEADROOM * largest or 1.0)


def encode(weights: NDArray[np.float32], signed: bool) -> Codes:
    """The codes of a map's weights, layer by layer.

    Args:
        weights: shape (layers, heads, queries, keys).
        signed: whether weights may be negative.
    """
    scale = scale_of(weights, signed)
    pack = _pack_signed if signed else _pack_shares
    # zlib lets other threads run.
    with ThreadPoolExecutor() as threads:
        return Codes(scale, tuple(threads.map(lambda layer: pack(layer, scale), weights)))


def deflated(data: bytes) -> str:
    """The bytes packed by zlib, in base64."""
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def _pack_shares(weights: NDArray[np.float32], scale: float) -> str:
    codes = _companded(weights, scale)
    low = np.minimum(codes, SHARE_MARK).astype(np.uint8)
    return deflated(low.tobytes() + codes[codes >= SHARE_MARK].astype("<u2").tobytes())


def _pack_signed(weights: NDArray[np.float32], scale: float) -> str:
    codes = _companded(np.abs(weights), scale)
    low = np.minimum(codes, SIGNED_MARK).astype(np.int16)
    bytes_ = (np.where(weights < 0, -low, low) + 128).astype(np.uint8)
    return deflated(bytes_.tobytes() + codes[codes >= SIGNED_MARK].astype("<u2").tobytes())


def _companded(weights: NDArray[np.float32], scale: float) -> NDArray[np.uint16]:
    shares = np.clip(weights * np.float32(1 / scale), 0, 1)
    codes: NDArray[np.uint16] = np.rint(np.sqrt(shares) * LEVELS).astype(np.uint16)
    return codes
