"""The engine of several processes on this machine.

Each worker has a pipe of its own, so that one that is killed, even while it sends, loses its shard
and nothing else. Pools of libraries were tried and lose more. Workers of pebble 5.2 share one pipe:
one that is killed while it sends leaves the pipe's lock taken, and the pool waits for ever. With
loky 3.7, as with concurrent.futures, one death breaks the pool: all shards in flight begin again,
and nobody knows which of them killed its worker.
"""

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
from typing import Any

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
    in_order,
    numbered,
    portable,
)

_THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""What torch, numpy's libraries of linear algebra and tokenizers read when they are loaded."""


class Processes(Engine):
    """Several processes, each with its copy of the work and its share of the cores.

    A worker that dies is replaced and its shard tried again; the others continue meanwhile.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pools: list[WorkerPool] = []

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = numbered,
    ) -> Iterator[Outcome | WorkerError]:
        """What the work makes of each shard; the workers end with the last of them."""
        pool = WorkerPool(work, self.workers)
        self.pools.append(pool)

        def submit(number: int, shard: Shard) -> Future[bytes | WorkerError]:
            return pool.submit(shard, name(number, shard))

        def collect(ticket: Future[bytes | WorkerError]) -> Outcome | WorkerError:
            found = ticket.result()
            if isinstance(found, WorkerError):
                return found
            unpickled: Answer[Outcome] = pickle.loads(found)
            return unpickled.unpack()

        try:
            yield from in_order(submit, collect, shards, AHEAD * self.workers)
        finally:
            pool.close()

    def __exit__(self, *_: object) -> None:
        for pool in self.pools:
            pool.close()


class WorkerPool:
    """The workers on one piece of work: a thread for each waits for what its process answers."""

    def __init__(self, work: Callable[[Any], Any], workers: int) -> None:
        os.getcwd()  # noqa: PTH109 - raises where the folder is gone: no process starts there
        # Pickled once, before any process starts: what cannot be sent is found here.
        self.work = pickled(work)
        self.threads = max(1, cores() // workers)
        self.idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(workers):
            self.idle.put(None)
        self.alive: set[Worker] = set()
        self.lock = threading.Lock()
        self.closed = False
        self.pool = ThreadPoolExecutor(workers, initializer=block_interrupts)

    def submit(self, shard: Any, name: str) -> Future[bytes | WorkerError]:
        """Begin the work on a shard; the answer comes pickled."""
        return self.pool.submit(self._try, shard, name)

    def _try(self, shard: Any, name: str) -> bytes | WorkerError:
        death = ""
        for _ in range(TRIES):
            worker = self.idle.get()
            try:
                worker = worker or self._start_worker()
                return worker.ask(shard)
            except (EOFError, OSError):
                if self.closed or worker is None:
                    raise
                death = worker.stop()
                with self.lock:
                    self.alive.discard(worker)
                worker = None
            finally:
                self.idle.put(worker)
        return WorkerError(
            f"a worker died {TRIES} times over {name}, at last {death}: give fewer --workers"
        )

    def _start_worker(self) -> Worker:
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
            self.alive.pop().stop()


class Worker:
    """One process with its copy of the work, and the pipe to it."""

    def __init__(self, work: bytes, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, work), daemon=True)
        block_interrupts()
        with limited(threads):
            self.process.start()
        theirs.close()

    def ask(self, shard: Any) -> bytes:
        """The pickled answer to a shard."""
        self.pipe.send_bytes(pickled(shard))
        return self.pipe.recv_bytes()

    def stop(self) -> str:
        """Stop the process if it runs; how it ended."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        status = self.process.exitcode or 0
        if status >= 0:
            return f"with status {status}"
        name = signal.Signals(-status).name
        return f"by {name}" + (", as by a system out of memory" if name == "SIGKILL" else "")


def pickled(item: Any) -> bytes:
    """What travels between processes; arrays go as they lie in memory."""
    return pickle.dumps(item, pickle.HIGHEST_PROTOCOL)


def block_interrupts() -> None:
    """Keep Ctrl-C and SIGTERM from this thread and what it starts: the main thread answers."""
    if sys.platform == "win32":
        return
    from multiprocessing import resource_tracker

    # Started here because starting it lets interrupts through again.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let a process that is started meanwhile find its limits in its environment.

    It has to find them before its first line runs: what its main module imports may load a library
    of linear algebra, which looks once.
    """
    limits = thread_limits(threads)
    before = {name: os.environ[name] for name in limits if name in os.environ}
    os.environ.update(limits)
    try:
        yield
    finally:
        for name in limits:
            del os.environ[name]
        os.environ.update(before)


def thread_limits(threads: int) -> dict[str, str]:
    """A worker's environment variables; a lower limit that the user set stays."""
    limits = {}
    for name in _THREAD_LIMITS:
        given = os.environ.get(name, "")
        limits[name] = str(min(threads, int(given)) if given.isdecimal() else threads)
    return limits


def serve(pipe: Connection, work: bytes) -> None:
    """Answer shard after shard, until the other end is closed."""
    if sys.platform != "win32":  # a worker that is ended alone is replaced
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # stdout is data, and the parent's alone.
    os.dup2(2, 1)
    loaded: Callable[[Any], Any] | None = None
    while True:
        try:
            shard = pipe.recv_bytes()
        except EOFError:
            return
        try:
            loaded = loaded or pickle.loads(work)
            found = pickled(answer(loaded, pickle.loads(shard)))
        except Exception as error:  # what cannot be pickled or unpickled is an answer too
            found = pickled(Answer((), error=portable(error)))
        pipe.send_bytes(found)


def exit_with_parent() -> None:
    """End this process when the one that started it has ended, however that came about."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
