"""The queries and keys of a kernel's call, and measures of their scores before the softmax.

Queries and keys are taken after rotary embedding and normalisation, so the softmax of their scaled
products is the weight, unless the model adds other terms to the scores. The measures come from
tiles of whole rows, and are kept if their softmax gives the kernel's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import ScoreStudy, peak
from attnviz.core.attention_map import Projections
from attnviz.core.errors import AttentionError, UsageError
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
    tolerance = DRIFT.get(dtype_of(call.value), 1e-4)
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
                    truth = torch.as_tensor(weights[0, own.start : own.stop, row : row + most])
                    off = float((shares.float().cpu() - truth[..., : shares.shape[2]]).abs().max())
                else:
                    off = disagreement(shares.float(), part.value[0], part.output[:, span].float())
                # The larger the scores, the more of each weight is their rounding.
                largest = scores.where(scores > FILLED, 0).abs().max()
                slack = tolerance + ROUNDING * torch.finfo(call.query.dtype).eps * float(largest)
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

    are_known = call.scores is None  # else of queries and keys only their number is
    query, key = (spread(side) if are_known else None for side in (call.query, call.key))
    return study.norms(query, key, spread(call.value))


@contextmanager
def watch_peaks(model: Any) -> Iterator[Callable[[str], float]]:
    """In a block of code, how much the largest coordinate of a layer's input stands out.

    The layer of a module is the innermost item of a list of modules around it.
    """
    peaks = dict[str, float]()

    def look(path: str, inputs: Any) -> None:
        if inputs and getattr(inputs[0], "ndim", 0) >= 3:
            peaks[path] = peak(inputs[0].detach().float().cpu().numpy())

    def hook(path: str) -> Any:
        return lambda _module, args, kwargs: look(path, args or (kwargs.get("hidden_states"),))

    handles = [
        part.register_forward_pre_hook(hook(path), with_kwargs=True)
        for path, part in model.named_modules()
        if path.rpartition(".")[2].isdigit()
    ]
    try:
        yield lambda path: peaks.get(layer_of(path, peaks), np.nan)
    finally:
        for handle in handles:
            handle.remove()


def layer_of(path: str, paths: Any) -> str:
    """The innermost of the known paths around a module; empty where there is none."""
    while path and path not in paths:
        path = path.rpartition(".")[0]
    return path


@dataclass(frozen=True, slots=True, eq=False)
class CapturedProjections:
    """One call's queries and keys."""

    query: NDArray[np.float32]  # (heads, queries, head size)
    key: NDArray[np.float32]  # (heads, keys, head size)
    scale: float  # of the products
    extra_terms: tuple[str, ...] = ()  # other terms of the scores


def check_grids(grids: Mapping[str, PooledGrid], sides: Mapping[str, tuple[int, int]]) -> None:
    """Refuse to keep queries and keys of blocks of tokens or of a part of the keys."""
    for stream, grid in grids.items():
        if grid.is_pooled or grid.keys.blocks < sides[stream][1]:
            raise UsageError(
                "--keep-qk needs every key by itself, and a part of a text or blocks of its tokens "
                "were to be shown: leave --window out, or give a larger --max-size or fewer tokens"
            )


def project_call(call: Call, grid: PooledGrid) -> CapturedProjections:
    """A grid's queries and all keys of a call with a batch of one."""
    query, key = call.query[0], call.key[0]
    key = key.repeat_interleave(len(query) // len(key), dim=0)
    scale = call.options.get("scaling")
    query = query[:, grid.queries.start : grid.queries.stop]
    return CapturedProjections(
        query.float().cpu().numpy(),
        key.float().cpu().numpy(),
        query.shape[-1] ** -0.5 if scale is None else float(scale),
        tuple(extra_terms(call)),
    )


def extra_terms(call: Call) -> Iterator[str]:
    """The names of terms that a call adds to scaled products, a mask and a softmax."""
    import torch

    mask, bias = call.mask, call.options.get("position_bias")
    if mask is not None and mask.dtype != torch.bool:
        # A mask hides by adding the smallest number, sometimes twice.
        visible = mask[mask > torch.finfo(mask.dtype).min / 2]
        if visible.any():
            yield "a bias in the mask"
    if bias is not None and bias.any():
        yield "a position bias"
    if call.options.get("softcap") is not None:
        yield f"a soft cap of {call.options['softcap']:g}"
    if call.options.get("s_aux") is not None:
        yield "a sink"


def stack_projections(layers: Mapping[str, CapturedProjections], kind: str) -> Projections:
    """A stream's queries and keys, layer by layer."""
    items = list(layers.values())
    if len({(item.query.shape, item.key.shape, item.scale) for item in items}) > 1:
        raise AttentionError(
            f"the layers of architecture '{kind}' differ in heads, head size or scale, and "
            "--keep-qk shows one of each: leave it out"
        )
    query = np.stack([item.query for item in items])
    key = np.stack([item.key for item in items])
    heads = tuple(map(str, range(query.shape[1])))
    more = " and ".join(dict.fromkeys(name for item in items for name in item.extra_terms))
    return Projections(query, key, items[0].scale, tuple(layers), heads, more)
