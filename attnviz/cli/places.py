"""Single places that results go to: stdout, a file, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from attnviz.cli.output import Draft, write_bytes, write_file
from attnviz.outputs import as_bytes, picture_bytes, picture_suffix
from attnviz.pipeline import Result
from attnviz.renderers import Renderer, Views


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
        write_file(path, picture_bytes(result, self.picture, self.suffix))

    def finish(self) -> None:
        """Nothing more: every picture is already whole."""
