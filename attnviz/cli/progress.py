"""A progress bar on stderr: how many texts are done, and how many a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A function that takes how many more texts are done, and shows the sum on stderr."""
    started, done = time.monotonic(), 0
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[done]} texts"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[remaining]}"),
        console=Console(stderr=True, force_jupyter=False),
        transient=True,
    )
    task = progress.add_task("texts", total=total, done="0", rate="", remaining="")

    def advance(more: int) -> None:
        nonlocal done
        done += more
        elapsed = time.monotonic() - started
        if elapsed <= 1:  # most runs end within a second, and need no bar
            return
        left = "" if total is None else f"{_format_clock((total - done) * elapsed / done)} left"
        of_all = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        rate = f"{done / elapsed:.0f} a second"
        progress.update(task, completed=done, done=of_all, rate=rate, remaining=left)
        progress.start()

    try:
        yield advance
    finally:
        progress.stop()


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
