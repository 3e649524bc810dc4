"""Everything that one run writes: stdout, a data file, pictures; each text is computed once."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol

from attnviz.analyses.view import views
from attnviz.cli.options import Options
from attnviz.cli.output import Draft, check_writable, refuse_binary_on_terminal, write_bytes
from attnviz.errors import UsageError
from attnviz.outputs import as_bytes, format_of, make_renderer, picture_bytes, picture_suffix
from attnviz.pipeline import Result, check_kept
from attnviz.registry import FORMATS
from attnviz.renderers import Display, Renderer, Views


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

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer

    def add(self, result: Result, views: Views) -> None:
        """Write the text's part."""
        write_bytes(as_bytes(self.renderer.add(result, views)))

    def finish(self) -> None:
        """Write what closes the data."""
        write_bytes(as_bytes(self.renderer.finish()))


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

    def __init__(self, picture: str, path: Path, many: bool) -> None:
        self.picture, self.path, self.many = picture, path, many
        self.suffix = picture_suffix(path)
        self.count = 0

    def add(self, result: Result, views: Views) -> None:
        """Draw the text's picture."""
        from attnviz.cli.output import write_file

        path = self.path
        if self.many:
            path = path.with_name(f"{path.stem}-{self.count}{path.suffix}")
        self.count += 1
        write_file(path, picture_bytes(result, self.picture, self.suffix))

    def finish(self) -> None:
        """Nothing more: every picture is already whole."""


class Sinks(AbstractContextManager["Sinks"]):
    """All sinks of a run; what is not finished when it ends leaves no file behind."""

    def __init__(self, options: Options, many: bool) -> None:
        """Check and open everything that will be written.

        Raises:
            UsageError: an unknown format, a wrong suffix, or one file asked for twice.
            OutputError: a place that cannot be written.
        """
        self.open = ExitStack()
        output = options.output
        pictures = {"heatmap": output.heatmap, "grid": output.grid, "links": output.links}
        paths = [path for path in (output.output, output.html, *pictures.values()) if path]
        if len({path.absolute() for path in paths}) < len(paths):
            raise UsageError("two outputs go to the same file: name different ones")
        check_kept(options.origin, options.choice)
        if options.origin.keep_qk and not (output.html or output.open_page):
            raise UsageError("--keep-qk shows on the page only: add --html FILE or --open")
        self.every_layer = options.choice.layer is not None
        self.top = output.top
        display = display_of_stdout(many)
        self.sinks: list[Sink] = []
        renderer = make_renderer(output.format, display)
        if FORMATS[output.format].binary:
            refuse_binary_on_terminal(output.format)
        for picture, path in pictures.items():
            if path:
                check_writable(path)
                self.sinks.append(PictureSink(picture, path, many))
        if output.html or output.open_page:
            from attnviz.cli.page import PageSink

            self.sinks.append(PageSink(output.html, many, output.open_page))
        if output.output:
            name = format_of(output.output)
            plain = Display(many=many, width=display.width)
            draft = self.open.enter_context(Draft(output.output))
            self.sinks.append(FileSink(make_renderer(name, plain), draft))
        self.sinks.append(StdoutSink(renderer))

    def add(self, result: Result) -> None:
        """Write one text's result everywhere."""
        for sink in self.sinks:
            sink.add(result, lambda: views(result, self.every_layer, self.top))

    def finish(self) -> None:
        """Complete everything."""
        for sink in self.sinks:
            sink.finish()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.open.__exit__(kind, error, trace)


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
