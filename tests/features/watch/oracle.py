"""Attention written out: what softmaxes and fused functions give, in float64, noted as it runs.

The model runs a second time as a copy in float64, with every softmax and every fused function
replaced by exponentials and sums. What watch reads of the float32 model must be what was noted.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from attnviz import Result, watch


def shares(scores: Any) -> Any:
    """A softmax over the last axis; of a row that sees nothing, what torch makes of it."""
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


@contextmanager
def written_out() -> Iterator[list[np.ndarray]]:  # noqa: C901 - two functions in one
    """The weights of each call, shape (all batches × heads, queries, keys), in order."""
    noted: list[np.ndarray] = []

    def note(weights: Any) -> None:
        noted.append(weights.detach().double().reshape(-1, *weights.shape[-2:]).numpy())

    def softmax(scores: Any, dim: Any = None, *_: Any, **options: Any) -> Any:
        dim = options.get("dim", dim)
        wanted = options.get("dtype") or scores.dtype
        made = shares(scores.double().movedim(dim, -1))
        if scores.ndim > 2 and dim in (-1, scores.ndim - 1):
            note(made)
        return made.movedim(-1, dim).to(wanted)

    def attend(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        dropout_p, groups = dropout_p, query.shape[1] // key.shape[1] if enable_gqa else 1
        scores = query.double() @ key.double().repeat_interleave(groups, 1).transpose(-1, -2)
        scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask.double()
        if is_causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        weights = shares(scores)
        note(weights)
        return (weights @ value.double().repeat_interleave(groups, 1)).to(value.dtype)

    with ExitStack() as stack:
        for original, mine in ((F.scaled_dot_product_attention, attend), (torch.softmax, softmax)):
            for module in list(sys.modules.values()):
                for name, held in list(getattr(module, "__dict__", {}).items()):
                    if held is original:
                        stack.enter_context(patch.object(module, name, mine))
        stack.enter_context(patch.object(torch.Tensor, "softmax", softmax))
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        yield noted


def to(given: Any, dtype: torch.dtype) -> Any:
    if isinstance(given, dict):
        return {key: to(value, dtype) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(to(part, dtype) for part in given)
    floats = isinstance(given, torch.Tensor) and given.is_floating_point()
    return given.to(dtype) if floats else given


def tensors(output: Any) -> list[Any]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    parts = (
        output
        if isinstance(output, list | tuple)
        else vars(output).values()
        if hasattr(output, "__dict__")
        else ()
    )
    return [tensor for part in parts for tensor in tensors(part)]


def agree(
    model: Any,
    args: Any,
    kwargs: Any,
    dtype: torch.dtype,
    exact: torch.dtype,
    others: tuple[int, ...] = (),
    windows: int = 1,
) -> tuple[Result, float]:
    """What is seen, and how far it lies off what was noted; the model gives the same bits."""
    model, (args, kwargs) = model.to(dtype), to((args, kwargs), dtype)

    def run(model: Any = model, dtype: torch.dtype = dtype) -> Any:
        torch.manual_seed(7)
        return model(*to(args, dtype), **to(kwargs, dtype))

    with torch.no_grad():
        before = tensors(run())
        with watch(model, max_size=300) as seen:
            after = tensors(run())
        assert before
        assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
        with written_out() as noted:
            run(deepcopy(model).to(exact), exact)
    assert not seen.log.failures, seen.log.failures
    noted = [truth for number, truth in enumerate(noted) if number not in others]
    worst = 0.0
    for one, truth in zip(seen.log.captures, noted, strict=True):
        rows, keys = one.weights.reshape(-1, one.sides[1]), truth.reshape(-1, truth.shape[-1])
        # The first item of a batch, and of each head the first window.
        keys = truth.reshape(-1, windows, *truth.shape[-2:])[:, 0].reshape(
            keys.shape[0] // windows, -1
        )
        assert len(keys) % len(rows) == 0
        worst = max(worst, float(np.abs(rows - keys[: len(rows)]).max()))
    return seen.attention(), worst
