"""Measures of a kernel call's scores before the softmax, from tiles of whole rows.

They are computed again from queries and keys, and kept if their softmax gives the kernel's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import ScoreStudy, peak
from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.hugging_face.capture.probe import (
    DRIFT,
    disagreement,
    dtype_of,
    largest_disagreement,
    score_rows,
    select_heads,
)
from attnviz.models.hugging_face.capture.region import PooledGrid

CELLS = 2**20
"""Scores that exist at once."""
MASKED = -9e3
"""What masks add to hide a key lies below: −∞, the smallest number, −1e9 or −1e4."""
FILLED = -1e8
"""Scores of hand-written attention that lie below are hidden, as are those of exactly −1e4."""
ROUNDING = 8
CallScores = dict[str, NDArray[np.float64]]


def read_scores(call: Call, grid: PooledGrid, weights: Any) -> CallScores:
    """The measures of each head of a batch of one; none where its scores are not known.

    `weights` (1, heads, query blocks, key blocks) are what the softmax must give.
    """
    import torch

    heads, keys = call.query.shape[1], call.key.shape[2]
    rows = grid.queries.stop - grid.queries.start
    study = ScoreStudy(heads, rows, keys, grid.queries.start)
    whole = not grid.is_pooled and grid.keys.blocks == keys
    most = max(CELLS // keys, 1)
    together = max(most // rows, 1)
    allowed = DRIFT.get(dtype_of(call.value), 1e-4)
    with torch.no_grad():
        for first in range(0, heads, together):
            own = range(heads)[first : first + together]
            part = select_heads(call, 0, own)
            for row in range(0, rows, most):
                span = slice(row + grid.queries.start, min(row + most, rows) + grid.queries.start)
                scores = score_rows(part, None, span)
                if scores is None:
                    return {}
                shares = torch.softmax(scores, -1)[..., : part.key.shape[2]]
                if whole:
                    given = torch.as_tensor(weights[0, own.start : own.stop, row : row + most])
                    off = float((shares.float().cpu() - given[..., : shares.shape[2]]).abs().max())
                else:
                    off = disagreement(shares.float(), part.value[0], part.output[:, span].float())
                # The larger the scores, the more of each weight is their rounding.
                largest = scores.where(scores > FILLED, 0).abs().max()
                slack = allowed + ROUNDING * torch.finfo(call.query.dtype).eps * float(largest)
                if not off <= (slack if whole else largest_disagreement(call.value, slack)):
                    return {}
                add_tile(study, slice(own.start, own.stop), part, span, (scores, shares))
    return study.values() | vector_norms(study, call)


def add_tile(study: ScoreStudy, heads: slice, part: Call, span: slice, tile: Any) -> None:
    """Add whole rows of some heads: `tile` has scores and shares, each (heads, rows, keys)."""
    scores, shares = (side.float().cpu().numpy() for side in tile)
    scores = scores[..., : shares.shape[2]]
    mask = part.mask
    if part.scores is not None:
        scores = np.where((scores < FILLED) | (scores == -1e4), -np.inf, scores)
    elif mask is not None and mask.is_floating_point():
        rows = mask.expand(-1, -1, part.query.shape[2], -1)[0, :, span, : scores.shape[2]]
        scores = np.where((rows < MASKED).cpu().numpy(), -np.inf, scores)
    study.add(heads, span.start - study.start, scores, shares)


def vector_norms(study: ScoreStudy, call: Call) -> CallScores:
    """Norms of the queries, keys and values of each head."""
    heads = call.query.shape[1]

    def spread(side: Any) -> Any:
        array = side[0].detach().float().cpu().numpy()
        return array.repeat(heads // len(array), axis=0)

    known = call.scores is None  # else of queries and keys only their number is
    query, key = (spread(side) if known else None for side in (call.query, call.key))
    return study.norms(query, key, spread(call.value))


@contextmanager
def watch_peaks(model: Any) -> Iterator[Callable[[str], float]]:
    """In a block of code, how much the largest coordinate of a layer's input stands out.

    The layer of a module is the innermost item of a list of modules around it.
    """
    found = dict[str, float]()

    def look(path: str, given: Any) -> None:
        if given and getattr(given[0], "ndim", 0) >= 3:
            found[path] = peak(given[0].detach().float().cpu().numpy())

    def hook(path: str) -> Any:
        return lambda _module, args, named: look(path, args or (named.get("hidden_states"),))

    handles = [
        part.register_forward_pre_hook(hook(path), with_kwargs=True)
        for path, part in model.named_modules()
        if path.rpartition(".")[2].isdigit()
    ]
    try:
        yield lambda path: found.get(layer_of(path, found), np.nan)
    finally:
        for handle in handles:
            handle.remove()


def layer_of(path: str, known: Any) -> str:
    """The innermost of the known paths around a module; empty where there is none."""
    while path and path not in known:
        path = path.rpartition(".")[0]
    return path
