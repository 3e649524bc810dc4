"""The trial of one type: from its name to its row."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from attnviz.core.errors import AttnvizError, first_line
from attnviz.models.hugging_face.capture.capture import without_cache
from tests.families import rows
from tests.families.by_hand import SMALL
from tests.families.copies import Copy, NotBuiltError, copy_by_hand, make_copy, run_on
from tests.families.doors import DOORS, Door
from tests.families.types_of import find_type, part_that_runs

MODEL = re.compile(r"^'[^']*'( \([\w-]+\))?:? ?|^architecture '[^']*' ?:?")
"""What an error says before its reason."""


def try_type(name: str) -> rows.Row:
    """The row of a type."""
    start = time.monotonic()
    row = _try(name)
    return replace(row, seconds=round(time.monotonic() - start, 1))


def _try(name: str) -> rows.Row:
    kind = find_type(name)
    if kind.kind == "part":
        return rows.Row(name, "part", "part", attention=False)
    door = DOORS.get(kind.kind)
    if door is None:
        return rows.Row(name, kind.kind, "not tried", attention=True, reason=kind.reason)
    try:
        copy = door.make(name) if door.make else make_copy(kind, door.example)
        attention = attends(copy.model, door)
        if not attention and kind.name in SMALL:  # the layers that a trial left may have none
            copy = copy_by_hand(kind, door.example, SMALL[kind.name])
            attention = attends(copy.model, door)
    except NotBuiltError as error:
        return rows.Row(name, kind.kind, "not built", attention=True, reason=str(error))
    return _read(copy, door, attention=attention)


def _read(copy: Copy, door: Door, *, attention: bool) -> rows.Row:
    row = rows.Row(copy.kind.name, copy.kind.kind, "works", attention=attention)
    with TemporaryDirectory() as place:
        folder = Path(place) / copy.kind.name
        try:
            door.save(copy, folder)
        except Exception as error:  # a part of its processor may not be writable
            said = f"its copy cannot be saved: {type(error).__name__}: {first_line(error)}"
            return replace(row, status="not built", attention=True, reason=said)
        try:
            reading = door.read(copy, folder)
        except AttnvizError as error:
            status = "refused" if attention else "no attention"
            return replace(row, status=status, reason=reason_of(error, folder))
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            return replace(row, status="foreign error", reason=reason)
        off, said = compare(copy, folder, reading)
    shown = reading.attention
    return replace(
        row,
        route=rows.route_of(shown),
        streams=", ".join(dict.fromkeys(one.stream for one in shown.maps)),
        difference=off,
        reason=said,
    )


def reason_of(error: AttnvizError, folder: Path) -> str:
    """Why a type is refused, without the name of its folder."""
    return MODEL.sub("", first_line(error).replace(str(folder), folder.name)).strip()


def compare(copy: Copy, folder: Path, reading: rows.Reading) -> tuple[float | None, str]:
    """The greatest difference from an eager pass of the saved copy, and why there is none."""
    if not reading.inputs or rows.route_of(reading.attention) == "implied":
        return None, ""
    try:
        own = type(copy.model).from_pretrained(folder, attn_implementation="eager").eval()
        with torch.no_grad():
            if reading.part is None:
                own = part_that_runs(own, reading.inputs)
            else:
                own = own.get_submodule(reading.part)
            given = without_cache(own, reading.inputs)
            own(**given)  # Big Bird exchanges its attention in its first pass over a short text
            expected = rows.eager_weights(own, given)
    except Exception as error:  # transformers' own eager pass may fail in any way
        return None, f"no eager weights: {type(error).__name__}: {first_line(error)}"
    off, said = rows.difference(reading, expected)
    if off is not None and off > rows.NEAR:
        nudge(own)
        with torch.no_grad():
            moved = rows.eager_weights(own, given)
        if off <= OFTEN * rows.apart(expected, moved):
            said = "no more than eager weights move where each number is rounded anew"
    return off, said


OFTEN = 4  # how many times as far as eager weights move is still rounding


def nudge(model: Any) -> None:
    """Change every weight by about the rounding of float32."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.is_floating_point():
                weights.mul_(1 + 6e-8 * torch.randn_like(weights))


PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
FACTORS = ("mul", "__mul__")


class Softmaxes(TorchFunctionMode):
    """Counts fused kernels, and products of matrices with what a softmax gave.

    What a softmax over the last of three axes gave may be a factor of each element too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        made = func(*args, **(kwargs or {}))
        fused = "scaled_dot_product" in name or name == "multi_head_attention_forward"
        soft = "softmax" in name or name == "logsumexp"
        flat = (one for arg in args for one in (arg if isinstance(arg, list | tuple) else (arg,)))
        given = [one for one in flat if torch.is_tensor(one)]
        weights = max((getattr(one, "_weights", 0) for one in given), default=0)
        if fused or (weights and name in PRODUCTS) or (weights > 1 and name in FACTORS):
            self.count += 1
        elif torch.is_tensor(made):
            made._weights = weights or (_softness(given[0], args, kwargs or {}) if soft else 0)
        return made


def _softness(scores: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """2: a softmax over the last of three axes; 1: over another; 0: over one number, or of two."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    if scores.ndim < 3 or scores.shape[axis] < 2:
        return 0
    return 2 if axis in (-1, scores.ndim - 1) else 1


def attends(model: Any, door: Door) -> bool:
    """Whether a pass has softmaxes over tokens."""
    with torch.no_grad(), Softmaxes() as found:
        run_on(model, door.example(model))
    return found.count > 0
