"""Read a call's weights in blocks of rows, for folds that need no whole matrix.

The softmax of queries times keys is computed anew, some rows of a head at a time, and rows of each
block times the values must be what the kernel returned. A block stays in the processor's cache
until all folds have read it: memory grows with the length of the text, not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import local
from typing import Any

import numpy as np

from attnviz.analyses.blocks import BlockStudy, LayerFolds
from attnviz.analyses.entropy import ScoreStudy
from attnviz.analyses.folds import RowBlock, room_for
from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture import probe
from attnviz.models.hugging_face.capture.kernel import group_size
from attnviz.models.hugging_face.capture.scores import CallScores, add_tile, vector_norms

CELLS, ROWS = 2**19, 128
"""Of a block at most; a block of a long text has more than so many cells rather than few rows."""
FEWEST = 8
HIDDEN = -1e30
"""The score of a hidden key: its weight is 0, and its logarithm is a number."""
EVERY = 5
"""Of so many blocks one is compared with what the kernel returned, and the last."""
Truth = tuple[Any, float]  # columns of weights, or None, and the largest error
AGREEMENT = 1e-4
"""Largest error of rows times values in float32, relative to the largest value."""


def read_blocks(
    path: str, call: AttentionCall, study: BlockStudy, *, scores: bool = False
) -> tuple[LayerFolds, CallScores]:
    """The folds of a call, which have seen all rows, and the measures of its scores.

    Raises:
        AttentionError: the kernel is no softmax of scaled products, its mask and its biases.
    """
    import torch

    heads, rows, keys = call.query.shape[1], call.query.shape[2], call.key.shape[2]
    threads = torch.get_num_threads()
    folds = study.start(group_size(call))
    score_study = ScoreStudy(heads, rows, keys) if scores else None
    truth, most = None, probe.largest_disagreement(call.value, AGREEMENT)
    if most < 0:  # any weights give these values
        truth = probe.key_columns(call, range(0, keys, -(-keys // call.value.shape[-1])))
        most = probe.DRIFT.get(probe.dtype_of(call.value), AGREEMENT)
    of_heads = [
        _laid_out(probe.select_heads(call, 0, range(head, head + 1))) for head in range(heads)
    ]
    spans = [*_spans(rows, keys)]
    tests = [*spans[::EVERY], spans[-1]]
    largest = max((span.stop - span.start + 1) * (keys + span.stop - span.start) for span in spans)
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    spaces = local()

    def read(span: slice) -> list[Any]:
        space = getattr(spaces, "own", None)
        if space is None:  # each thread has its own, so that no memory is asked for again
            space = spaces.own = (
                torch.empty(largest, dtype=dtype, device=call.query.device),
                torch.empty(largest),
            )
        common: dict[Any, Any] = {}

        def blocks() -> Iterator[RowBlock]:
            for head, part in enumerate(of_heads):
                own = (None if truth is None else truth[:, head], most) if span in tests else None
                block, raw = _block(path, part, span, own, space, keep=scores)
                if score_study is not None:
                    tile = raw, torch.from_numpy(block.weights)
                    add_tile(score_study, slice(head, head + 1), part, span, tile)
                yield replace(block, common=common)

        with torch.no_grad():
            return folds.parts(blocks())

    for parts in _in_order(read, spans, threads):
        folds.add(parts)
    if score_study is None:
        return folds, {}
    return folds, score_study.values() | vector_norms(score_study, call)


def _laid_out(call: AttentionCall) -> AttentionCall:
    """The call of a head with its keys' coordinates apart, which products read faster."""
    return replace(call, key=call.key.transpose(2, 3).contiguous().transpose(2, 3))


def _spans(rows: int, keys: int) -> Iterator[slice]:
    """The rows of each block."""
    first = 0
    while first < rows:
        count = min(CELLS // max(first, 1) if rows == keys else CELLS // keys, ROWS)
        yield slice(first, first := min(first + max(count, min(FEWEST, ROWS)), rows))


def _in_order(
    read: Callable[[slice], list[Any]], spans: list[slice], threads: int
) -> Iterator[list[Any]]:
    """What is read of each span, in order; each thread has rows of its own."""
    import torch

    if threads == 1:
        yield from map(read, spans)
        return
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for first in range(0, len(spans), 4 * threads):  # what waits to be joined is small
                yield from pool.map(read, spans[first : first + 4 * threads])
        finally:
            torch.set_num_threads(threads)


def _block(
    path: str,
    call: AttentionCall,
    rows: slice,
    truth: tuple[Any, float] | None,
    space: Any,
    *,
    keep: bool,
) -> tuple[RowBlock, Any]:
    """Some rows of a head, and their scores if they are to be raw."""
    import torch

    scores = probe.score_rows(call, None, rows, space[0])
    if scores is None:
        raise _unread(path)
    raw = scores.clone() if keep else None
    scores, has_sink = scores[0], probe.sink_logits(call) is not None
    top = scores.amax(-1, keepdim=True)
    if call.mask is None and call.scores is None:  # only the latest keys are hidden
        latest, empty = scores[:, rows.start :], None
    else:
        latest, empty = scores, (top == -torch.inf)[:, 0].cpu().numpy()
    latest.clamp_(min=HIDDEN)
    scores -= top.clamp_(min=HIDDEN)
    sink = scores[:, -1].exp().double().cpu().numpy() if has_sink else 0
    scores = scores[:, : scores.shape[1] - has_sink]
    cells, apart = room_for(space[1].numpy(), *scores.shape)
    weights = torch.from_numpy(cells)
    if scores.device.type == "cpu":
        torch.exp(scores, out=weights)
    else:
        weights.copy_(scores.exp())
    inside = weights.sum(-1).numpy().astype(np.float64)
    terms = np.einsum("ij,ij->i", cells, scores.float().cpu().numpy())
    with np.errstate(divide="ignore", invalid="ignore"):  # where the sink takes all
        # Both terms are positive, so that no digit is lost.
        entropies = np.maximum(np.log(inside) - terms / inside, 0)
    by = 1 / (inside + sink)
    cells *= by[:, None].astype(np.float32)
    sums = inside * by
    if empty is not None:  # a row of padding
        cells[empty], sums[empty], entropies[empty], by[empty] = 0, 0, np.nan, 0
    if truth is not None:
        _check(path, call, rows, weights, truth)
    facts = sums[None], entropies[None], None if has_sink else by[None]
    return RowBlock(cells[None], rows.start, *facts, apart), raw


def _check(path: str, call: AttentionCall, rows: slice, weights: Any, truth: Truth) -> None:
    """Refuse rows that are not the kernel's, by what it returned or by some of its columns."""
    columns, most = truth
    if columns is None:
        output = call.output[:, rows].float().cpu()
        off = probe.disagreement(weights[None], call.value[0].cpu(), output)
    else:
        own = weights[..., :: -(-call.key.shape[2] // call.value.shape[-1])]
        off = float((own - columns[rows][:, : own.shape[-1]].cpu()).abs().max())
    if not off <= most:
        raise _unread(path)


def _unread(path: str) -> AttentionError:
    return AttentionError(
        f"'{path}' cannot be read in blocks of rows: its kernel is no softmax of scaled products; "
        "give a text of at most 1,024 tokens"
    )
