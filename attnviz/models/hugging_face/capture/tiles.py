"""Recompute a kernel's weights in tiles of whole rows, and check them against its output.

Nearly all kernels are a softmax of scaled queries times keys. On a CPU it is cheaper to compute
that again, some rows of a head at a time, than to probe the kernel for each slice of blocks: a tile
stays in the cache, and since every weight is seen once, the strongest links come with the map.

Each pooled tile times the values must be the kernel's output for its queries. If one is not, the
call is probed instead.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from attnviz.analyses.entropy import ScoreStudy
from attnviz.models.hugging_face.capture.exact_links import (
    IgnoredPositions,
    Strongest,
    StrongestCells,
    drop_ignored,
)
from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.hugging_face.capture.probe import (
    disagreement,
    largest_disagreement,
    mean_queries,
    recompute_rows,
    score_rows,
    select_heads,
)
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks
from attnviz.models.hugging_face.capture.scores import CallScores, add_tile, vector_norms

TILE, MOST = 2**20, 2**25  # weights of a tile for short texts, and at most; a tile per thread
ROWS = 128  # of a tile, where they fit: fewer would wait for all keys and values to be read again
AGREEMENT = 1e-5  # largest error of tiles times values in float32, relative to the largest value


def read_tiles(
    call: Call, grid: PooledGrid, links: int, exclusions: IgnoredPositions, *, scores: bool = False
) -> tuple[Any, list[Strongest], CallScores] | None:
    """Maps as of `read_grid`, strongest links and `scores`; None: probing is cheaper or needed."""
    import torch

    # Outputs in half precision are too coarse to tell a kernel's weights from similar ones.
    if call.query.device.type != "cpu" or call.query.dtype != torch.float32:
        return None
    # Queries of zeros stand for unknown ones.
    coarse = scores and grid.is_pooled
    if not (links or coarse or grid.keys.blocks > call.value.shape[-1]) or not call.query.any():
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
    return reader.weights, [head for part in strongest for head in part], measures


class _Reader:
    """Reads a call in tiles, some heads of a text at a time."""

    def __init__(
        self, call: Call, grid: PooledGrid, links: int, exclusions: IgnoredPositions
    ) -> None:
        import torch

        self.call, self.grid, self.links, self.exclusions = call, grid, links, exclusions
        batch, heads, _, _ = call.query.shape
        self.weights = torch.zeros(
            (batch, heads, grid.queries.blocks, grid.keys.blocks), dtype=torch.float32
        )
        self.tolerance = largest_disagreement(call.value, AGREEMENT)
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
            call = select_heads(self.call, text, heads)
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

    def _tile(self, call: Call, heads: range, rows: slice, space: Any) -> Any:
        """The weights of some rows, (heads, rows, keys), whose scores are measured on the way."""
        import torch

        if self.study is None:
            return recompute_rows(call, None, rows, space)
        scores = score_rows(call, None, rows)
        if scores is None:
            return None
        tile = torch.softmax(scores, -1)[..., : call.key.shape[2]]
        add_tile(self.study, slice(heads.start, heads.stop), call, rows, (scores, tile))
        return tile

    def _tiles(self) -> Iterator[tuple[int, int]]:
        """First query of each tile and one past its last: whole blocks, or parts of a block."""
        queries = self.grid.queries
        whole = max(self.rows // queries.length, 1) * queries.length
        for first, stop in TokenBlocks(queries.start, queries.stop, whole).spans:
            yield from TokenBlocks(first, stop, self.rows).spans

    def _pool(self, call: Call, tile: Any, first: int, weights: Any) -> bool:
        """Add a tile to the pooled weights; False if the kernel's output disagrees."""
        import torch

        queries, keys = self.grid.queries, self.grid.keys
        rows = tile.shape[1]
        axis = TokenBlocks(0, rows, min(queries.length, rows))
        means = mean_queries(tile, axis)
        output = mean_queries(call.output[:, first : first + rows], axis)
        if not disagreement(means, call.value[0], output) <= self.tolerance:
            return False
        sums = means[..., keys.start : keys.stop]
        if keys.length > 1:
            blocks = -(-sums.shape[2] // keys.length)
            sums = torch.nn.functional.pad(sums, (0, blocks * keys.length - sums.shape[2]))
            sums = sums.reshape(*sums.shape[:2], blocks, keys.length).sum(3)
        block = (first - queries.start) // queries.length
        size = min(queries.length, queries.stop - queries.start - block * queries.length)
        # A block with more rows than a tile is the sum of its tiles' shares.
        share = min(rows / size, 1)
        weights[:, block : block + sums.shape[1], : sums.shape[2]] += sums * share
        return True
