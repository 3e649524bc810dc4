"""The outputs of a run, one by one: stdout, a file, pictures, pages."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.cli.places import note, write_bytes
from attnviz.core.errors import UsageError
from attnviz.core.notices import notify
from attnviz.core.options import Many, Options
from attnviz.core.options.look import Look
from attnviz.core.registry import FORMATS
from attnviz.renderers import Display, Numbering, Renderer, reports
from attnviz.renderers.printable import without_folders
from attnviz.storage.writing import PartialFile, output_errors, write_file

if TYPE_CHECKING:
    from attnviz.runs.resumable import ResumableSink

PAGES = (".html", ".htm")
EDGE = 1 << 16
"""Bytes at either end of a file in which its mark stands."""
OWN = {
    **dict.fromkeys(PAGES, b'<meta name="generator" content="attnviz">'),
    ".png": b"Software\0attnviz",
    ".svg": b"<dc:title>attnviz</dc:title>",
    ".pdf": b"/Creator (attnviz)",
    ".gif": b"attnviz",
    ".npz": b"attnviz",
    ".parquet": b"attnviz.schema",
}
"""Bytes by which a file of attnviz is recognised. Other text has no mark, but JSON and tables."""
JSON = re.compile(rb'\[?\{"schema": ?[12],')


class DataOutput:
    """Data in a draft, kept once it is complete, or on stdout as soon as each result is done."""

    def __init__(
        self, renderer: Renderer, draft: PartialFile | None = None, *, alone: bool = True
    ) -> None:
        self.renderer, self.draft, self.alone, self.read = renderer, draft, alone, True
        self.ready = b""

    def prepare(self, item: reports.Item) -> None:
        """Make the result's part, which may fail, before any output is written."""
        if self.read:
            data: Any = item.data
            self.ready = reports.as_bytes(self.renderer.add(data, item.views))

    def add(self, item: reports.Item) -> None:
        """Write the part that is ready."""
        if self.read:
            self._send(self.ready)

    def skip(self) -> None:
        """Count a record that failed."""
        if isinstance(self.renderer, Numbering):
            self.renderer.skip()

    def finish(self) -> None:
        """Write what closes the data, and move a file into place."""
        if self.read:
            self._send(reports.as_bytes(self.renderer.finish()))
        if self.draft is not None:
            self.draft.move()

    def _send(self, data: bytes) -> None:
        if not data:  # as -f none has it
            return
        try:
            (write_bytes if self.draft is None else self.draft.write)(data)
        except BrokenPipeError:
            if self.alone:
                raise
            self.read = False


class NumberedFiles:
    """A file for each result: FILE for one, FILE-0, FILE-1, … for several.

    Where there may be several, the first is FILE-0 until it proves to be the only one: texts may
    come slowly, and a resumed run must find the file under one name.
    """

    def __init__(self, path: Path | None, *, many: bool, count: int) -> None:
        self.path, self.many, self.count = path, many, count
        self.waits = many and path is not None

    def rename_only(self) -> None:
        """Give the file of the only result the name that was asked for."""
        if self.path is None or not self.many or self.count != 1:
            return
        if (first := numbered_path(self.path, 0)).exists():
            write_file(self.path, first.read_bytes())
            first.unlink()
            self.many = False


class PictureFiles(NumberedFiles):
    """A picture of each result."""

    def __init__(self, picture: str, path: Path, look: Look, *, many: bool, count: int = 0) -> None:
        super().__init__(path, many=many, count=count)
        self.picture, self.file, self.look = picture, path, look
        self.suffix = reports.picture_suffix(path, picture)

    def add(self, item: reports.Item) -> None:
        """Draw the result's picture."""
        write_file(
            numbered_path(self.file, self.count) if self.many else self.file, self._draw(item)
        )
        self.count += 1

    def finish(self) -> None:
        """Nothing more: every picture is already complete."""

    def _draw(self, item: reports.Item) -> bytes:
        from attnviz.renderers.figures.figure import figure_bytes
        from attnviz.runs.outputs import draw_item

        figure = draw_item(item, self.picture, self.look)
        return figure_bytes(figure, self.suffix, getattr(item.data, "about", ""))


class PageFiles(NumberedFiles):
    """A page of each text; where `each`, pages come by themselves, before the data of all texts."""

    def __init__(
        self,
        path: Path | None,
        *,
        many: bool,
        in_browser: bool,
        count: int = 0,
        each: bool = False,
    ) -> None:
        super().__init__(path, many=many or each, count=count)
        self.in_browser, self.each = in_browser, each
        self.atlas: Path | None = None

    def add(self, item: reports.Item) -> None:
        """Write the text's page, and show it if it is the first and its name is settled."""
        if self.each and item.page is None:
            return
        self.count += 1
        if self.path is None and self.count > 1:
            return
        from attnviz.runs.outputs import page_of

        path = numbered_path(self.path, self.count - 1) if self.many and self.path else self.path
        atlas = None if self.atlas is None or path is None else (self.atlas, path)
        page = page_of(item, command_line(), atlas)
        if page is None:
            raise UsageError("this result has no page: leave --html and --open out")
        save_page(path, reports.as_bytes(page), in_browser=self.in_browser and not self.waits)

    def finish(self) -> None:
        """Show the first page, and say that it is the first, where there were more texts."""
        if self.in_browser and self.waits and self.path is not None:
            show(numbered_path(self.path, 0) if self.many else self.path)
        if self.in_browser and self.count > 1:
            notify("--open shows the first text; --html FILE writes a page for each")


RunOutput = DataOutput | PictureFiles | PageFiles
"""One place that results go to."""


def numbered_path(path: Path, count: int) -> Path:
    """The file of one text of many, counted from 0."""
    return path.with_name(f"{path.stem}-{count}{path.suffix}")


def check_own(path: Path, *, several: bool = False) -> None:
    """Refuse to replace a file that attnviz did not write; of several also FILE-0, FILE-1, …."""
    files = [path] if path.is_file() else []
    if several:
        name = re.compile(rf"{re.escape(path.stem)}-\d+{re.escape(path.suffix)}")
        files += [one for one in sorted(path.parent.iterdir()) if name.fullmatch(one.name)]
    for file in files:
        if not is_own(file):
            beside = f": each text gets a file of its own beside '{path}'" if file != path else ""
            raise UsageError(
                f"'{file}' exists and is not by attnviz{beside}: choose another name, or give "
                "--overwrite"
            )


def is_own(path: Path) -> bool:
    """Whether attnviz wrote a file, by what is in it; an empty one has nothing to lose."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            first = file.read(EDGE)
            file.seek(max(file.seek(0, os.SEEK_END) - EDGE, 0))
            last = file.read()
    except OSError:
        return False
    suffix = path.suffix.lower()
    if suffix in (".json", ".jsonl"):
        return not first or JSON.match(first) is not None
    if suffix in (".csv", ".tsv"):
        from attnviz.storage.columns import is_header

        line = first.partition(b"\n")[0].decode("utf-8", "replace")
        return not first or is_header(line.split("," if suffix == ".csv" else "\t"))
    mark = OWN.get(suffix)
    return not first or (mark is not None and (mark in first or mark in last))


def save_page(path: Path | None, page: bytes, *, in_browser: bool) -> Path:
    """Write a page, without a path a temporary one; open it in a browser if it is shown."""
    if path is not None:
        write_file(path, page)
    else:
        import tempfile

        with output_errors(Path("a temporary page")):
            file, name = tempfile.mkstemp(prefix="attnviz-", suffix=".html")
        os.close(file)
        path = Path(name)
        try:
            write_file(path, page)
        except BaseException:
            path.unlink()
            raise
    if in_browser:
        show(path)
    return path


def show(path: Path) -> None:
    """Open a page in the browser, or say where it is."""
    import webbrowser

    if webbrowser.open(path.absolute().as_uri()):
        notify(f"opened '{path}' in a browser")
    else:
        note(f"no browser was found: open '{path}'")


def command_line() -> str:
    """What makes the result again, as a shell reads it but for folders; empty from Python.

    Options that decide nothing of a result are left out: who does the work, and in how many runs.
    """
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program not in ("attnviz", "attnviz.exe", "__main__.py"):
        return ""
    import shlex

    from attnviz.runs.journal import DECIDING

    words = iter(sys.argv[1:])
    options = [
        item.metadata["option"]
        for item in fields(Many)
        if item.name not in DECIDING and "watch" not in sys.argv[1:2]  # its program may have such
    ]
    takes_value = {name: bool(one.metavar) for one in options for name in one.names}
    line = ["attnviz"]
    for word in words:
        if word == "--":
            line += [word, *words]
        elif takes_value.get(word):
            next(words, None)
        elif word.partition("=")[0] not in takes_value:
            line.append(word)
    return without_folders(shlex.join(line))


def open_resumable(
    options: Options, *, many: bool, command: str, input_file: Path | None, width: int
) -> ResumableSink | None:
    """The data file in shards, or one that --resume can continue; None: neither is possible."""
    path, shard_size = options.output.output, options.many.shard_size
    resume, rejects = options.many.resume, options.many.rejects
    if path is None:
        if shard_size or resume:
            option = "--shard-size" if shard_size else "--resume"
            raise UsageError(f"{option} is about the data file: add -o FILE")
        return None
    name = reports.format_of(path)
    again = input_file is not None and input_file.is_file()
    if resume and not again:
        raise UsageError("--resume reads the texts again: give them by --input FILE, not a pipe")
    if resume and not shard_size and not FORMATS[name].grows:
        raise UsageError(
            f"--resume cannot continue a part of '{path}': add --shard-size N, or write "
            f"{', '.join(item.suffix for item in FORMATS.values() if item.grows)}"
        )
    if not many:
        return None
    # Most runs have one text, and need none of what makes files last.
    from attnviz.runs.journal import run_options
    from attnviz.runs.resumable import ResumableSink, can_resume

    if not shard_size and not (again and FORMATS[name].grows and can_resume(path)):
        return None

    names, digits = reports.parse_fields(options.output.fields), options.output.digits

    def make(first: int, begun: bool) -> Renderer:  # noqa: FBT001 - a callback's
        display = Display(width, None, many=True, as_list=True, first=first, begun=begun)
        return reports.make_renderer(name, replace(display, fields=names, digits=digits))

    make(0, False)  # noqa: FBT003 - as a callback is called
    return ResumableSink(
        path,
        make,
        grows=FORMATS[name].grows,
        shard_size=shard_size,
        rejects=rejects if rejects and can_resume(rejects) else None,
        options=run_options(command, options, input_file) if again and input_file else None,
        resume=resume,
        notify=(lambda _: None) if options.output.quiet else note,
    )


def display_of_stdout(*, many: bool) -> Display:
    """Width and colours of stdout: NO_COLOR, FORCE_COLOR, COLUMNS and TERM are honoured.

    A pipe has no width of its own and reads at that of the terminal around it, else at 80 columns.
    """
    from rich.console import Console

    as_terminal = True if os.environ.get("FORCE_COLOR") else None
    console = Console(force_terminal=as_terminal, force_jupyter=False)
    colors = None if console.no_color or not console.is_terminal else console.color_system
    system = {"windows": "standard"}.get(colors or "", colors)
    if not sys.stdout.isatty() and os.environ.get("FORCE_COLOR") and colors is None:
        system = None if console.no_color else "standard"
    return Display(width=max(console.width, 20), colors=system, many=many)
