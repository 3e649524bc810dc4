"""The engine of several processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Self

from attnviz.engines import TRIES, Outcome, Shard, numbered
from attnviz.engines.answer import Answer, answer, portable
from attnviz.engines.order import in_order
from attnviz.engines.threads import cores, limited
from attnviz.errors import WorkerError

AHEAD = 2
"""Shards in flight for each worker: one it works on, and one done or next, so that neither side
waits for the other."""


class Processes:
    """Several processes, each with its copy of the work and its share of the cores.

    A worker that dies is replaced and its shard tried again; the others go on meanwhile.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.crews: list[Crew] = []

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = numbered,
    ) -> Iterator[Outcome | WorkerError]:
        """What the work makes of each shard; the workers end with the last of them."""
        crew = Crew(work, self.workers)
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


class Crew:
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
