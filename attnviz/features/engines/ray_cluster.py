"""The engine of a Ray cluster: a new one on this machine, or one that runs already.

Every machine of a running cluster must be able to import this package and to find the model under
the same name. Install both there, or let Ray copy them with a `runtime_env`
(https://docs.ray.io/en/latest/ray-core/handling-dependencies.html).
"""

import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from math import ceil
from typing import Any, Self

from attnviz.core.errors import WorkerError
from attnviz.runs.engines.shards import (
    AHEAD,
    TRIES,
    Answer,
    Engine,
    Outcome,
    Shard,
    answer,
    cores,
    fix_sums,
    in_order,
    limit_openblas,
    shard_name,
)

TIMEOUT = 5.0  # seconds to wait for a cluster; Ray alone would wait two minutes


class RayCluster(Engine):
    """The workers of a Ray cluster; a shard whose worker dies is tried on another."""

    def __init__(self, workers: int | None, address: str | None = None) -> None:
        if find_spec("ray") is None:
            raise WorkerError("--engine ray needs the package ray: pip install 'attnviz[ray]'")
        self.workers = workers
        self.address = address
        self.stops_ray = False
        self.running: list[Any] = []

    def __enter__(self) -> Self:
        import ray

        # If a caller in Python runs Ray already, the caller stops it.
        self.stops_ray = self.address is not None or not ray.is_initialized()
        if self.stops_ray:
            answer = signal.getsignal(signal.SIGTERM)
            start_or_join(self.workers, self.address)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, answer)  # Ray has set its own handler
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        self._cancel()
        if self.stops_ray:
            ray.shutdown()

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = shard_name,
    ) -> Iterator[Outcome | WorkerError]:
        """The outcome of each shard, from any free worker."""
        import ray

        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        machines = [machine["Resources"] for machine in nodes if machine["Alive"]]
        workers, needs = share(self.workers, machines)
        task = ray.remote(in_worker).options(max_retries=TRIES - 1, **needs)
        # Ray would resolve a bare reference at every call; from a list each worker fetches it once.
        place = (uuid.uuid4().hex, [ray.put(work)])

        def submit(number: int, shard: Shard) -> tuple[Any, str]:
            reference = task.remote(*place, shard)
            self.running.append(reference)
            return reference, name(number, shard)

        def collect(ticket: tuple[Any, str]) -> Outcome | WorkerError:
            reference, label = ticket
            try:
                reply: Answer[Outcome] = ray.get(reference)
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                why = str(error).strip().partition("\n")[0].rstrip(".")
                return WorkerError(f"a worker died {TRIES} times over {label}: {why}")
            finally:
                self.running.remove(reference)
            return reply.unpack()

        try:
            yield from in_order(submit, collect, shards, AHEAD * workers)
        finally:
            self._cancel()

    def _cancel(self) -> None:
        import ray

        while self.running:
            ray.cancel(self.running.pop(), force=True)


def start_or_join(workers: int | None, address: str | None) -> None:
    """Start or join Ray, without its own messages."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Workers without a GPU request keep the visible GPUs; Ray would warn of its coming default.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # By default Ray retries a worker that fills the memory for ever.
    os.environ.setdefault("RAY_task_oom_retries", str(TRIES - 1))
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        # A multiple of `wanted`, so that no further worker finds room.
        count = workers or cores()
        cpus = count * max(1, cores() // count)
        ray.init("local", num_cpus=cpus, include_dashboard=False, **quiet)
        return
    check_reachable(address)
    try:
        ray.init(address, **quiet)
    except (Exception, SystemExit) as error:
        why = str(error).strip().partition("\n")[0]
        raise WorkerError(f"cannot join the Ray cluster at '{address}': {why}") from error


def check_reachable(address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise WorkerError(
            f"no Ray cluster answers at '{address}' ({why}): 'ray start --head' starts one; "
            "--engine ray starts one here"
        ) from error


def share(
    workers: int | None, machines: Sequence[dict[str, float]]
) -> tuple[int, dict[str, float]]:
    """The number of workers, and each one's cores and GPUs, to which Ray limits it."""
    cpus, gpus = ([int(has.get(kind, 0)) for has in machines] for kind in ("CPU", "GPU"))
    workers = workers or sum(gpus) or max(1, sum(cpus))
    # A worker that needs more than the largest machine has would wait for ever.
    needs: dict[str, float] = {"num_cpus": max(1, min(sum(cpus) // workers, max(cpus)))}
    if any(gpus):
        needs["num_gpus"] = 1 / ceil(workers / sum(gpus))
    return workers, needs


_works: dict[str, Callable[[Any], Any]] = {}  # in a worker: its current work, fetched once


def in_worker(key: str, references: list[Any], shard: Any) -> Answer[Any]:
    """Do the work on a shard, in a worker of the cluster."""
    import ray

    if key not in _works:
        fix_sums()
        limit_openblas()
        _works.clear()
        _works[key] = ray.get(references[0])
    return answer(_works[key], shard)
