"""Engines that work on many shards: in this process, in several, or on a Ray cluster.

An engine knows nothing of attention. It applies a callable to an iterable of shards, and gives the
outcomes in the shards' order.
"""

from attnviz.core.errors import UsageError, choose
from attnviz.core.registry import FeatureEntry
from attnviz.runs.engines.shards import Engine, fix_sums

ENGINES = {
    "local": FeatureEntry("Several processes of this machine.", "engines.processes:Processes"),
    "ray": FeatureEntry("The workers of a Ray cluster.", "engines.ray_cluster:RayCluster"),
}
"""Engines of several workers; what works in one process needs none."""


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
        return ENGINES[name].load()(workers, address or None)  # type: ignore[no-any-return]
    if workers in (None, 1):
        return InProcess()
    return ENGINES[name].load()(workers)  # type: ignore[no-any-return]


class InProcess(Engine):
    """One shard after the other in this process, with all threads of the libraries."""
