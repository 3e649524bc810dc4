"""Attention weights read from any kernel, without knowing how it works.

Every attention kernel is linear in its values, `output = weights @ value`. Called again with
indicators for values it gives the weights themselves: with the indicator of one key its column,
with that of a block of keys their mass. Whatever the kernel does about causality, padding, windows,
grouped heads, position bias, soft caps or sinks is in the answer, and memory grows with queries ×
value size instead of queries × keys.

The transpose answers for rows: the derivative of one query's output with respect to the values is
that query's row of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnviz.models.hugging_face.capture.extent import Axis
from attnviz.models.hugging_face.capture.kernel import Call


def key_masses(call: Call, keys: Axis) -> Iterator[tuple[int, Any]]:
    """For each query the attention on each block of keys.

    Args:
        call: a kernel's call.
        keys: the keys in blocks.

    Yields:
        the first block's number, and masses of shape (batch, queries, heads, blocks); as many
        blocks at a time as the values are wide, because fast kernels want queries, keys and values
        of equal size.
    """
    import torch

    value = call.value
    size = value.shape[-1]
    positions = torch.arange(value.shape[-2], device=value.device)
    blocks = torch.div(positions - keys.start, keys.length, rounding_mode="floor")
    blocks[positions >= keys.stop] = -1
    for first in range(0, keys.blocks, size):
        columns = torch.arange(first, first + size, device=value.device)
        indicator = (blocks[:, None] == columns).to(value.dtype)
        masses = call.mix(indicator.expand(value.shape))
        yield first, masses[..., : min(size, keys.blocks - first)]


def key_columns(call: Call, keys: Sequence[int]) -> Any:
    """For each query the attention on some single keys, shape (queries, heads, keys).

    Args:
        call: a kernel's call with a batch of one.
        keys: positions.
    """
    import torch

    value = call.value
    size = value.shape[-1]
    found = [value.new_empty((call.query.shape[2], call.query.shape[1], 0))]
    for first in range(0, len(keys), size):
        some = keys[first : first + size]
        indicator = value.new_zeros(value.shape[-2:])
        indicator[list(some), list(range(len(some)))] = 1
        found.append(call.mix(indicator.expand(value.shape))[0, ..., : len(some)])
    return torch.cat(found, -1)


def exact_rows(call: Call, queries: Any) -> Any:
    """Whole rows of weights, for queries of each head's own choice.

    Args:
        call: a kernel's call with a batch of one.
        queries: positions, shape (heads, rows).

    Returns:
        shape (heads, rows, keys).
    """
    import torch

    _, groups, keys, size = call.value.shape
    heads, rows = queries.shape
    members = heads // groups
    group = torch.arange(groups, device=queries.device)[:, None]
    weights = torch.empty((heads, rows, keys), device=queries.device)
    with torch.enable_grad():
        value = call.value.detach().clone().requires_grad_()
        output = call.mix(value)
    # Heads that share their values share the gradient too, so each gets channels of its own.
    for first in range(0, rows * members, size):
        stop = min(first + size, rows * members)
        pairs = torch.arange(first, stop, device=queries.device)
        row, head, channel = pairs // members, group * members + pairs % members, pairs - first
        wanted = torch.zeros_like(output)
        wanted[0, queries[head, row], head, channel] = 1
        (gradient,) = torch.autograd.grad(output, value, wanted, retain_graph=True)
        weights[head, row] = gradient[0, group, :, channel].float()
    return weights


# <row_weights> Whole rows of weights of some queries, at the cost of those rows alone.
#
# A kernel that is asked for them (`probe.exact_rows`) works through all queries again, for as
# many rows as values are wide. Nearly all kernels are one softmax of queries times keys, which
# costs no more than the rows wanted; but what a kernel adds to it, nobody can know. So the
# softmax is written out, and believed only where it makes of the values what the kernel itself
# gave back.

DRIFT = {"float16": 1e-2, "bfloat16": 5e-2}
"""How far, relative to the largest value, what rows mix may lie off what the kernel gave back;
elsewhere 1e-4."""


def row_weights(call: Call, heads: Any, queries: Any) -> Any:
    """Whole rows of weights, as the kernel applies them.

    Args:
        call: a kernel's call with a batch of one.
        heads: their numbers, shape (heads,).
        queries: positions, for each of these heads its own, shape (heads, rows).

    Returns:
        float32 of shape (heads, rows, keys); keys that none of the queries sees may be left out at
        the end.
    """
    weights = written_out(call, heads, queries)
    if weights is not None and explains(call, heads, queries, weights):
        return weights
    wanted = queries.new_zeros((call.query.shape[1], queries.shape[1]))
    wanted[heads] = queries
    return exact_rows(call, wanted)[heads]


def written_out(call: Call, heads: Any, queries: Any) -> Any:
    """The softmax of scores, with whatever masks, biases, caps and sinks the call names.

    Returns:
        as `row_weights`; None where the mask is none that has rows.
    """
    import torch

    options, mask = call.options, call.mask
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 4):
        return None
    all_heads, length, size = call.query.shape[1:]
    causal = mask is None and length > 1 and is_causal(call)
    seen = int(queries.max()) + 1 if causal else call.key.shape[2]
    scaling = options.get("scaling") or size**-0.5
    query = call.query[0, heads[:, None], queries].float() * scaling
    key = call.key[0, heads // (all_heads // call.key.shape[1]), :seen].float()
    scores = query @ key.transpose(1, 2)
    cap = options.get("softcap")
    if cap is not None:
        scores = (scores / cap).tanh_().mul_(cap)
    for bias in (options.get("position_bias"), mask):
        if bias is not None:
            own = bias[0, heads[:, None] % bias.shape[1], queries % bias.shape[2], :seen]
            hidden = own.logical_not() if own.dtype == torch.bool else None
            scores = scores + own if hidden is None else scores.masked_fill_(hidden, -torch.inf)
    if causal:
        later = torch.arange(seen, device=scores.device) > queries[..., None]
        scores.masked_fill_(later, -torch.inf)
    sinks = options.get("s_aux")
    if sinks is not None:
        sink = sinks[heads].float()[:, None, None].expand(-1, queries.shape[1], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return scores.softmax(-1)


def is_causal(call: Call) -> bool:
    """True where a call without a mask leaves it to the kernel to hide later keys."""
    said = call.options.get("is_causal")
    return bool(getattr(call.module, "is_causal", True) if said is None else said)


def explains(call: Call, heads: Any, queries: Any, weights: Any) -> bool:
    """True where rows of weights make of the values what the kernel gave back."""
    all_heads, value = call.query.shape[1], call.value
    own = value[0, heads // (all_heads // value.shape[1]), : weights.shape[2]].float()
    given = call.output.view(-1, all_heads, value.shape[3])[queries, heads[:, None]].float()
    dtype = str(value.dtype).removeprefix("torch.")
    off = (weights @ own - given).abs().max()
    return bool(off <= DRIFT.get(dtype, 1e-4) * value.abs().max().float())
