"""Read the weights of every attention of a pass by its module: no two need one shape.

Three mechanisms have them: a kernel of transformers is probed; `torch.nn.MultiheadAttention` and
attention modules that take `output_attentions` hand them out when they are asked. An attention that
samples points (Zhu et al. 2021, "Deformable DETR") has no weight for most keys and is only named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import not_finite
from attnviz.core.errors import AttentionError
from attnviz.core.locks import thread_hook
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.capture.passes import CaptureSpec, check_rows, read_calls
from attnviz.models.hugging_face.capture.probe import DRIFT
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, each_token
from attnviz.models.hugging_face.load.devices import computed_dtype, running_errors

ChooseRows = Callable[[str, tuple[int, int]], TokenBlocks | None]
"""The queries to read of the module at a path with so many queries and keys; None: none."""


def every_row(path: str, sizes: tuple[int, int]) -> TokenBlocks:
    return each_token(sizes[0])


@dataclass(frozen=True, slots=True, eq=False)
class ModuleWeights:
    """The weights of one attention, which may run over a batch of frames or of places."""

    path: str  # of its module, by its dotted name
    weights: NDArray[np.float32]  # (batch, heads, queries, keys), or the mean over some queries


@dataclass(frozen=True, slots=True, eq=False)
class ModulePass:
    """What one pass of a model shows.

    Attributes:
        output: what the model returned.
        readings: the weights of each attention, in the order of modules.
        maps: height and width of what modules returned as a map of features, in order.
        sampled: the paths of modules that sample points.
        skipped: the paths of those of which no row was chosen.
    """

    output: Any
    readings: Sequence[ModuleWeights]
    maps: Sequence[tuple[int, int]] = ()
    sampled: Sequence[str] = ()
    skipped: Sequence[str] = ()


def read_modules(
    model: Any, inputs: Mapping[str, Any], choose: ChooseRows = every_row
) -> ModulePass:
    """The weights of every attention of one pass over a batch of one.

    Raises:
        AttentionError: numbers that are no weights.
    """
    modules, watch = dict(model.named_modules()), _Watch(choose)
    with ExitStack() as hooks, running_errors(model, "picture"):
        for path, module in modules.items():
            if words := _asking(module):
                before = thread_hook(partial(_ask, words))
                hooks.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
                hooks.enter_context(
                    module.register_forward_hook(thread_hook(partial(watch.take, path)))
                )
            elif not list(module.children()):
                hooks.enter_context(module.register_forward_hook(thread_hook(watch.see_map)))
        hooks.enter_context(model.register_forward_hook(thread_hook(watch.keep_output)))
        calls = read_calls(model, inputs, watch.spec_for)
    for one in calls:
        if one.faulty_head is not None:
            raise not_finite("self", one.path, str(one.faulty_head), computed_dtype(model))
    by_path = watch.handed | {one.path: one.weights for one in calls}
    for path, weights in by_path.items():
        for part in weights:
            check_rows(part, path, model, "self")
    return ModulePass(
        watch.output,
        [ModuleWeights(path, by_path[path]) for path in modules if path in by_path],
        watch.maps,
        [path for path, module in modules.items() if hasattr(module, "sampling_offsets")],
        watch.skipped,
    )


class _Watch:
    """What hooks and kernels of one pass show."""

    def __init__(self, choose: ChooseRows) -> None:
        self.choose, self.output = choose, None
        self.handed = dict[str, NDArray[np.float32]]()
        self.maps, self.skipped = list[tuple[int, int]](), list[str]()

    def rows(self, path: str, sizes: tuple[int, int]) -> TokenBlocks | None:
        rows = self.choose(path, sizes)
        if rows is None:
            self.skipped.append(path)
        return rows

    def spec_for(self, path: str, call: AttentionCall) -> CaptureSpec | None:
        sizes = int(call.query.shape[2]), int(call.key.shape[2])
        rows = self.rows(path, sizes)
        return None if rows is None else CaptureSpec(PooledGrid(rows, each_token(sizes[1])))

    def take(self, path: str, _: Any, __: Any, output: Any) -> None:
        candidates = (
            [one for one in output if _is_weights(one)] if isinstance(output, tuple) else []
        )
        if not candidates:
            return
        weights = candidates[-1].detach().float().cpu().numpy()
        if (rows := self.rows(path, (weights.shape[2], weights.shape[3]))) is not None:
            self.handed[path] = _rows_of(weights, rows)

    def see_map(self, _: Any, __: Any, output: Any) -> None:
        if getattr(output, "ndim", 0) == 4:
            self.maps.append((int(output.shape[2]), int(output.shape[3])))

    def keep_output(self, _: Any, __: Any, output: Any) -> None:
        self.output = output


def _asking(module: Any) -> dict[str, bool]:
    """What asks a module for its weights; empty: it hands out none, or parts of it do."""
    import torch

    if isinstance(module, torch.nn.MultiheadAttention):
        return {"need_weights": True, "average_attn_weights": False}
    if "Attention" not in type(module).__name__ or not _takes_the_word(module):
        return {}
    inner = [part for part in module.modules() if part is not module]
    return {} if any(map(_takes_the_word, inner)) else {WORD: True}


WORD = "output_attentions"


def _takes_the_word(module: Any) -> bool:
    return WORD in inspect.signature(module.forward).parameters


def _ask(
    words: Mapping[str, bool], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with other words, which may stand among those without a name."""
    names = [*inspect.signature(module.forward).parameters][: len(args)]
    places = {name: names.index(name) for name in words if name in names}
    arguments = list(args)
    for name, place in places.items():
        arguments[place] = words[name]
    return tuple(arguments), kwargs | {n: one for n, one in words.items() if n not in places}


def _is_weights(value: Any) -> bool:
    """Whether a tensor has rows that sum to 1 (or to 0 where every key is masked)."""
    if getattr(value, "ndim", 0) != 4 or not value.is_floating_point():
        return False
    sums = value.detach().float().sum(-1)
    drift = max(DRIFT.get(str(value.dtype).removeprefix("torch."), 1e-3), 1e-3)
    return bool(((sums - 1).abs() < drift).logical_or(sums == 0).all())


def _rows_of(weights: NDArray[np.float32], rows: TokenBlocks) -> NDArray[np.float32]:
    """Chosen rows of whole weights, blocks of them as their mean."""
    if rows.length == 1:
        return weights[:, :, rows.start : rows.stop]
    spans = [weights[:, :, first:stop].mean(axis=2, dtype=np.float64) for first, stop in rows.spans]
    return np.stack(spans, axis=2).astype(np.float32)


def refuse_without_weights(name: str, kind: str, reading: ModulePass) -> None:
    """Refuse a model of which no attention could be read."""
    if not reading.readings:
        why = "its attention samples points" if reading.sampled else "it keeps them to itself"
        raise AttentionError(f"'{name}' ({kind}) has no attention weights that can be read: {why}")
