"""A count and a rate on stderr, for work that takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Item = TypeVar("Item")


def counted(items: Iterable[Item]) -> Iterator[Item]:
    """The items as they come, counted on stderr from the second second on until the end."""
    started = time.monotonic()
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed} texts"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task("texts", total=None, rate="")
    try:
        for number, item in enumerate(items, 1):
            elapsed = time.monotonic() - started
            if elapsed > 1:
                progress.start()
                progress.update(task, completed=number, rate=f"{number / elapsed:.0f} a second")
            yield item
    finally:
        progress.stop()
