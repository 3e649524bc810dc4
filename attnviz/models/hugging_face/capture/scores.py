"""Scores before the softmax, and the weights that they give, in tiles of whole rows.

Queries and keys are taken after rotary embedding and normalisation, so the softmax of their scaled
products is the weight, unless the model adds other terms to the scores. The measures are kept if
the softmax of the scores gives the kernel's output.

Nearly all kernels are such a softmax. On a CPU it is cheaper to compute that again, some rows of a
head at a time, than to probe the kernel for each slice of blocks: a tile stays in the cache, and
since every weight is seen once, the strongest links come with the map. Each pooled tile times the
values must be the kernel's output for its queries. If one is not, the call is probed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import ScoreStudy, peak
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Projections
from attnviz.core.errors import AttentionError, UsageError
from attnviz.models.hugging_face.capture import probe, region
from attnviz.models.hugging_face.capture.exact_links import (
    IgnoredPositions,
    Strongest,
    StrongestCells,
    drop_ignored,
)

CELLS = 2**20
"""Scores that exist at once."""
MASKED = -9e3
"""What masks add to hide a key lies below: −∞, the smallest number, −1e9 or −1e4."""
FILLED = -1e8
"""Scores of hand-written attention that lie below are hidden, as are those of exactly −1e4."""
ROUNDING = 8
CallScores = dict[str, NDArray[np.float64]]


def read_scores(call: AttentionCall, grid: region.PooledGrid, weights: Any) -> CallScores:
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
    tolerance = probe.DRIFT.get(probe.dtype_of(call.value), 1e-4)
    with torch.no_grad():
        for first in range(0, heads, together):
            own = range(heads)[first : first + together]
            part = probe.select_heads(call, 0, own)
            for row in range(0, rows, most):
                span = slice(row + grid.queries.start, min(row + most, rows) + grid.queries.start)
                scores = probe.score_rows(part, None, span)
                if scores is None:
                    return {}
                shares = torch.softmax(scores, -1)[..., : part.key.shape[2]]
                if whole:
                    truth = torch.as_tensor(weights[0, own.start : own.stop, row : row + most])
                    off = float((shares.float().cpu() - truth[..., : shares.shape[2]]).abs().max())
                else:
                    off = probe.disagreement(
                        shares.float(), part.value[0], part.output[:, span].float()
                    )
                # The larger the scores, the more of each weight is their rounding.
                largest = scores.where(scores > FILLED, 0).abs().max()
                slack = tolerance + ROUNDING * torch.finfo(call.query.dtype).eps * float(largest)
                if not off <= (slack if whole else probe.largest_disagreement(call.value, slack)):
                    return {}
                add_tile(study, slice(own.start, own.stop), part, span, (scores, shares))
    return study.values() | vector_norms(study, call)


def add_tile(study: ScoreStudy, heads: slice, part: AttentionCall, span: slice, tile: Any) -> None:
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


def vector_norms(study: ScoreStudy, call: AttentionCall) -> CallScores:
    """Norms of the queries, keys and values of each head."""
    heads = call.query.shape[1]

    def spread(side: Any) -> Any:
        array = side[0].detach().float().cpu().numpy()
        return array.repeat(heads // len(array), axis=0)

    are_known = call.scores is None  # otherwise only the numbers of queries and keys are
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

    with ExitStack() as hooks:
        for path, part in model.named_modules():
            if path.rpartition(".")[2].isdigit():
                hooks.enter_context(part.register_forward_pre_hook(hook(path), with_kwargs=True))
        yield lambda path: peaks.get(layer_of(path, peaks), np.nan)


def layer_of(path: str, paths: Any) -> str:
    """The innermost of the known paths around a module; empty where there is none."""
    while path and path not in paths:
        path = path.rpartition(".")[0]
    return path


def check_grids(
    grids: Mapping[str, region.PooledGrid], sides: Mapping[str, tuple[int, int]]
) -> None:
    """Refuse to keep queries and keys of blocks of tokens or of a part of the keys."""
    for stream, grid in grids.items():
        if grid.is_pooled or grid.keys.blocks < sides[stream][1]:
            raise UsageError(
                "--keep-qk needs every key by itself, and a part of a text or blocks of its tokens "
                "were to be shown: leave --window out, or give a larger --max-size or fewer tokens"
            )


def project_call(call: AttentionCall, grid: region.PooledGrid) -> Projections:
    """A grid's queries and all keys of a call with a batch of one, as of a layer without a name."""
    query, key = call.query[0], call.key[0]
    key = key.repeat_interleave(len(query) // len(key), dim=0)
    scale = call.options.get("scaling")
    query = query[:, grid.queries.start : grid.queries.stop]
    return Projections(
        query.float().cpu().numpy()[None],
        key.float().cpu().numpy()[None],
        query.shape[-1] ** -0.5 if scale is None else float(scale),
        ("",),
        tuple(map(str, range(len(query)))),
        " and ".join(extra_terms(call)),
    )


def extra_terms(call: AttentionCall) -> Iterator[str]:
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


def stack_projections(layers: Mapping[str, Projections], kind: str) -> Projections:
    """A stream's queries and keys, layer by layer."""
    items = list(layers.values())
    if len({(item.query.shape, item.key.shape, item.scale) for item in items}) > 1:
        raise AttentionError(
            f"the layers of architecture '{kind}' differ in heads, head size or scale, and "
            "--keep-qk shows one of each: leave it out"
        )
    terms = (name for item in items for name in item.besides.split(" and ") if name)
    return replace(
        items[0],
        query=np.concatenate([item.query for item in items]),
        key=np.concatenate([item.key for item in items]),
        layers=tuple(layers),
        besides=" and ".join(dict.fromkeys(terms)),
    )


TILE, MOST = 2**20, 2**25  # weights of a tile for short texts, and at most; a tile per thread
ROWS = 128  # of a tile, where they fit: fewer would wait for all keys and values to be read again
AGREEMENT = 1e-5  # largest error of tiles times values in float32, relative to the largest value


def read_tiles(
    call: AttentionCall,
    grid: region.PooledGrid,
    links: int,
    exclusions: IgnoredPositions,
    *,
    scores: bool = False,
) -> tuple[Any, list[Strongest], CallScores] | None:
    """Maps as from `read_grid`, strongest links and `scores`; None: probe the kernel instead."""
    import torch

    # Outputs in half precision are too coarse to tell a kernel's weights from similar ones.
    if call.query.device.type != "cpu" or call.query.dtype != torch.float32:
        return None
    # Queries of zeros stand for unknown ones.
    coarse = scores and grid.is_pooled
    parts = isinstance(grid.keys, region.TokenParts)  # a reader may ask for few rows of them
    many = grid.keys.blocks > call.value.shape[-1]
    if not (links or coarse or many or parts) or not call.query.any():
        return None
    batch, heads, length, _ = call.query.shape
    reader = _Reader(call, grid, links, exclusions)
    if scores and batch == 1:
        rows = grid.queries.stop - grid.queries.start
        reader.study = ScoreStudy(heads, rows, call.key.shape[2], grid.queries.start)
    together = max(reader.rows // length, 1)
    tasks = [
        (text, range(heads)[first : first + together])
        for text in range(batch)
        for first in range(0, heads, together)
    ]
    threads = torch.get_num_threads()
    if min(threads, len(tasks)) == 1:
        strongest = list(map(reader.read, tasks))
    else:
        # Each thread has its own heads, so no step waits for another thread.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                strongest = list(pool.map(reader.read, tasks))
            except BaseException:
                reader.stop_event.set()
                raise
            finally:
                torch.set_num_threads(threads)
    if reader.stop_event.is_set():
        return None
    study = reader.study
    measures = study.values() | vector_norms(study, call) if study is not None else {}
    cells = [head for part in strongest for head in part] if links else []
    return reader.weights, cells, measures


class _Reader:
    """Reads a call in tiles, some heads of a text at a time."""

    def __init__(
        self, call: AttentionCall, grid: region.PooledGrid, links: int, exclusions: IgnoredPositions
    ) -> None:
        import torch

        self.call, self.grid, self.links, self.exclusions = call, grid, links, exclusions
        batch, heads, _, _ = call.query.shape
        self.weights = torch.zeros(
            (batch, heads, grid.queries.blocks, grid.keys.blocks), dtype=torch.float32
        )
        self.tolerance = probe.largest_disagreement(call.value, AGREEMENT)
        keys = call.key.shape[2]
        self.rows = max(TILE // keys, min(ROWS, MOST // keys), 1)  # of a tile
        self.stop_event = Event()
        self.study: ScoreStudy | None = None

    def read(self, task: tuple[int, range]) -> list[Strongest]:
        """Add the weights of some heads of a text; return their strongest links."""
        import torch

        text, heads = task
        strongest = StrongestCells(len(heads), self.links, self.call.key.shape[2])
        every = torch.arange(len(heads))
        with torch.no_grad():
            space = torch.empty(self.rows * self.call.key.shape[2], dtype=torch.float32)
            call = probe.select_heads(self.call, text, heads)
            for first, stop in self._tiles():
                if self.stop_event.is_set():
                    break
                tile = self._tile(call, heads, slice(first, stop), space)
                weights = self.weights[text, heads.start : heads.stop]
                if tile is None or not self._pool(call, tile, first, weights):
                    self.stop_event.set()
                elif self.links:
                    queries = torch.arange(first, stop).expand(len(heads), -1)
                    drop_ignored(tile, queries, self.grid, self.exclusions)
                    strong = (tile.amax(2) > strongest.weights[:, -1:]).any(0).nonzero()[:, 0]
                    if len(strong):
                        strongest.add(every, queries[:, strong], tile[:, strong])
        return strongest.cells()

    def _tile(self, call: AttentionCall, heads: range, rows: slice, space: Any) -> Any:
        """The weights of some rows, (heads, rows, keys), whose scores are measured on the way."""
        import torch

        if self.study is None:
            return probe.recompute_rows(call, None, rows, space)
        scores = probe.score_rows(call, None, rows)
        if scores is None:
            return None
        tile = torch.softmax(scores, -1)[..., : call.key.shape[2]]
        add_tile(self.study, slice(heads.start, heads.stop), call, rows, (scores, tile))
        return tile

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """First query of each tile and one past its last: whole blocks, or parts of a block."""
        queries = self.grid.queries
        if isinstance(queries, region.TokenParts):
            begin = queries.start
            for first, stop in queries.spans:
                if stop - begin > self.rows and first > begin:
                    yield begin, first
                    begin = first
                if stop - begin > self.rows:
                    yield from region.TokenBlocks(begin, stop, self.rows).spans
                    begin = stop
            if begin < queries.stop:
                yield begin, queries.stop
            return
        whole = max(self.rows // queries.length, 1) * queries.length
        for first, stop in region.TokenBlocks(queries.start, queries.stop, whole).spans:
            yield from region.TokenBlocks(first, stop, self.rows).spans

    def _blocks_in(self, first: int, rows: int) -> region.TokenBlocks:
        """The blocks of queries in a tile."""
        queries = self.grid.queries
        if not isinstance(queries, region.TokenParts):
            return region.TokenBlocks(0, rows, min(queries.length, rows))
        ends = [end - first for end in queries.ends if first < end < first + rows]
        return region.parts_between([0, *ends, rows])

    def _pool(self, call: AttentionCall, tile: Any, first: int, weights: Any) -> bool:
        """Add a tile to the pooled weights; False if the kernel's output disagrees."""
        import torch

        queries, keys = self.grid.queries, self.grid.keys
        rows = tile.shape[1]
        axis = self._blocks_in(first, rows)
        means = probe.mean_queries(tile, axis)
        output = probe.mean_queries(call.output[:, first : first + rows], axis)
        if not probe.disagreement(means, call.value[0], output) <= self.tolerance:
            return False
        sums = means[..., keys.start : keys.stop]
        if isinstance(keys, region.TokenParts):
            numbers = keys.block_of(torch.arange(keys.start, keys.start + sums.shape[2]))
            sums = sums.new_zeros((*sums.shape[:2], keys.blocks)).index_add_(2, numbers, sums)
        elif keys.length > 1:
            blocks = -(-sums.shape[2] // keys.length)
            sums = torch.nn.functional.pad(sums, (0, blocks * keys.length - sums.shape[2]))
            sums = sums.reshape(*sums.shape[:2], blocks, keys.length).sum(3)
        block = int(queries.block_of(first))
        # A block with more rows than a tile is the sum of its tiles' shares.
        share = min(rows / queries.size_of(block), 1)
        weights[:, block : block + sums.shape[1], : sums.shape[2]] += sums * share
        return True
