"""The engine that works in this process, one shard after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Self

from attnviz.core.errors import WorkerError
from attnviz.runs.engines.shards import Outcome, Shard, numbered


class Here:
    """One shard after the other, with every thread that the libraries take."""

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = numbered,
    ) -> Iterator[Outcome | WorkerError]:
        """What the work makes of each shard, made when it is asked for."""
        return map(work, shards)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""
