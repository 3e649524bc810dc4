"""The engine of several processes on this machine.

Each worker has its own pipe, so a worker that is killed, even while it sends, loses only its shard.
Pools of libraries lose more. Workers of pebble 5.2 share one pipe: if one is killed while it sends,
the pipe's lock stays taken and the pool waits for ever. With loky 3.7 and concurrent.futures one
death breaks the pool: all shards in flight begin again, and nobody knows which one killed its
worker.
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
from contextlib import contextmanager, suppress
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
    shard_name,
    to_portable,
)

_THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Variables that torch, numpy's linear algebra and tokenizers read when they load."""


class Processes(Engine):
    """Several processes with a share of the cores; a shard whose worker dies is tried again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pools: list[WorkerPool] = []

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = shard_name,
    ) -> Iterator[Outcome | WorkerError]:
        """The outcome of each shard; the workers end after the last one."""
        pool = WorkerPool(work, self.workers)
        self.pools.append(pool)

        def submit(number: int, shard: Shard) -> Future[bytes | WorkerError]:
            return pool.submit(shard, name(number, shard))

        def collect(ticket: Future[bytes | WorkerError]) -> Outcome | WorkerError:
            data = ticket.result()
            if isinstance(data, WorkerError):
                return data
            reply: Answer[Outcome] = pickle.loads(data)
            return reply.unpack()

        try:
            yield from in_order(submit, collect, shards, AHEAD * self.workers)
        finally:
            pool.close()

    def __exit__(self, *_: object) -> None:
        for pool in self.pools:
            pool.close()


class WorkerPool:
    """The workers on one piece of work; a thread for each waits for the answers of its process."""

    def __init__(self, work: Callable[[Any], Any], workers: int) -> None:
        os.getcwd()  # noqa: PTH109 - raises where the folder is gone: no process starts there
        # Pickle once, before any process starts: work that does not pickle fails here.
        self.work = to_bytes(work)
        self.threads = max(1, cores() // workers)
        self.idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(workers):
            self.idle.put(None)
        self.alive: set[Worker] = set()
        self.lock = threading.Lock()
        self.is_closed = False
        self.pool = ThreadPoolExecutor(workers, initializer=block_interrupts)

    def submit(self, shard: Any, name: str) -> Future[bytes | WorkerError]:
        """Begin the work on a shard; the answer is pickled."""
        return self.pool.submit(self._try, shard, name)

    def _try(self, shard: Any, name: str) -> bytes | WorkerError:
        death = ""
        for _ in range(TRIES):
            worker = self.idle.get()
            try:
                worker = worker or self._start_worker()
                return worker.ask(shard)
            except (EOFError, OSError):
                if self.is_closed or worker is None:
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
            if self.is_closed:
                raise EOFError
            worker = Worker(self.work, self.threads)
            self.alive.add(worker)
        return worker

    def close(self) -> None:
        """Stop all workers and wait for their end; a second call does nothing."""
        with self.lock:
            self.is_closed = True
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
        # The work goes through the pipe, as shards do: Python's own would break off within it, and
        # the worker print a traceback, if this process were killed.
        self.work: bytes | None = work
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        block_interrupts()
        with limit_threads(threads):
            self.process.start()
        theirs.close()

    def ask(self, shard: Any) -> bytes:
        """The pickled answer to a shard."""
        if self.work is not None:
            self.pipe.send_bytes(self.work)
            self.work = None
        self.pipe.send_bytes(to_bytes(shard))
        return self.pipe.recv_bytes()

    def stop(self) -> str:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        status = self.process.exitcode or 0
        if status >= 0:
            return f"with status {status}"
        name = signal.Signals(-status).name
        return f"by {name}" + (", as by a system out of memory" if name == "SIGKILL" else "")


def to_bytes(item: Any) -> bytes:
    """A pickled object; the highest protocol copies arrays as they are in memory."""
    return pickle.dumps(item, pickle.HIGHEST_PROTOCOL)


def block_interrupts() -> None:
    """Block Ctrl-C and SIGTERM in this thread and its processes; the main thread answers them."""
    if sys.platform == "win32":
        return
    from multiprocessing import resource_tracker

    # Start it here: its start would unblock interrupts later.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Set limits of threads in the environment of processes that start in this block.

    They must be set before the process starts: imports of its main module may load a library of
    linear algebra, which reads them once.
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
    """A worker's environment variables; a lower limit of the user stays, OpenBLAS has one."""
    limits = {}
    for name in _THREAD_LIMITS:
        limit = os.environ.get(name, "")
        limits[name] = str(min(threads, int(limit)) if limit.isdecimal() else threads)
    return limits | {"OPENBLAS_NUM_THREADS": "1"}  # see limit_openblas


def serve(pipe: Connection) -> None:
    """Answer shards until the other end closes."""
    if sys.platform != "win32":  # SIGTERM may end a single worker: another one replaces it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # stdout is for the parent's data: send what libraries print to stderr.
    os.dup2(2, 1)
    task: Callable[[Any], Any] | None = None
    with suppress(EOFError, OSError):  # the parent has ended
        work = pipe.recv_bytes()
        while True:
            shard = pipe.recv_bytes()
            try:
                task = task or pickle.loads(work)
                reply = to_bytes(answer(task, pickle.loads(shard)))
            except Exception as error:  # a failure to pickle or unpickle is an answer too
                reply = to_bytes(Answer((), error=to_portable(error)))
            pipe.send_bytes(reply)


def exit_with_parent() -> None:
    """End this process when its parent has ended for any reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
