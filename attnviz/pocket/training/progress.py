"""How a training run tells where it is: one line on stderr that moves, or plain lines in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from attnviz.pocket.training.loop import Settings

if TYPE_CHECKING:
    from attnviz.pocket.training.loop import Run
    from attnviz.pocket.training.objective import Losses

EVERY = 20
"""Steps between two lines where stderr is a file."""


class Reporter:
    """Shows step, losses, speed and the time that remains, smoothed over the last steps."""

    def __init__(self, settings: Settings, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self.settings = settings
        self.console = Console(file=sys.stderr)
        self.progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            Remaining(),
            TextColumn("{task.fields[losses]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task(
            "training", total=settings.steps, completed=done, losses=""
        )
        self.means: list[float] = []
        self.before = time.monotonic()
        self.seconds = 0.0

    def __enter__(self) -> Reporter:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def note(self, text: str) -> None:
        """Say one thing."""
        self.console.print(text, highlight=False, markup=False)
        self.before = time.monotonic()

    def report(self, run: Run, losses: Losses) -> None:
        """Take in one step and show it, or every so many steps write a line."""
        now = time.monotonic()
        taken, self.before = now - self.before, now
        self.seconds = 0.95 * self.seconds + 0.05 * taken if self.seconds else taken
        values = [value.item() for value in losses]
        old = self.means or values
        self.means = [0.95 * mean + 0.05 * value for mean, value in zip(old, values, strict=True)]
        _, translation, guide, hidden, repeats = self.means
        text = (
            f"translation {translation:.3f} guide {guide:.3f} hidden {hidden:.3f} "
            f"repeats {repeats:.3f} nats"
        )
        self.progress.update(self.task, completed=run.step, losses=text)
        if not self.console.is_terminal and run.step % EVERY == 0:
            left = (self.settings.steps - run.step) * self.seconds / 60
            self.console.print(
                f"step {run.step} of {self.settings.steps}: {text}; "
                f"{self.seconds:.2f} s a step, {left:.0f} min left",
                highlight=False,
                soft_wrap=True,
            )
