"""Memory and speed against the number of lines: `attnviz self --input FILE`, a process each.

Run it as a script; it prints the most memory that each process had and its texts per second, and
asserts nothing.

    python benchmarks/lines.py [LINES ...]
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

LINES = (1_000, 10_000, 100_000)
ATTNVIZ = Path(sys.executable).parent / "attnviz"
WORDS = ("the", "a", "cat", "dog", "professor", "student", "read", "saw", "paper", "and", "in")


def write(path: Path, lines: int) -> None:
    """A file of sentences of 3 to 12 words."""
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(lines):
            file.write(" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) + "\n")


def peak(path: Path) -> int:
    """The most MiB that a process over the file had."""
    command = [ATTNVIZ, "self", "--input", path, "-f", "jsonl", "--quiet"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"attnviz ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss >> 10


def main(counts: tuple[int, ...]) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place:
        for lines in counts:
            path = Path(place) / "lines.txt"
            write(path, lines)
            started = perf_counter()
            memory = peak(path)
            took = perf_counter() - started
            print(f"{lines:>9,} lines  {memory:5} MiB  {lines / took:5.0f} texts/s", flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or LINES)
