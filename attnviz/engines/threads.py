"""How many threads a worker takes, and sums that do not depend on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

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
