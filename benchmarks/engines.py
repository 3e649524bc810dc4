"""Texts per second by engine over the same work, in turns, each in a fresh process.

Run it as a script: `python benchmarks/engines.py [MODEL] [ROUNDS]`; the model is the pocket
model unless a folder or an id is given. It prints what each engine needs from its start to its last
result, and its pace once every worker has its model, in times those of one process with one
thread. It asserts nothing: where a process fills the cores with its threads, more processes may
gain little, and every result has to travel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from random import Random
from statistics import median
from time import perf_counter

from attnviz.core.options import Choice, Origin
from attnviz.features.engines.processes import Processes
from attnviz.runs.engines import InProcess, open_engine
from attnviz.runs.engines.shards import cores
from attnviz.runs.many_texts import AttendChunk
from attnviz.storage.texts import Text

TEXTS, CHUNK = 2048, 256
WORDS = ("the", "professor", "who", "published", "a", "paper", "about", "cats", "in", "spring")
ENGINES = {
    "here, 1 thread": ("here", 1, 1),
    f"here, {cores()} threads": ("here", 1, cores()),
    "1 process": ("processes", 1, None),
    "2 processes": ("processes", 2, None),
    "ray, 1 worker": ("ray", 1, None),
    "ray, 2 workers": ("ray", 2, None),
}


def draw_texts() -> list[list[Text]]:
    """Chunks of sentences of 4 to 40 words, the same in every run."""
    random = Random(0)
    texts = [
        Text(str(number), " ".join(random.choices(WORDS, k=random.randint(4, 40))), where="line")
        for number in range(TEXTS)
    ]
    return [texts[start : start + CHUNK] for start in range(0, TEXTS, CHUNK)]


def run(kind: str, workers: int, model: str | None) -> tuple[float, float]:
    """Seconds from the start of an engine to its last result, and from its first two chunks on."""
    started = perf_counter()
    work = AttendChunk(Origin(model=model), Choice(), "self")
    opened = {"here": InProcess, "processes": lambda: Processes(workers)}
    with opened.get(kind, lambda: open_engine("ray", workers))() as engine:
        outcomes = engine.map(work, draw_texts())
        texts = sum(len(list(outcome)) for outcome in islice(outcomes, 2))
        warm = perf_counter()
        texts += sum(len(list(outcome)) for outcome in outcomes)
        ended = perf_counter()
    assert texts == TEXTS
    return ended - started, ended - warm


def measure(name: str, model: str | None) -> tuple[float, float]:
    """The same in a process of its own, with the threads that the engine is to have."""
    kind, workers, threads = ENGINES[name]
    limits = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, __file__, "--one", kind, str(workers), model or ""],
        env={**os.environ, **limits, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    total, warm = json.loads(done.stdout.splitlines()[-1])
    return total, warm


def main(model: str | None, rounds: int) -> None:
    """Print the figures."""
    found = {name: [(0.0, 0.0)] * 0 for name in ENGINES}
    for _ in range(rounds):
        for name, seconds in found.items():
            seconds.append(measure(name, model))
    print(f"{TEXTS} texts, {model or 'pocket'}, {cores()} cores, median of {rounds} rounds")
    base = [median(column) for column in zip(*found["here, 1 thread"], strict=True)]
    for name, seconds in found.items():
        total, warm = (median(column) for column in zip(*seconds, strict=True))
        rest = TEXTS - 2 * CHUNK
        print(
            f"{name:16} {TEXTS / total:6.0f} texts/s with its start ({base[0] / total:.2f} x)  "
            f"{rest / warm:6.0f} texts/s once warm ({base[1] / warm:.2f} x)"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(run(sys.argv[2], int(sys.argv[3]), sys.argv[4] or None)))
    else:
        model = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] != "pocket" else None
        main(model, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
