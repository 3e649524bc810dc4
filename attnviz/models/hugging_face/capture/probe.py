"""Read attention weights from any kernel, without knowing how it works.

Every kernel is linear in its values: `output = weights @ value`. Called again with indicators as
values, it returns the weights: a column for the indicator of one key, a mass for that of a block of
keys. This includes causality, padding, windows, grouped heads, biases, soft caps and sinks, and
memory grows with queries × value size, not queries × keys. The gradient of one query's output by
the values is that query's row of weights.

A pooled weight is the sum over a block's keys and the mean over its queries, so a pooled row has
the mean sum of its rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, TokenParts

# How far weights times values may lie off the kernel's output, relative to the largest value.
DRIFT = {"float16": 1e-2, "bfloat16": 5e-2}
BLIND = 0.01  # values with less spread, relative to the largest, fit any weights
ROUNDED = 64  # roundings by which a row may sum to less than 1 without having a sink


def dtype_of(numbers: Any) -> str:
    """The precision of numbers or of a model, such as "float32"."""
    return str(numbers.dtype).removeprefix("torch.")


def broken_head(call: AttentionCall) -> int | None:
    """The first head of a call whose attention is not finite, or None.

    Fast kernels return 0 for a row whose scores are NaN or overflow, and also for one whose keys
    are all masked. So the inputs decide: they are not finite, or a row of 0 has scores too large
    for their type and the mask shows some key.
    """
    import torch

    batch, heads, length, size = call.query.shape
    output = call.output.reshape(batch, length, heads, -1).transpose(1, 2)
    for side in (call.query, call.key, call.value, output):
        # A sum shows NaN and infinity too, at a tenth of the cost of testing each number.
        if not side.sum(dtype=torch.float32).isfinite() and not side.isfinite().all():
            fine = side.isfinite().flatten(2).all(-1).all(0)
            return int(fine.logical_not().nonzero()[0]) * int(heads // len(fine))
    if not (output[..., 0] == 0).any():
        return None
    empty = (output == 0).all(-1)
    if not empty.any():
        return None
    mask = call.mask
    if isinstance(mask, torch.Tensor) and mask.ndim == 4:
        shows = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
        empty = empty & shows.any(-1)
    largest = call.key.double().norm(dim=-1).amax(-1)
    largest = largest.repeat_interleave(heads // largest.shape[1], 1)
    scaling = call.options.get("scaling") or size**-0.5
    scores = call.query.double().norm(dim=-1) * largest[..., None] * scaling
    overflows = (empty & (scores > torch.finfo(call.query.dtype).max)).any(-1).any(0).nonzero()
    return int(overflows[0]) if len(overflows) else None


def read_grid(
    call: AttentionCall, grid: PooledGrid, also: Callable[[int, Any], None] | None = None
) -> Any:
    """One call's attention, shape (batch, heads, query blocks, key blocks), float32 on the CPU.

    `also` gets each query's masses too, with the number of their first block.
    """
    import torch

    batch, heads, length, _ = call.query.shape
    queries, keys = grid.queries, grid.keys
    few = not grid.is_pooled and 4 * queries.blocks * heads < length
    if few and batch == 1:
        positions = torch.arange(queries.start, queries.stop, device=call.query.device)
        rows = exact_rows(call, positions.expand(heads, -1))
        return rows[None, :, :, keys.start : keys.stop].cpu()
    weights = torch.empty((batch, heads, queries.blocks, keys.blocks))
    for first, masses in key_masses(call, keys):
        if also:
            also(first, masses)
        means = mean_queries(masses, queries)
        weights[..., first : first + means.shape[-1]] = means.transpose(1, 2).cpu()
    return weights


def key_masses(call: AttentionCall, keys: TokenBlocks) -> Iterator[tuple[int, Any]]:
    """Each query's attention on blocks of keys, (batch, queries, heads, blocks), in parts.

    Each part comes with the number of its first block. It has as many blocks as values have
    features, because fast kernels need queries, keys and values of equal size.
    """
    import torch

    value = call.value
    size = value.shape[-1]
    positions = torch.arange(value.shape[-2], device=value.device)
    blocks = keys.block_of(positions)
    blocks[positions < keys.start] = -1
    blocks[positions >= keys.stop] = -1
    for first in range(0, keys.blocks, size):
        columns = torch.arange(first, first + size, device=value.device)
        indicator = (blocks[:, None] == columns).to(value.dtype)
        masses = call.mix(indicator.expand(value.shape))
        yield first, masses[..., : min(size, keys.blocks - first)]


def key_columns(call: AttentionCall, keys: Sequence[int]) -> Any:
    """Each query's attention on some keys, of a batch of one: (queries, heads, keys)."""
    import torch

    value = call.value
    size = value.shape[-1]
    parts = [value.new_empty((call.query.shape[2], call.query.shape[1], 0))]
    for first in range(0, len(keys), size):
        some = keys[first : first + size]
        indicator = value.new_zeros(value.shape[-2:])
        indicator[list(some), list(range(len(some)))] = 1
        parts.append(call.mix(indicator.expand(value.shape))[0, ..., : len(some)])
    return torch.cat(parts, -1)


def exact_rows(call: AttentionCall, queries: Any) -> Any:
    """Rows of weights of a batch of one, (heads, rows, keys), for queries (heads, rows)."""
    import torch

    _, groups, keys, size = call.value.shape
    heads, rows = queries.shape
    members = heads // groups
    group = torch.arange(groups, device=queries.device)[:, None]
    weights = torch.empty((heads, rows, keys), device=queries.device)
    with torch.enable_grad():
        value = call.value.detach().clone().requires_grad_()
        output = call.mix(value)
    # Heads that share values share their gradient too, so each gets its own channels.
    for first in range(0, rows * members, size):
        stop = min(first + size, rows * members)
        pairs = torch.arange(first, stop, device=queries.device)
        row, head, channel = pairs // members, group * members + pairs % members, pairs - first
        directions = torch.zeros_like(output)
        directions[0, queries[head, row], head, channel] = 1
        (gradient,) = torch.autograd.grad(output, value, directions, retain_graph=True)
        weights[head, row] = gradient[0, group, :, channel].float()
    return weights


def row_weights(call: AttentionCall, heads: Any, queries: Any) -> Any:
    """Rows of weights of a batch of one, cheaper than `exact_rows`, which runs all queries again.

    Nearly all kernels are a softmax of queries times keys. It is computed here, and used only if
    its rows times the values are what the kernel returned.

    Queries have shape (heads, rows), the result (heads, rows, keys) in float32; keys at the end
    that no query sees may be missing.
    """
    weights = recompute_rows(call, heads, queries)
    if weights is not None:
        weights = weights.float()
        value = call.value[0, heads // (call.query.shape[1] // call.value.shape[1])]
        output = call.output.view(-1, call.query.shape[1], value.shape[2])
        off = disagreement(weights, value, output[queries, heads[:, None]])
        if off <= largest_disagreement(call.value, 1e-4):
            return weights
    all_queries = queries.new_zeros((call.query.shape[1], queries.shape[1]))
    all_queries[heads] = queries
    return exact_rows(call, all_queries)[heads]


def recompute_rows(call: AttentionCall, heads: Any, queries: Any, space: Any = None) -> Any:
    """The softmax of scores with the call's mask, biases, cap and sinks, as in `row_weights`.

    None if the mask has no rows. A slice of queries is for all heads, each with keys of its own.
    """
    shares = _softmax_rows(call, heads, queries, space)
    return shares if shares is None or sink_logits(call) is None else shares[..., :-1]


def selected_keys(call: AttentionCall) -> tuple[NDArray[np.bool_], NDArray[np.float32]] | None:
    """The keys that a causal mask selects by content, and all weights; None: it selects none."""
    import torch

    mask, (heads, queries) = call.mask, call.query.shape[1:3]
    if not isinstance(mask, torch.Tensor) or mask.ndim != 4 or queries != mask.shape[-1]:
        return None
    shows = mask[0] if mask.dtype == torch.bool else mask[0] > torch.finfo(mask.dtype).min / 2
    earlier = torch.ones_like(shows).tril()
    shows = shows & earlier
    steps = torch.stack([shows.diagonal(-d, 1, 2).sum(-1) for d in range(queries)], -1)
    whole = torch.arange(queries, 0, -1, device=steps.device)
    if ((steps == 0) | (steps == whole)).all():
        return None
    own = select_heads(replace(call, mask=earlier[None]), 0, range(heads))
    weights = recompute_rows(own, None, slice(0, queries))
    return shows.expand(heads, -1, -1).cpu().numpy(), weights.float().cpu().numpy()


def sink_logits(call: AttentionCall) -> Any:
    """The logit of each row's sink, (batch or 1, heads, queries or 1, 1), or None."""
    logits = call.options.get("s_aux")
    logits = call.options.get("sinks") if logits is None else logits
    return logits if logits is None or logits.ndim == 4 else logits[None, :, None, None]


def sink_shares(call: AttentionCall) -> Any:
    """The share of each row that its sink takes, (batch, queries, heads, 1); 0 without a sink.

    It is computed from the sink's logit: in a sharp row 1 minus the weights is only rounding. An
    AttentionError if the kernel uses the logit in another way.
    """
    import torch

    whole = call.mix(torch.ones_like(call.value))[..., :1]
    if sink_logits(call) is None:
        sink = 1 - whole
        return sink.where(sink > ROUNDED * torch.finfo(sink.dtype).eps, 0)
    heads = range(call.query.shape[1])
    parts = (select_heads(call, text, heads) for text in range(len(call.query)))
    rows = [_softmax_rows(part, None, slice(0, part.query.shape[2])) for part in parts]
    if rows[0] is not None:
        sink = torch.stack([shares[..., -1:].transpose(0, 1) for shares in rows])
        if float((1 - sink - whole).abs().max()) <= DRIFT.get(dtype_of(call.value), 1e-4):
            return sink
    raise AttentionError(
        f"what the sinks of '{type(call.module).__name__}' take cannot be read of its kernel: load "
        "the model with attn_implementation 'eager'"
    )


def select_heads(call: AttentionCall, text: int, heads: range) -> AttentionCall:
    """Some heads of one text as a call, each with keys and values of its own."""
    import torch

    batch, all_heads, length, _ = call.query.shape
    own = slice(heads.start, heads.stop)
    group = torch.tensor(heads) // (all_heads // call.key.shape[1])
    options = {
        **call.options,
        "position_bias": _bias_of_heads(call.options.get("position_bias"), text, own),
        "s_aux": _bias_of_heads(sink_logits(call), text, own),
        "sinks": None,
    }
    return replace(
        call,
        query=call.query[text, None, own],
        key=call.key[text, None, group],
        value=call.value[text, None, group],
        mask=_bias_of_heads(call.mask, text, own),
        options=options,
        output=call.output.reshape(batch, length, all_heads, -1)[text, :, own].transpose(0, 1),
        scores=None if call.scores is None else call.scores[text, None, own],
    )


def _bias_of_heads(bias: Any, text: int, heads: slice) -> Any:
    if getattr(bias, "ndim", 0) != 4:
        return bias
    return bias[text % len(bias), None, heads if bias.shape[1] > 1 else slice(None)]


def _softmax_rows(call: AttentionCall, heads: Any, queries: Any, space: Any = None) -> Any:
    """As `recompute_rows`, with a column for the sink after the keys."""
    import torch

    scores = score_rows(call, heads, queries, space)
    return scores if scores is None else torch.softmax(scores, -1, out=scores)


def score_rows(call: AttentionCall, heads: Any, queries: Any, space: Any = None) -> Any:
    """What the softmax is taken of, as `_softmax_rows`; masked keys have −∞ or their mask's."""
    import torch

    options, mask = call.options, call.mask
    if call.scores is not None or not (mask is None or getattr(mask, "ndim", 0) == 4):
        return None if call.scores is None else call.scores[0, :, queries]
    all_heads, length, size = call.query.shape[1:]
    if isinstance(queries, slice):
        own = group = slice(None)
        first, stop = queries.start, queries.stop
    else:
        own, group = heads[:, None], heads // (all_heads // call.key.shape[1])
        first, stop = int(queries.min()), int(queries.max()) + 1
    causal = mask is None and length > 1 and is_causal(call)
    count = min(stop, call.key.shape[2]) if causal else call.key.shape[2]
    scaling = options.get("scaling") or size**-0.5
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    query = call.query[0, own, queries].to(dtype) * scaling
    key = call.key[0, group, :count].to(dtype)
    if space is not None:
        space = space[: len(query) * query.shape[1] * count].view(len(query), -1, count)
    scores = torch.bmm(query, key.transpose(1, 2), out=space)
    if (cap := options.get("softcap")) is not None:
        scores.div_(cap).tanh_().mul_(cap)
    for bias in (options.get("position_bias"), mask):
        if bias is not None:
            rows = bias.expand(-1, all_heads, length, -1)[0, own, queries, :count]
            if rows.dtype == torch.bool:
                scores.masked_fill_(rows.logical_not(), -torch.inf)
            else:
                scores += rows
    if causal:
        later = _later_keys(queries, count, scores.device)
        scores[..., first + 1 :].masked_fill_(later, -torch.inf)
    sinks = sink_logits(call)
    if sinks is not None:
        sink = sinks.expand(-1, all_heads, length, -1)[0, own, queries]
        scores = torch.cat([scores, sink.to(dtype)], -1)
    return scores


def _later_keys(queries: Any, count: int, device: Any) -> Any:
    """Which keys behind the first row's are hidden from each row."""
    import torch

    if isinstance(queries, slice):
        return _triangle(queries.stop - queries.start, max(count - queries.start - 1, 0), device)
    return torch.arange(int(queries.min()) + 1, count, device=device) > queries[..., None]


@lru_cache(8)
def _triangle(rows: int, keys: int, device: Any) -> Any:
    """The same for each head."""
    import torch

    return torch.ones((rows, keys), dtype=torch.bool, device=device).triu()


def is_causal(call: AttentionCall) -> bool:
    """Whether a kernel without a mask hides later keys."""
    option = call.options.get("is_causal")
    return bool(getattr(call.module, "is_causal", True) if option is None else option)


def disagreement(weights: Any, value: Any, output: Any) -> float:
    """The largest error of weights (heads, rows, keys) times values."""
    return float((weights @ value[:, : weights.shape[2]].float() - output).abs().max())


def largest_disagreement(value: Any, share: float) -> float:
    """The error that is allowed, in float32 this share of the largest value.

    It is negative if a head's values are nearly equal for all keys, since any weights would agree.
    """
    full = value.float()
    if (full.std(2, correction=0).amax(-1) <= BLIND * full.abs().amax((2, 3))).any():
        return -1.0
    return DRIFT.get(dtype_of(value), share) * float(full.abs().max())


def mean_queries(masses: Any, queries: TokenBlocks) -> Any:
    """The float32 mean over each block of queries, shape (batch, query blocks, heads, …)."""
    import torch

    rows = masses[:, queries.start : queries.stop]
    if queries.length == 1:
        return rows.float()
    if isinstance(queries, TokenParts):
        parts = rows.split([stop - first for first, stop in queries.spans], 1)
        return torch.cat([own.mean(1, keepdim=True, dtype=torch.float32) for own in parts], 1)
    even = rows.shape[1] // queries.length * queries.length
    blocks = rows[:, :even].unflatten(1, (-1, queries.length))
    means = blocks.mean(2, dtype=torch.float32)
    if even == rows.shape[1]:
        return means
    rest = rows[:, even:].mean(1, keepdim=True, dtype=torch.float32)
    return torch.cat([means, rest], 1)


def pool_array(weights: NDArray[np.float32], grid: PooledGrid) -> NDArray[np.float32]:
    """Pool weights of shape (heads, queries, keys) to the blocks of a grid."""
    queries, keys = grid.queries, grid.keys
    part = weights[:, queries.start : queries.stop, keys.start : keys.stop]
    if not grid.is_pooled:
        return np.ascontiguousarray(part)
    firsts = [[first - side.start for first, _ in side.spans] for side in (keys, queries)]
    sums = np.add.reduceat(part, firsts[0], axis=2)
    sums = np.add.reduceat(sums, firsts[1], axis=1)
    counts = np.array([stop - first for first, stop in queries.spans], dtype=np.float32)
    return np.asarray(sums / counts[:, None], dtype=np.float32)
