"""Every attention that a model computes in one pass, read from its kernel as it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture.exact_links import Bounds, Hidden, Strongest, strongest
from attnviz.models.hugging_face.capture.extent import PooledGrid, whole
from attnviz.models.hugging_face.capture.kernel import Call, watching
from attnviz.models.hugging_face.capture.pooling import read_frame
from attnviz.models.hugging_face.capture.projections import Projected, projected_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRIFT = {"float16": 1e-2, "bfloat16": 5e-2}
"""How far, relative to the largest value, what weights mix may lie off what the kernel gave back;
elsewhere 1e-3."""


@dataclass(frozen=True, slots=True, eq=False)
class CallWeights:
    """The attention of one call.

    Attributes:
        path: the module that called, by its dotted name.
        weights: float32 of shape (batch, heads, query blocks, key blocks).
        links: of each head, where they were asked for.
        projected: queries and keys, likewise.
        how: "probed", or "given by its kernel".
    """

    path: str
    weights: NDArray[np.float32]
    links: tuple[Strongest, ...] = ()
    projected: Projected | None = None
    how: str = "probed"


NOTHING = Hidden()


@dataclass(frozen=True, slots=True)
class CaptureSpec:
    """What to read of a call.

    Attributes:
        frame: queries and keys in blocks.
        links: how many of each head's strongest links, 0 for none.
        hidden: which cells do not count among them.
        keep_qk: whether queries and keys are kept.
        first: of a batch, how many queries its first text has; None: all.
        given: whether what a kernel hands over as its weights is taken for them.
    """

    frame: PooledGrid
    links: int = 0
    hidden: Hidden = NOTHING
    keep_qk: bool = False
    first: int | None = None
    given: bool = False


class StopForward(Exception):  # noqa: N818 - it ends a pass, and is no error
    """All that was wanted of a pass has been read."""


def read_calls(
    model: Any,
    inputs: Mapping[str, Any],
    wish_for: Callable[[str, Call], CaptureSpec | None],
    calls: int | None = None,
) -> list[CallWeights]:
    """The attention of each kernel call of one pass, in order; none of a model of another kind.

    Args:
        model: a transformers model.
        inputs: what it takes, on its device.
        wish_for: what to read of a module's call, by its dotted name; None: nothing.
        calls: how many there are to read, after which the pass ends; None: it runs through.

    Raises:
        AttentionError: what was read does not explain what the kernel gave back.
    """
    import torch

    paths = {id(module): name for name, module in model.named_modules()}
    readings = list[CallWeights]()

    def look(call: Call) -> None:
        path = paths.get(id(call.module))
        wish = None if path is None else wish_for(path, call)
        if path is not None and wish is not None:
            readings.append(read_call(path, call, wish))
            if len(readings) == calls:
                raise StopForward

    with suppress(StopForward), torch.no_grad(), watching(look):
        model(**inputs, return_dict=True)
    return readings


def every_weight(path: str, call: Call) -> CaptureSpec:
    """Wish for whole matrices."""
    return CaptureSpec(PooledGrid(whole(call.query.shape[2]), whole(call.key.shape[2])))


def read_call(path: str, call: Call, wish: CaptureSpec) -> CallWeights:
    """One call's attention."""
    if wish.given and call.weights is not None:
        check_mixture(path, call, call.weights, wish.first)
        return CallWeights(path, call.weights.float().cpu().numpy(), how="given by its kernel")
    bounds = Bounds(call, wish.frame, wish.hidden) if wish.links else None
    weights = read_frame(call, wish.frame, bounds.add if bounds else None)
    if not wish.frame.is_pooled and weights.shape[2:] == (call.query.shape[2], call.key.shape[2]):
        check_mixture(path, call, weights, wish.first)
    links = strongest(bounds, wish.links) if bounds else []
    projected = projected_in(call, wish.frame) if wish.keep_qk else None
    return CallWeights(path, weights.numpy(), tuple(links), projected)


def check_mixture(path: str, call: Call, weights: Any, queries: int | None = None) -> None:
    """Refuse weights that do not turn the values into what the kernel gave back.

    It is asked of a batch's first text: what a kernel is linear in does not hang on the text.

    Args:
        path: the module that called.
        call: its call.
        weights: what was read of it.
        queries: how many the first text has; None: all.

    Raises:
        AttentionError: they do not: the kernel is not linear in its values.
    """
    value = call.value[0].float().cpu()
    value = value.repeat_interleave(weights.shape[1] // len(value), dim=0)
    mixed = (weights[0, :, :queries].float().cpu() @ value).transpose(0, 1)
    dtype = str(call.value.dtype).removeprefix("torch.")
    given = call.output[0, :queries].float().cpu().reshape(mixed.shape)
    off = float((mixed - given).abs().max())
    if not off <= DRIFT.get(dtype, 1e-3) * max(float(value.abs().max()), 1.0):
        raise AttentionError(
            f"attention of '{path}' cannot be read: its kernel does more than mix values by "
            f"weights (off by {off:.2g})"
        )
