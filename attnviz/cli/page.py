"""Where interactive pages go: files, and the reader's browser."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from attnviz.attention_map import Attention
from attnviz.cli.output import check_writable, note, write_file
from attnviz.errors import UsageError
from attnviz.outputs import as_bytes, page_html
from attnviz.pipeline import Result
from attnviz.renderers import Views

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
        self.write(result)

    def write(self, result: Attention, picture: bytes | None = None) -> None:
        """Write a page, with the picture whose patches attend if there is one."""
        if self.path is None and self.count:
            return
        path = self.path or Path(tempfile.mkstemp(prefix="attnviz-", suffix=".html")[1])
        if self.many and self.path:
            path = path.with_name(f"{path.stem}-{self.count}{path.suffix}")
        write_file(path, as_bytes(page_html(result, command_line(), picture=picture)))
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
