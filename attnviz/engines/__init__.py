"""Where work over many shards is done: in this process, in several, or on a Ray cluster.

An engine knows nothing of attention. It takes a callable and an iterable of shards, and hands over
what the one makes of the other, in the shards' order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

from attnviz.engines.threads import settle_sums
from attnviz.errors import UsageError, WorkerError, choose

ENGINES = ("local", "ray")
TRIES = 3
"""How often a shard is tried whose worker dies."""

Shard = TypeVar("Shard")
Outcome = TypeVar("Outcome")
Work = Callable[[Shard], Outcome]
"""What is done with each shard. A worker process holds one copy of it from first to last, so that
whatever it loads on its first shard it has for all others; it must pickle before it is used."""
Naming = Callable[[int, Shard], str]
"""How a message names a shard, from its number counted from 0."""


def numbered(number: int, shard: object) -> str:
    """A shard by its number."""
    return f"shard {number}"


class Engine(Protocol):
    """Something that does the same work on one shard after another, or on several at once."""

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = numbered,
    ) -> Iterator[Outcome | WorkerError]:
        """What the work makes of each shard, in the shards' order, as soon as it is there.

        Shards are read as they are needed and few outcomes wait, so that memory stays flat. What
        the work announces is announced here when its outcome is handed over.

        Args:
            work: what is done.
            shards: what it is done with.
            name: how a message names a shard.

        Returns:
            One outcome for each shard; a WorkerError for one that killed its worker at each try.

        Raises:
            Exception: what the work or the iterable raised, after the outcomes of all shards
                before.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the workers, whatever they are at."""
        ...


def open_engine(name: str, workers: int | None, address: str | None) -> Engine:
    """The engine that a request names; nothing is started before it is entered.

    From here on sums do not depend on how many threads a worker has; asked for after torch has
    begun to compute, that comes too late.

    Args:
        name: "local" or "ray".
        workers: how many processes work at once; None: this one alone, or with Ray as many as it
            has cores for.
        address: of a Ray cluster to join; None: Ray is started here.

    Raises:
        UsageError: an engine that does not exist, no workers, an address without Ray.
        WorkerError: Ray is not installed.
    """
    choose(name, ENGINES, "engine")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers} would do nothing: give 1 or more")
    settle_sums()
    if name == "ray":
        from attnviz.engines.ray_cluster import RayCluster

        return RayCluster(workers, address)
    if address is not None:
        raise UsageError("--ray-address names a Ray cluster: add --engine ray")
    if workers in (None, 1):
        from attnviz.engines.here import Here

        return Here()
    from attnviz.engines.processes import Processes

    return Processes(workers)
