"""Where interactive pages go: files, and the reader's browser."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from attnviz.cli.options import Options
from attnviz.cli.output import (
    Draft,
    check_writable,
    different,
    note,
    refuse_binary_on_terminal,
    uninterrupted,
    write_bytes,
    write_file,
)
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError
from attnviz.core.registry import FORMATS
from attnviz.renderers import Display, Renderer, Views
from attnviz.runs.outputs import (
    as_bytes,
    format_of,
    make_renderer,
    page_html,
    picture_bytes,
    picture_suffix,
    views_of,
)
from attnviz.runs.pipeline import Result, check_kept

if TYPE_CHECKING:
    from attnviz.cli.resumable import ResumableSink

SUFFIXES = (".html", ".htm")


class PageSink:
    """A page of each text: FILE for one text, FILE-0, FILE-1, … for several."""

    def __init__(self, path: Path | None, many: bool, shown: bool) -> None:
        """Find out before the work whether pages can be written.

        Args:
            path: where to; None: a temporary file, which stays for the browser to read.
            many: whether several texts may come.
            shown: open the first page in a browser.

        Raises:
            UsageError: a suffix that is no page's.
            OutputError: a place that cannot be written.
        """
        if path is not None:
            if path.suffix.lower() not in SUFFIXES:
                raise UsageError(f"--html '{path}' must end in {' or '.join(SUFFIXES)}")
            check_writable(path)
        self.path, self.many, self.shown = path, many, shown
        self.count = 0

    def add(self, result: Result, views: Views) -> None:
        """Write the text's page, and show it if it is the first."""
        self.write(result, shown=views)

    def write(
        self, result: Attention, picture: bytes | None = None, shown: Views | None = None
    ) -> None:
        """Write a page, with the picture whose patches attend if there is one."""
        if self.path is None and self.count:
            return
        path = self.path or Path(tempfile.mkstemp(prefix="attnviz-", suffix=".html")[1])
        if self.many and self.path:
            path = path.with_name(f"{path.stem}-{self.count}{path.suffix}")
        write_file(path, as_bytes(page_html(result, command_line(), picture=picture, shown=shown)))
        if self.shown and not self.count:
            show(path)
        self.count += 1

    def finish(self) -> None:
        """Say that only one page was shown, where there were more texts."""
        if self.shown and self.many:
            note("--open shows the first text; --html FILE writes a page for each")


def show(path: Path) -> None:
    """Open a page in the browser, or say where it is."""
    import webbrowser

    if webbrowser.open(path.absolute().as_uri()):
        note(f"opened '{path}' in a browser")
    else:
        note(f"no browser was found: open '{path}'")


def command_line() -> str:
    """What was typed, as a shell reads it; empty where Python called."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program not in ("attnviz", "attnviz.exe", "__main__.py"):
        return ""
    return shlex.join(["attnviz", *sys.argv[1:]])


# <places> Single places that results go to: stdout, a file, pictures.


class Sink(Protocol):
    """One place that results go to."""

    def add(self, result: Result, views: Views) -> None:
        """Take one text's result."""
        ...

    def finish(self) -> None:
        """All texts are through."""
        ...


class StdoutSink:
    """Data on stdout, each text as soon as it is done."""

    def __init__(self, renderer: Renderer, alone: bool = True) -> None:
        """Take the renderer.

        Args:
            renderer: of the format.
            alone: nothing else is written, so that the run ends once nobody reads stdout.
        """
        self.renderer, self.alone = renderer, alone
        self.read = True

    def add(self, result: Result, views: Views) -> None:
        """Write the text's part."""
        if self.read:
            self._write(self.renderer.add(result, views))

    def finish(self) -> None:
        """Write what closes the data."""
        if self.read:
            self._write(self.renderer.finish())

    def _write(self, part: str | bytes) -> None:
        try:
            write_bytes(as_bytes(part))
        except BrokenPipeError:
            if self.alone:
                raise
            self.read = False


class FileSink:
    """Data in a file, moved into place once it is whole."""

    def __init__(self, renderer: Renderer, draft: Draft) -> None:
        self.renderer, self.draft = renderer, draft

    def add(self, result: Result, views: Views) -> None:
        """Append the text's part to the draft."""
        self.draft.write(as_bytes(self.renderer.add(result, views)))

    def finish(self) -> None:
        """Close the data and move it into place."""
        self.draft.write(as_bytes(self.renderer.finish()))
        self.draft.keep()


class PictureSink:
    """A picture of each text: FILE for one text, FILE-0, FILE-1, … (by id) for several."""

    def __init__(self, picture: str, path: Path, many: bool, count: int = 0) -> None:
        """Check the suffix.

        Args:
            picture: which one.
            path: where to.
            many: whether several texts may come.
            count: how many an earlier run has drawn.

        Raises:
            UsageError: a suffix that is no picture's.
        """
        self.picture, self.path, self.many = picture, path, many
        self.suffix = picture_suffix(path)
        self.count = count

    def add(self, result: Result, views: Views) -> None:
        """Draw the text's picture."""
        path = self.path
        if self.many:
            path = path.with_name(f"{path.stem}-{self.count}{path.suffix}")
        self.count += 1
        write_file(path, picture_bytes(result, self.picture, self.suffix, views))

    def finish(self) -> None:
        """Nothing more: every picture is already whole."""


# <sinks> Everything that one run writes: stdout, a data file, pictures; each text is computed
# once.


class Sinks(AbstractContextManager["Sinks"]):
    """All sinks of a run; what is not finished when it ends leaves no file, or one to go on with.

    For each record of the input, in order, call `add` or `skip`; behind the last one `finish`.

    Attributes:
        failed: records that came to nothing, those of an earlier run included.
        good: records that came to something, likewise.
    """

    def __init__(
        self,
        options: Options,
        many: bool,
        command: str = "",
        input_file: Path | None = None,
    ) -> None:
        """Check and open everything that will be written.

        Args:
            options: what was asked for.
            many: whether several texts may come.
            command: what makes the results.
            input_file: the file that the texts come from, if it can be read again.

        Raises:
            UsageError: an unknown format, a wrong suffix, one file asked for twice, or nothing that
                could be gone on with.
            OutputError: a place that cannot be written.
        """
        self.open = ExitStack()
        output = options.output
        pictures = check_places(options)
        choice = options.choice
        self.every_layer = choice.layer is not None
        self.as_chosen = self.every_layer or choice.head is not None or choice.reduce != "none"
        self.top = options.origin.top
        display = display_of_stdout(many)
        renderer = make_renderer(output.format, display)
        if FORMATS[output.format].binary:
            refuse_binary_on_terminal(output.format)
        self.lasting = open_lasting(options, many, command, input_file, display.width)
        self.failed = self.lasting.failed if self.lasting else 0
        self.good = self.done - self.failed
        self.sinks: list[Sink] = [self.lasting] if self.lasting else []
        self.rejects = self._draft(options.many.rejects, self.lasting and self.lasting.rejects_path)
        if draft := self._draft(output.output, self.lasting):
            plain = Display(many=many, width=display.width)
            self.sinks.append(FileSink(make_renderer(format_of(draft.path), plain), draft))
        for picture, path in pictures.items():
            self.sinks.append(PictureSink(picture, path, many, self.good))
        if output.html or output.open_page:
            page = PageSink(output.html, many, output.open_page)
            page.count = self.good
            self.sinks.append(page)
        self.sinks.append(StdoutSink(renderer, alone=not self.sinks))

    def _draft(self, path: Path | None, taken: object) -> Draft | None:
        """A file that appears whole or not at all, unless it is none or taken care of."""
        return None if path is None or taken else self.open.enter_context(Draft(path))

    @property
    def done(self) -> int:
        """How many records are done, those of an earlier run included."""
        return self.lasting.records if self.lasting else 0

    @property
    def complete(self) -> bool:
        """True where an earlier run has done everything."""
        return self.lasting is not None and self.lasting.complete

    def add(self, result: Result) -> None:
        """Write one record's result everywhere, whatever Ctrl-C says meanwhile."""
        shown = views_of(
            result, every_layer=self.every_layer, as_chosen=self.as_chosen, top=self.top
        )
        with uninterrupted():
            for sink in self.sinks:
                sink.add(result, shown)
            self.good += 1

    def skip(self, reject: bytes = b"") -> None:
        """Count a record that came to nothing, and write its line to the file of rejects."""
        with uninterrupted():
            if self.lasting is not None:
                self.lasting.skip(reject)
            if self.rejects is not None:
                self.rejects.write(reject)
            self.failed += 1

    def finish(self) -> None:
        """Complete everything; where no record came to anything, the file of rejects only."""
        with uninterrupted():
            for sink in self.sinks if self.good else [item for item in (self.lasting,) if item]:
                sink.finish()
            if self.rejects is not None:
                self.rejects.keep()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.lasting is not None:
            self.lasting.leave()
        self.open.__exit__(kind, error, trace)


def check_places(options: Options) -> dict[str, Path]:
    """Find out whether everything asked for has a place of its own; answers the pictures'.

    Raises:
        UsageError: a wrong suffix, or one file asked for twice.
        OutputError: a picture that cannot be written.
    """
    output = options.output
    asked = {"heatmap": output.heatmap, "grid": output.grid, "links": output.links}
    pictures = {name: path for name, path in asked.items() if path is not None}
    different(output.output, output.html, options.many.rejects, *pictures.values())
    check_kept(options.origin, options.choice)
    if options.origin.keep_qk and not (output.html or output.open_page):
        raise UsageError("--keep-qk shows on the page only: add --html FILE or --open")
    for path in pictures.values():
        picture_suffix(path)
        check_writable(path)
    return pictures


def open_lasting(
    options: Options, many: bool, command: str, input_file: Path | None, width: int
) -> ResumableSink | None:
    """The data file in shards, or one that an interrupted run leaves to go on with.

    None where neither can be: the file then appears whole or not at all.

    Raises:
        UsageError: it was asked for all the same.
        OutputError: a place that cannot be written.
    """
    path, shard_size = options.output.output, options.many.shard_size
    resume, rejects = options.many.resume, options.many.rejects
    if path is None:
        if shard_size or resume:
            given = "--shard-size" if shard_size else "--resume"
            raise UsageError(f"{given} is about the data file: add -o FILE")
        return None
    name = format_of(path)
    again = input_file is not None and input_file.is_file()
    if resume and not again:
        raise UsageError("--resume reads the texts again: give them by --input FILE, not a pipe")
    if resume and not shard_size and not FORMATS[name].grows:
        raise UsageError(
            f"--resume cannot go on with half of '{path}': add --shard-size N, or write "
            f"{', '.join(item.suffix for item in FORMATS.values() if item.grows)}"
        )
    if not many:
        return None
    # Most runs have one text, and need none of what makes files last.
    from attnviz.cli.journal import question_of
    from attnviz.cli.resumable import ResumableSink, can_last

    if not shard_size and not (again and FORMATS[name].grows and can_last(path)):
        return None

    def make(first: int, begun: bool) -> Renderer:
        return make_renderer(name, Display(width=width, many=True, first=first, begun=begun))

    make(0, False)
    return ResumableSink(
        path,
        make,
        grows=FORMATS[name].grows,
        shard_size=shard_size,
        rejects=rejects if rejects and can_last(rejects) else None,
        question=question_of(command, options, input_file) if again and input_file else None,
        resume=resume,
        say=(lambda _: None) if options.output.quiet else note,
    )


def display_of_stdout(many: bool) -> Display:
    """Width and colours of stdout: NO_COLOR, FORCE_COLOR, COLUMNS and TERM are honoured.

    A pipe has no width of its own and reads at that of the terminal around it, else at 80 columns.
    """
    from rich.console import Console

    console = Console(force_terminal=True if os.environ.get("FORCE_COLOR") else None)
    colors = None if console.no_color or not console.is_terminal else console.color_system
    named = {"windows": "standard"}.get(colors or "", colors)
    if not sys.stdout.isatty() and os.environ.get("FORCE_COLOR") and colors is None:
        named = None if console.no_color else "standard"
    return Display(width=max(console.width, 20), colors=named, many=many)
