"""A process for each type, with a limit of time and of memory; rows are kept as they come."""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from tests.families.rows import Row
from tests.families.types_of import find_type

ROOT = Path(__file__).parents[2]
SECONDS, BYTES = 150, 6 * 2**30
"""What a type may take."""


def place_of_rows() -> Path:
    """Where rows are kept, by transformers' version and the state of the source."""
    import transformers

    digest = hashlib.sha256()
    for room in ("attnviz", "tests/families"):
        for file in sorted((ROOT / room).rglob("*.py")):
            digest.update(file.read_bytes())
    name = f"{transformers.__version__}-{digest.hexdigest()[:12]}.jsonl"
    return ROOT / ".nox" / "families" / name


def kept(place: Path) -> dict[str, Row]:
    """The rows of a broken run, by type."""
    if not place.exists():
        return {}
    rows = {}
    for line in place.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # a line that was cut when the run broke
            row = Row(**json.loads(line))
            rows[row.name] = row
    return rows


def try_types(names: Iterable[str], place: Path, workers: int = 1) -> Iterator[Row]:
    """The row of each type; those that are kept come first."""
    there = kept(place)
    wanted = [*names]
    yield from (there[name] for name in wanted if name in there)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not place.read_bytes().endswith(b"\n"):
        place.write_bytes(place.read_bytes() + b"\n")
    for row in _in_processes([name for name in wanted if name not in there], workers):
        with place.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row.to_dict()) + "\n")
        yield row


def _in_processes(names: Sequence[str], workers: int) -> Iterator[Row]:
    _prepare(names)
    context = multiprocessing.get_context("fork")
    waiting, running = [*names], dict[Connection, tuple[str, Any, float]]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                ours, its = context.Pipe(duplex=False)
                name = waiting.pop(0)
                process = context.Process(target=_child, args=(name, its))
                process.start()
                its.close()
                running[ours] = name, process, monotonic() + SECONDS
            ends = [end for *_, end in running.values()]
            ready = wait([*running], timeout=max(0.0, min(ends) - monotonic()))
            for pipe, (name, process, end) in [*running.items()]:
                if pipe in ready:
                    row = _received(name, pipe)
                elif monotonic() >= end:
                    process.kill()
                    row = _lost(name, f"its trial takes more than {SECONDS} seconds")
                else:
                    continue
                process.join()
                pipe.close()
                del running[pipe]
                yield row
    finally:  # a run that is broken leaves no process behind
        for _, process, _ in running.values():
            process.kill()


def _received(name: str, pipe: Connection) -> Row:
    try:
        row: Row = pipe.recv()
    except EOFError:
        return _lost(name, "its trial's process died")
    return row


def _lost(name: str, reason: str) -> Row:
    return Row(name, find_type(name).kind, "not built", attention=True, reason=reason)


def _prepare(names: Sequence[str]) -> None:
    """Import what every child needs, and the code of the types, once."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    import torch
    import transformers

    import attnviz.commands.attend  # noqa: F401
    import tests.families.trial  # noqa: F401

    torch.set_num_threads(1)  # a process with threads cannot be forked
    for name in names:
        find_type(name)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    gc.freeze()


def _child(name: str, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process breaks the run
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    from tests.families.trial import try_type

    try:
        row = try_type(name)
    except MemoryError:
        row = _lost(name, f"its trial takes more than {BYTES >> 30} GiB")
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        kind = find_type(name).kind
        row = Row(name, kind, "foreign error", attention=True, reason=f"the trial: {reason}")
    pipe.send(row)
