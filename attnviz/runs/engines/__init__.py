"""Where work over many shards is done: in this process, in several, or on a Ray cluster.

An engine knows nothing of attention. It takes a callable and an iterable of shards, and gives what
the one makes of the other, in the shards' order.
"""

from __future__ import annotations

from attnviz.core.errors import UsageError, choose
from attnviz.runs.engines.shards import Engine, fix_sums

ENGINES = ("local", "ray")


def open_engine(name: str, workers: int | None, address: str | None) -> Engine:
    """The engine of that name; nothing is started before it is entered.

    From here on sums do not depend on how many threads a worker has; called after torch has begun
    to compute, that comes too late.

    Without `workers` this process works alone, or with Ray as many as it has cores for; without
    `address` Ray is started here.
    """
    choose(name, ENGINES, "engine")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers} would do nothing: give 1 or more")
    fix_sums()
    if name == "ray":
        from attnviz.runs.engines.ray_cluster import RayCluster

        return RayCluster(workers, address)
    if address is not None:
        raise UsageError("--ray-address names a Ray cluster: add --engine ray")
    if workers in (None, 1):
        return InProcess()
    from attnviz.runs.engines.processes import Processes

    return Processes(workers)


class InProcess(Engine):
    """One shard after the other in this process, with every thread that the libraries take."""
