"""Engines that work on many shards: in this process, in several, or on a Ray cluster.

An engine knows nothing of attention. It applies a callable to an iterable of shards, and gives the
outcomes in the shards' order.
"""

from attnviz.core.errors import UsageError, choose
from attnviz.runs.engines.shards import Engine, fix_sums

ENGINES = ("local", "ray")


def open_engine(engine: str, workers: int | None) -> Engine:
    """The engine "local", "ray" or "ray:ADDRESS"; it starts nothing before it is entered.

    Call it before torch computes anything: it makes sums independent of the number of threads.
    Without `workers` this process works alone, or Ray uses all cores; without an address Ray
    starts here.
    """
    name, colon, address = engine.partition(":")
    choose(name, ENGINES, "engine")
    if colon and (name != "ray" or not address):
        raise UsageError(f"--engine {engine} names no cluster: write ray:ADDRESS")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers} would do nothing: give 1 or more")
    fix_sums()
    if name == "ray":
        from attnviz.runs.engines.ray_cluster import RayCluster

        return RayCluster(workers, address or None)
    if workers in (None, 1):
        return InProcess()
    from attnviz.runs.engines.processes import Processes

    return Processes(workers)


class InProcess(Engine):
    """One shard after the other in this process, with all threads of the libraries."""
