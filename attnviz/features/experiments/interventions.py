"""Changes in the output of an attention kernel: heads switched off, keys hidden.

The output is changed before the output projection, where heads are still apart (Michel, Levy and
Neubig 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core import effects, errors
from attnviz.core.attention_call import AttentionCall
from attnviz.models.hugging_face.capture.passes import CaptureSpec, read_call
from attnviz.models.hugging_face.capture.probe import is_causal, sink_logits, sink_shares
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def check_heads_apart(call: AttentionCall, kind: str) -> None:
    """Refuse a kernel that returns its heads together."""
    batch, heads, queries, _ = call.query.shape
    if call.output.shape != (batch, queries, heads, call.value.shape[-1]):
        raise errors.AttentionError(
            f"the attention kernel of architecture '{kind}' returns its heads together, so that "
            "one cannot be switched off"
        )


def keep_output(call: AttentionCall, calls: list[AttentionCall]) -> Any:
    """Add a call to a list, with an output whose gradient can be taken, and give this output."""
    output = call.output
    if not output.requires_grad:  # the weights before it are frozen
        output = output.detach().requires_grad_()
    calls.append(replace(call, output=output))
    return output


def change_output(
    call: AttentionCall,
    changes: Sequence[effects.Intervention],
    place: tuple[str, str],
    sides: tuple[str, str],
    instead: effects.HeadOutputs | None,
    start: int = 0,
) -> Any:
    """A call's output (batch, queries, heads, value size) with each item's change made.

    Its first query is that of position `start`.
    """
    import torch

    _, queries, heads, size = call.output.shape
    # Hidden tokens are the same cells for every head: a long text's are stored once.
    apart = any(link.head is not None for change in changes for link in change.links)
    shape = (heads if apart else 1, start + queries, call.key.shape[2])
    output, masks, whole = call.output.clone(), {}, cache(partial(read_weights, call))
    off = [change.outputs_off(*place) for change in changes]
    for number, change in enumerate(changes):
        silent = [head for head, query in off[number] if query is None]
        if any(one.stream == place[0] for one in change.evictions):
            output[number] = _mix_held(call, whole(), number, change, place, sides)
        elif len({*silent}) < heads:
            cells = change.hidden_cells(*place, sides, shape)
            if cells is not None:
                masks[number] = cells[:, start:]
    if any(cells.any() for cells in masks.values()):
        rows, others = masked_output(call, masks) or without_keys(call, masks)
        output[rows] = others[rows]
    # Last: a head that is off puts out nothing of the keys that are left.
    if any(off):
        rows = effects.replacement_outputs(instead, place, (heads, queries, size), start)
        put = torch.as_tensor(rows.swapaxes(0, 1)).to(output)
        for number, own in enumerate(off):
            silent = [head for head, query in own if query is None]
            output[number, :, silent] = put[:, silent]
            for head, query in own:
                if query is not None:
                    output[number, query, head] = put[query, head]
    return output


def read_weights(call: AttentionCall) -> tuple[Any, Any]:
    """A call's weights (batch, heads, queries, keys), and its sinks' (batch, heads, queries)."""
    import torch

    grid = PooledGrid(each_token(call.query.shape[2]), each_token(call.key.shape[2]))
    reading = read_call(type(call.module).__name__, call, CaptureSpec(grid, from_kernel=True))
    if reading.faulty_head is not None:  # a row before it had no key left
        nothing = torch.full((*call.query.shape[:3], call.key.shape[2]), torch.nan)
        return nothing.to(call.query.device), nothing[..., 0].to(call.query.device)
    weights = torch.as_tensor(reading.weights, device=call.query.device)
    if sink_logits(call) is not None:
        return weights, sink_shares(call)[..., 0].transpose(1, 2).to(weights)
    remainder = 1 - weights.sum(-1)
    return weights, remainder.where(remainder > effects.SINK, 0)


def _mix_held(
    call: AttentionCall,
    whole: tuple[Any, Any],
    number: int,
    change: effects.Intervention,
    place: tuple[str, str],
    sides: tuple[str, str],
) -> Any:
    """An item's output (queries, heads, value size) by the weights of the keys that it holds."""
    import torch

    weights, sinks = (one[number] for one in whole)
    caches = call.value.shape[1]
    layer = effects.LayerWeights(weights.cpu().numpy(), sinks.cpu().numpy(), caches)
    cells = change.hidden_cells(*place, sides, weights.shape, lambda: layer)
    if cells is None:  # every key stays
        return call.output[number]
    shares = weights.masked_fill(torch.as_tensor(cells, device=weights.device), 0)
    shares = shares / (shares.sum(-1, keepdim=True) + sinks[..., None])
    value = upcast_half(call.value[number]).repeat_interleave(len(weights) // caches, 0)
    return (shares.to(value) @ value).transpose(0, 1)


def masked_output(
    call: AttentionCall, masks: Mapping[int, NDArray[np.bool_]]
) -> tuple[Tensor, Tensor] | None:
    """As `without_keys`, by the kernel itself with another mask; None if it may not take one."""
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    (batch, heads, queries, _), keys, mask = call.query.shape, call.key.shape[2], call.mask
    follows = mask is None and queries > 1 and is_causal(call)
    is_known = call.kernel is sdpa_attention_forward and sink_logits(call) is None
    if not is_known or (follows and queries != keys) or (mask is not None and mask.ndim != 4):
        return None
    count = max(len(cells) for cells in masks.values())
    cells = np.zeros((batch, count, queries, keys), dtype=np.bool_)
    for number, own in masks.items():
        cells[number] = own
    off = torch.as_tensor(cells, device=call.query.device)
    nothing = torch.finfo(call.query.dtype).min
    new = call.query.new_zeros((1, 1, queries, keys))
    if follows:
        new = new.masked_fill(torch.ones_like(new, dtype=torch.bool).triu(1), -torch.inf)
    elif mask is not None:
        new = new.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask
    visible = (new > nothing) & ~off  # transformers' masks hide by this number
    new = new.masked_fill(off, -torch.inf)
    output = call.kernel(
        *(call.module, call.query, call.key, call.value, new),
        **{**call.options, "is_causal": False},
    )[0]
    rows, empty = (
        one.expand(-1, heads, -1).transpose(1, 2) for one in (off.any(-1), ~visible.any(-1))
    )
    return rows, output.masked_fill(empty[..., None], torch.nan)


def without_keys(call: AttentionCall, masks: Mapping[int, NDArray[np.bool_]]) -> tuple[Any, Any]:
    """The rows (batch, queries, heads) that hide keys, and the kernel's outputs without these.

    `masks` has the hidden cells (heads, queries, keys) of items of the batch. Every key that some
    row of an item hides is left out of all its rows, and put back by its weight where a row does
    not hide it.
    """
    import torch

    value, (batch, queries, heads, _) = call.value, call.output.shape
    keys, size = value.shape[2:]
    masks = {
        number: np.broadcast_to(cells, (heads, queries, keys)) for number, cells in masks.items()
    }
    off = np.zeros((batch, keys), dtype=np.bool_)
    for number, cells in masks.items():
        off[number] = cells.any(axis=(0, 1))
    width = int(off.sum(1).max())
    order = np.argsort(~off, axis=1, kind="stable")[:, :width]
    back = np.zeros((batch, queries, heads, width), dtype=np.bool_)
    rows = np.zeros((batch, queries, heads), dtype=np.bool_)
    for number, cells in masks.items():
        rows[number] = cells.any(-1).T
        puts_back = ~cells[..., order[number]] & off[number, order[number]]
        back[number] = puts_back.swapaxes(0, 1) & rows[number][..., None]
    visible = torch.as_tensor(~off, device=value.device)
    output, rest, loss = call.mix(value * visible[:, None, :, None]), 0, 0
    for first in range(0, width + 1, size):
        some = torch.as_tensor(order[:, first : first + size], device=value.device)
        one_hot = value.new_zeros((batch, keys, size)).scatter_(1, some[:, None], 1)
        is_last = width < first + size
        if is_last:  # the column after the hidden keys is for all others together
            one_hot[..., width - first] = visible.to(value.dtype)
        shares = call.mix(one_hot[:, None].expand(value.shape))
        if is_last:
            rest = rest + shares[..., width - first, None]
        shares = shares[..., : some.shape[1]] * ~visible.gather(1, some)[:, None, None]
        mask = torch.as_tensor(back[..., first : first + size], device=value.device)
        shares_back = shares.masked_fill(~mask, 0)
        rest = rest + shares_back.sum(-1, keepdim=True)
        loss = loss + (shares - shares_back).sum(-1, keepdim=True)
        if mask.any():
            values = torch.stack([own[:, at] for own, at in zip(value, some, strict=True)])
            values = values.repeat_interleave(heads // value.shape[1], 1)
            output = output + (shares_back.to(value.dtype).transpose(1, 2) @ values).transpose(1, 2)
    sink = sink_shares(call)
    share = (rest + sink) / (rest + loss + sink)
    # Below its smallest normal number a type has few digits left: count that as nothing.
    share = share.where(share >= torch.finfo(share.dtype).tiny, torch.nan)
    return torch.as_tensor(rows, device=value.device), (output / share).to(value.dtype)


def upcast_half(numbers: Tensor) -> Tensor:
    """Half-precision numbers as float32."""
    return numbers.float() if numbers.itemsize < 4 else numbers
