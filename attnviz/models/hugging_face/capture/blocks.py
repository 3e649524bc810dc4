"""Read a call's weights in blocks of rows, for folds that need no whole matrix.

The softmax of queries times keys is computed anew, block by block, and rows of each block times the
values must be what the kernel returned. A block has all heads of a layer: memory grows with the
length of the text, not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any

import numpy as np

from attnviz.analyses.blocks import BlockStudy, LayerFolds
from attnviz.analyses.entropy import ScoreStudy
from attnviz.analyses.folds import ROWS, RowBlock
from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture import probe
from attnviz.models.hugging_face.capture.scores import CallScores, add_tile, vector_norms

BYTES = 2**26
"""Of the weights and their logarithms that exist at once, over all threads."""
HIDDEN = -1e30
"""The score of a hidden key: its weight is 0, and its logarithm is a number."""
EVERY = 5
"""Of so many rows one is compared with what the kernel returned."""
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

    heads, keys = call.query.shape[1], call.key.shape[2]
    threads = torch.get_num_threads()
    rows = max(min(ROWS, BYTES // (threads * 8 * heads * keys)), 1)
    folds = study.start()
    score_study = ScoreStudy(heads, call.query.shape[2], keys) if scores else None
    part = probe.select_heads(call, 0, range(heads))
    truth, most = None, probe.largest_disagreement(call.value, AGREEMENT)
    if most < 0:  # any weights give these values
        truth = probe.key_columns(call, range(0, keys, -(-keys // call.value.shape[-1])))
        most = probe.DRIFT.get(probe.dtype_of(call.value), AGREEMENT)
    spans = [
        slice(first, min(first + rows, call.query.shape[2]))
        for first in range(0, call.query.shape[2], rows)
    ]

    spaces = local()

    def read(span: slice) -> list[Any]:
        space = getattr(spaces, "own", None)
        if space is None:  # each thread has its own, so that no memory is asked for again
            space = spaces.own = torch.empty((2, heads * rows * (keys + 1)))
        with torch.no_grad():
            block, raw = _block(
                path, part, span, (truth, most), space, keep=score_study is not None
            )
            if score_study is not None:
                shares = torch.from_numpy(block.weights)
                add_tile(score_study, slice(0, heads), part, span, (raw, shares))
            return [fold.part(block) for fold in folds.folds.values()]

    for parts in _in_order(read, spans, threads):
        for fold, one in zip(folds.folds.values(), parts, strict=True):
            fold.add(one)
    if score_study is None:
        return folds, {}
    return folds, score_study.values() | vector_norms(score_study, call)


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
    path: str, call: AttentionCall, rows: slice, truth: tuple[Any, float], space: Any, *, keep: bool
) -> tuple[RowBlock, Any]:
    """Some rows of all heads, and their scores if they are to be raw."""
    import torch

    scores = probe.score_rows(call, None, rows, space[0])
    if scores is None:
        raise _unread(path)
    raw = scores.clone() if keep else None
    if call.mask is None and call.scores is None:  # only the latest keys are hidden
        latest = scores[..., rows.start :]
        empty = None
    else:
        latest = scores
        empty = scores.amax(-1) == -torch.inf
    latest.clamp_(min=HIDDEN)
    logs, weights = space[1][: scores.numel()].view(scores.shape), scores
    for head, own in zip(logs, scores, strict=True):  # those of one stay in the cache
        torch.log_softmax(own, -1, out=head)
        torch.exp(head, out=own)
    if empty is not None and empty.any():  # a row of padding
        weights[empty] = 0
    sums = np.ones(weights.shape[:2])
    if probe.sink_logits(call) is not None:
        sums = 1 - weights[..., -1].double().cpu().numpy()
        logs, weights = logs[..., :-1], weights[..., :-1]
    if empty is not None:
        sums[empty.cpu().numpy()] = 0
    _check(path, call, rows, weights, truth)
    return RowBlock(
        weights.float().cpu().numpy(), rows.start, logs.float().cpu().numpy(), sums
    ), raw


def _check(
    path: str, call: AttentionCall, rows: slice, weights: Any, truth: tuple[Any, float]
) -> None:
    """Refuse rows that are not the kernel's, by what it returned or by some of its columns."""
    columns, most = truth
    if columns is None:
        some = slice(-max((rows.stop - rows.start) // EVERY, 1), None)  # neighbours are faster
        output = call.output[:, rows][:, some].float()
        off = probe.disagreement(weights[:, some], call.value[0], output)
    else:
        step = -(-call.key.shape[2] // call.value.shape[-1])
        own = weights[..., ::step]
        off = float((own - columns[rows].transpose(0, 1)[..., : own.shape[-1]]).abs().max())
    if not off <= most:
        raise _unread(path)


def _unread(path: str) -> AttentionError:
    return AttentionError(
        f"'{path}' cannot be read in blocks of rows: its kernel is no softmax of scaled products; "
        "give a text of at most 1,024 tokens"
    )
