"""The outputs of a run's plan: everything that it writes and says, whatever its data are.

Data go to stdout and, whole or not at all, to a data
file, pictures and a page; records that failed to a file of rejects; notes to stderr.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.cli import destinations
from attnviz.cli.places import hold_interrupts, note
from attnviz.cli.plan import Plan
from attnviz.cli.stderr import complain
from attnviz.core.errors import AttnvizError
from attnviz.core.notices import details_to, hold, kind_of, notices_to
from attnviz.core.registry import BROWSER, FORMATS, DataKind
from attnviz.renderers import NO_VIEWS, Display, reports
from attnviz.runs.reporting import item_of, reject_of
from attnviz.storage.writing import PARTS, PartialFile

if TYPE_CHECKING:
    from attnviz.cli.terminal import ShownPictures
    from attnviz.core.attention_map import Attention
    from attnviz.runs.resumable import ResumableSink
    from attnviz.storage.texts import BadText, Text


MOST_ROWS = 500
"""Rows of a table, unless a reader says how many."""
PLAIN: tuple[DataKind, ...] = ("alignment", "scores", "times", "listing")
"""Data whose tables have no colours, and are not fitted to the terminal."""


def display_of(plan: Plan) -> Display:
    """How text is laid out; only what a reader sees is fitted to the terminal."""
    output, many = plan.options.output, plan.many
    forms = {FORMATS[name].form for name in plan.formats}
    wide = plan.kind not in PLAIN and not forms.isdisjoint(("text", "maps"))
    # Asking for the terminal's width costs an import.
    display = destinations.display_of_stdout(many=many) if wide else Display(many=many)
    return replace(
        display,
        rows=MOST_ROWS if output.max_rows is None else output.max_rows,
        short=output.max_rows is None,
        whole=output.max_rows == 0,
        pieces=output.pieces,
        hints=not (many or output.quiet) and sys.stdout.isatty(),
        fields=reports.parse_fields(output.fields),
        digits=output.digits,
    )


class Notices:
    """The notes on stderr: most at once, repeated ones at the end with ranges of numbers."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.latest, self.pending = dict[str, str](), dict[str, str]()

    def say(self, text: str) -> None:
        """Print a note once; if its numbers change, `say_held` prints their range at the end."""
        kind = kind_of(text)
        if kind not in self.latest and not self.quiet:
            note(text)
        self.latest.setdefault(kind, text)
        hold(self.pending, text)

    def say_held(self) -> None:
        """Print the held notes whose words have changed since they were printed."""
        for kind, text in self.pending.items():
            if self.latest.get(kind) != text and not self.quiet:
                note(text)
            self.latest[kind] = text


class Outputs(AbstractContextManager["Outputs"]):
    """Everything that one run of the command line writes and says.

    For each result, in order, call `add`; for each record that failed `skip`; behind the last one
    `finish`. What is not finished when the run ends leaves no file, or one that --resume continues.
    While it is open, notes of the work are printed on stderr.

    The counts of `failures` and of `good` results include those of an earlier run.
    """

    def __init__(self, plan: Plan) -> None:
        options = plan.options
        self.plan, self.options = plan, options
        self.start_time = time.perf_counter()
        self.open, self.format, self.formats = ExitStack(), plan.format, plan.formats
        self.notices = Notices(quiet=options.output.quiet)
        self.screen = self._open_screen()
        self.display = display_of(plan)
        self.resumable: ResumableSink | None = None
        if plan.kind == "maps":
            self.resumable = destinations.open_resumable(
                options,
                many=plan.many,
                command=plan.command,
                input_file=plan.input_file,
                width=self.display.width,
            )
        self.failures = self.resumable.failures if self.resumable else 0
        self.good = self.records_done - self.failures
        self.last_failure, self.blanks = "", 0
        with self.open:  # what fails before the run has begun leaves no draft
            resumable = self.resumable
            self.rejects = self._draft(options.many.rejects, resumable and resumable.rejects_path)
            self.outputs = self._outputs()
            self.open = self.open.pop_all()

    def _outputs(self) -> list[destinations.RunOutput | ShownPictures]:
        output, kind, many = self.options.output, self.plan.kind, self.plan.many
        outputs: list[destinations.RunOutput | ShownPictures] = []
        if draft := self._draft(output.output, self.resumable):
            plain = replace(self.display, colors=None)
            renderer = reports.make_renderer(reports.format_of(draft.path, kind), plain, kind)
            outputs.append(destinations.DataOutput(renderer, draft))
        for picture, path in self.plan.pictures.items():
            outputs.append(
                destinations.PictureFiles(
                    picture, path, self.options.look, many=many, count=self.good
                )
            )
        if output.html or output.open_page:
            pages = destinations.PageFiles(
                output.html,
                many=many,
                in_browser=output.open_page,
                count=self.good,
                each=self.plan.pages,
            )
            pages.atlas = output.atlas
            outputs.append(pages)
        renderer = reports.make_renderer(self.format, self.display, kind)
        alone = not (outputs or self.resumable)
        outputs.append(destinations.DataOutput(renderer, alone=alone))
        if self.screen is not None:
            outputs.append(self.screen)
        if output.browse:  # the last, when all others are complete
            outputs.append(BROWSER.load()(self.options, self.plan.command))
        return outputs

    def _open_screen(self) -> ShownPictures | None:
        """The terminal that --show draws in; without one a note says why."""
        if not (names := self.plan.on_screen):
            return None
        from attnviz.cli.terminal import ShownPictures, ask_screen
        from attnviz.commands.command import MAPS

        screen = ask_screen()
        if screen.lack:
            name = names[0]
            option = f"--{name} " if name in MAPS else f"--picture {name}:"
            self.notices.say(f"{screen.lack}; {option}FILE.png writes the picture")
            return None
        return ShownPictures(screen, names, self.options.look, self.say, many=self.plan.many)

    def _draft(self, path: Path | None, owner: object) -> PartialFile | None:
        if path is None or owner:
            return None
        return self.open.enter_context(PartialFile(path, kinds=PARTS))

    def reject(self, lines: bytes, count: int = 1) -> None:
        """Count records that failed, and write their lines to the file of rejects."""
        with hold_interrupts():
            if self.resumable is not None:
                self.resumable.skip(lines)
            if self.rejects is not None:
                self.rejects.write(lines)
            for output in self.outputs:
                if isinstance(output, destinations.DataOutput):
                    output.skip()
            self.failures += count

    def __enter__(self) -> Outputs:
        self.open.enter_context(notices_to(None if self.notices.quiet else self.say))
        self.open.enter_context(details_to(note if self.options.output.verbose else None))
        for doubt in doubts(self.options.given):
            self.say(doubt)
        return self

    def __exit__(self, *error: Any) -> None:
        self.notices.say_held()
        if self.resumable is not None:
            self.resumable.leave()
        self.open.__exit__(*error)
        if self.failures and not self.last_failure and error[0] is None:
            records = f"{self.failures} record{'s' if self.failures > 1 else ''}"
            complain(f"{records} failed in the run that this one continues")

    @property
    def records_done(self) -> int:
        """How many records are done, those of an earlier run included."""
        return self.resumable.records if self.resumable else 0

    @property
    def complete(self) -> bool:
        """True where an earlier run has done everything."""
        return self.resumable is not None and self.resumable.complete

    @property
    def status(self) -> int:
        """The exit status: 1 if a record failed."""
        return 1 if self.failures else 0

    def say(self, text: str) -> None:
        """Say a note on stderr, once, unless --quiet was given; if its numbers change, again."""
        self.notices.say(text)

    def hold(self, text: str) -> None:
        """Say a note when all is done, its numbers as a range over the texts."""
        hold(self.notices.pending, text)

    def say_done(self, what: str, loaded_at: float | None = None) -> None:
        """Say how long the work took, if --verbose was given."""
        if self.options.output.verbose:
            now, loading = time.perf_counter(), ""
            if loaded_at is not None:
                loading = f"loaded in {loaded_at - self.start_time:.2f} s, "
            note(f"{loading}{what} in {now - (loaded_at or self.start_time):.2f} s")

    def add(self, result: Attention | reports.Data | reports.Item) -> None:
        """Write one result to every output, also if Ctrl-C is pressed meanwhile."""
        item = item_of(result, self.options)
        if self.format != "table" and isinstance(item.data, reports.Data):
            for text in item.data.notes:
                self.say(text)
        with hold_interrupts():
            if self.resumable is not None:
                data: Any = item.data
                self.resumable.add(data, item.views)
            self._write(item)
            self.good += 1

    def _write(self, item: reports.Item) -> None:
        for output in self.outputs:
            if isinstance(output, destinations.DataOutput):
                output.prepare(item)
        for output in self.outputs:
            output.add(item)

    def add_page(self, page: Callable[[str], str]) -> None:
        """Write the page of one text, whose data come with those of all."""
        with hold_interrupts():
            for output in self.outputs:
                if isinstance(output, destinations.PageFiles):
                    output.add(reports.Item(reports.Data(), NO_VIEWS, page=page))

    def add_blank(self, result: reports.Data) -> None:
        """Write a blank for a failed record, so that line N stays that of record N."""
        with hold_interrupts():
            self._write(item_of(result, self.options))
        self.blanks += 1

    def skip(self, record: Text | BadText | None, error: AttnvizError) -> None:
        """Say why a record failed, and write its line to the file of rejects.

        Raises:
            AttnvizError: the same error, with --on-error stop.
        """
        if str(self.options.many.on_error) == "stop":
            raise error
        if str(error) != self.last_failure:  # a worker that died takes many records with it
            complain(str(error), type(error).__name__, error.status)
        self.last_failure = str(error)
        self.reject(reject_of(record, error))

    def finish(self, summary: str = "") -> None:
        """Complete every output, or only the file of rejects if every record failed."""
        with hold_interrupts():
            if self.good == 1 and not self.failures:
                for output in self.outputs:
                    if isinstance(output, destinations.NumberedFiles):
                        output.rename_only()
            if self.resumable is not None:
                self.resumable.finish()
            for output in self.outputs:
                on_stdout = isinstance(output, destinations.DataOutput) and output.draft is None
                if self.good or (self.blanks and on_stdout):
                    output.finish()
            if self.rejects is not None:
                self.rejects.move()
        self.notices.say_held()
        data_file = self.options.output.output
        if self.failures and not self.good and data_file is not None and data_file.is_file():
            self.say(f"'{data_file}' is left as it was: every record failed")
        if summary:
            self.say_done(summary)

    def progress(
        self, total: Callable[[], int | None] | None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A function that takes how many more records are done; a terminal shows a progress bar.

        `total` counts the records; None: there is only one.
        """
        if total is None or self.options.output.quiet or not sys.stderr.isatty():
            return nullcontext(lambda more: None)
        return progress_bar(total())


def doubts(arguments: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Notes on arguments that may be mistakes: a text that names a file, or single words."""
    texts = [value for name, value in arguments if name in ("text", "source", "target")]
    for text in texts:
        # os.path, since Path.is_file() raises where a text is longer than a name can be.
        if text != "-" and os.path.isfile(text):  # noqa: PTH113
            yield f"'{text}' is read as text and is also a file: --input {text} reads the file"
    words = [text for text in texts if text.strip() and len(text.split()) == 1 and text != "-"]
    if len(words) == len(texts) > 2:
        yield f"{len(texts)} texts of one word each: quote a sentence to make it one text"


@contextmanager
def progress_bar(total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A function that takes how many more texts are done, and shows the sum on stderr."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    start, count = time.monotonic(), 0
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
        nonlocal count
        count += more
        seconds = time.monotonic() - start
        if seconds <= 1:  # most runs end within a second, and need no bar
            return
        remainder = (
            "" if total is None else f"{_format_clock((total - count) * seconds / count)} left"
        )
        of_all = f"{count:,}" if total is None else f"{count:,} of {total:,}"
        rate = f"{count / seconds:.0f} a second"
        progress.update(task, completed=count, done=of_all, rate=rate, remaining=remainder)
        progress.start()

    try:
        yield advance
    finally:
        progress.stop()


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
