"""How many threads a worker takes, and sums that do not depend on it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Self

from attnviz.core.errors import WorkerError
from attnviz.runs.engines.shards import (
    TRIES,
    Answer,
    Outcome,
    Shard,
    answer,
    in_order,
    numbered,
    portable,
)

_LIMITS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""What torch, numpy's libraries of linear algebra and tokenizers read when they are loaded."""


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_limits(threads: int) -> dict[str, str]:
    """The variables of a worker's surroundings; a lower limit that the user set stays.

    Args:
        threads: at most so many, 1 or more.
    """
    limits = {}
    for name in _LIMITS:
        given = os.environ.get(name, "")
        limits[name] = str(min(threads, int(given)) if given.isdecimal() else threads)
    return limits


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let a process that is started meanwhile find the limits in its surroundings.

    It has to find them before its first line runs: what its main module imports may load a library
    of linear algebra, which looks once.
    """
    limits = thread_limits(threads)
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def settle_sums() -> None:
    """Make sums the same to the last bit on any number of threads, where the library can.

    Intel's MKL, on which torch stands on most machines, else splits a sum by its threads, and one
    process with all cores would differ from two with half of them. It reads this at its first sum;
    processes that are started later inherit it.
    """
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


# <processes> The engine of several processes on this machine.

AHEAD = 2
"""Shards in flight for each worker: one it works on, and one done or next, so that neither side
waits for the other."""


class Processes:
    """Several processes, each with its copy of the work and its share of the cores.

    A worker that dies is replaced and its shard tried again; the others go on meanwhile.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.crews: list[WorkerPool] = []

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = numbered,
    ) -> Iterator[Outcome | WorkerError]:
        """What the work makes of each shard; the workers end with the last of them."""
        crew = WorkerPool(work, self.workers)
        self.crews.append(crew)

        def hand_in(number: int, shard: Shard) -> Future[bytes | WorkerError]:
            return crew.submit(shard, name(number, shard))

        def collect(ticket: Future[bytes | WorkerError]) -> Outcome | WorkerError:
            found = ticket.result()
            if isinstance(found, WorkerError):
                return found
            unpacked: Answer[Outcome] = pickle.loads(found)
            return unpacked.taken()

        try:
            yield from in_order(hand_in, collect, shards, AHEAD * self.workers)
        finally:
            crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every worker at once, whatever it is at."""
        for crew in self.crews:
            crew.close()


class WorkerPool:
    """The workers on one piece of work: a thread for each waits for what its process answers."""

    def __init__(self, work: Callable[[Any], Any], workers: int) -> None:
        # Pickled once, before any process starts: what cannot be sent is found here.
        self.work = packed(work)
        self.threads = max(1, cores() // workers)
        self.idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(workers):
            self.idle.put(None)
        self.alive: set[Worker] = set()
        self.lock = threading.Lock()
        self.closed = False
        self.pool = ThreadPoolExecutor(workers, initializer=hold_interrupts)

    def submit(self, shard: Any, name: str) -> Future[bytes | WorkerError]:
        """Begin the work on a shard; the answer comes pickled."""
        return self.pool.submit(self._try, shard, name)

    def _try(self, shard: Any, name: str) -> bytes | WorkerError:
        """Send a shard to an idle worker, again where that one dies over it.

        Raises:
            EOFError: the crew was closed meanwhile, and nobody waits for an answer.
        """
        death = ""
        for _ in range(TRIES):
            worker = self.idle.get()
            try:
                worker = worker or self._hire()
                return worker.ask(shard)
            except (EOFError, OSError):
                if self.closed or worker is None:
                    raise
                death = worker.death()
                with self.lock:
                    self.alive.discard(worker)
                worker = None
            finally:
                self.idle.put(worker)
        return WorkerError(
            f"a worker died {TRIES} times over {name}, at last {death}: give fewer --workers"
        )

    def _hire(self) -> Worker:
        with self.lock:
            if self.closed:
                raise EOFError
            worker = Worker(self.work, self.threads)
            self.alive.add(worker)
        return worker

    def close(self) -> None:
        """Stop every worker at once and wait until it is gone; again: nothing."""
        with self.lock:
            self.closed = True
            for worker in self.alive:
                worker.process.kill()
        self.pool.shutdown(cancel_futures=True)
        while self.alive:
            self.alive.pop().death()


class Worker:
    """One process with its copy of the work, and the line to it."""

    def __init__(self, work: bytes, threads: int) -> None:
        # A fork would copy locks that torch's threads may hold.
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, work), daemon=True)
        hold_interrupts()
        with limited(threads):
            self.process.start()
        theirs.close()

    def ask(self, shard: Any) -> bytes:
        """The pickled answer to a shard.

        Raises:
            EOFError: the process died over it.
            OSError: likewise.
        """
        self.line.send_bytes(packed(shard))
        return self.line.recv_bytes()

    def death(self) -> str:
        """How the process ended, once it has."""
        self.process.kill()
        self.process.join()
        self.line.close()
        status = self.process.exitcode or 0
        if status >= 0:
            return f"with status {status}"
        killer = signal.Signals(-status).name
        hint = ", as by a system out of memory" if killer == "SIGKILL" else ""
        return f"by {killer}{hint}"


def packed(item: Any) -> bytes:
    """What travels between processes; arrays go as they lie in memory."""
    return pickle.dumps(item, pickle.HIGHEST_PROTOCOL)


def hold_interrupts() -> None:
    """Keep Ctrl-C from processes that this thread starts: it is the main thread's to answer."""
    if sys.platform == "win32":
        return
    from multiprocessing import resource_tracker

    # Started here because starting it lets interrupts through again.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def serve(line: Connection, work: bytes) -> None:
    """Answer shard after shard, until nobody is there to ask."""
    threading.Thread(target=leave_with_parent, daemon=True).start()
    # stdout is data, and the parent's alone.
    os.dup2(2, 1)
    begun: Callable[[Any], Any] | None = None
    while True:
        try:
            shard = line.recv_bytes()
        except EOFError:
            return
        try:
            begun = begun or pickle.loads(work)
            found = packed(answer(begun, pickle.loads(shard)))
        except Exception as error:
            # What cannot be unpacked here, or packed, is told too and kills nobody.
            found = packed(Answer((), error=portable(error)))
        line.send_bytes(found)


def leave_with_parent() -> None:
    """End this process when the one that started it has ended, however that came about."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
