"""attnviz watch: a program run as Python runs it, and the attention that it computes."""

from __future__ import annotations

import builtins
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli.app import complain, interrupt
from attnviz.cli.options import ORIGIN, with_options
from attnviz.cli.report import Report
from attnviz.cli.run import report_all
from attnviz.core.errors import AttentionError, InputError, OutputError, UsageError
from attnviz.core.options import Options, opt
from attnviz.models.open import parse_part

if TYPE_CHECKING:
    from attnviz.runs.watching import Watched

NOTHING_SEEN = 4
"""The status where files were asked for, the program ended with 0 and there is nothing to write."""

PACKAGE = str(Path(__file__).parents[2]) + os.sep
"""Where this package lies, whose frames a program's traceback does not show."""


@with_options("pictures", "lines", "page", "long", "range", report=("data", "said"))
def watch(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="[--] SCRIPT.py [ARGS]...",
            help="Script and arguments as for python. What follows belongs to the program.",
        ),
    ],
    module: bool = opt(ORIGIN, "--module -m", "Run a module, as python -m does."),
    only: list[str] | None = opt(
        ORIGIN,
        "--only PATTERN",
        "Only modules with this path: 'decoder.*.attn'. Repeatable.",
        rare=True,
    ),
    every: int = opt(
        ORIGIN,
        "--every N",
        "Of the calls of each module keep the first and every N-th.",
        default=1,
        min=1,
        rare=True,
    ),
    first: int | None = opt(
        ORIGIN, "--first N", "Calls to keep of each module, at most.", min=1, rare=True
    ),
    batch: str = opt(
        ORIGIN, "--batch WHICH", "Item of a batch, from 0, or all.", default="0", rare=True
    ),
    eager: bool = opt(
        ORIGIN, "--eager", "Run compiled code uncompiled, to see its attention.", rare=True
    ),
    *,
    options: Options,
) -> None:
    """Run a program and show the attention in it, whatever model computes it.

    attnviz watch --html page.html -- sample_inputs/watch_decoder.py --letters 4

    attnviz watch --every 100 -o maps.npz -- -m my_package.train --epochs 1

    stdin, stdout and the exit status are the program's; but it is 4 where files were asked for, no
    attention was seen, and the program itself ended with 0. What was seen is written when it ends,
    also by an exception, Ctrl-C or SIGTERM, but not where it ends its process itself (os._exit).
    """
    if program[0] == "-m" and program[1:]:
        module, program = True, program[1:]
    if not module and not Path(program[0]).is_file():
        python = re.fullmatch(r"python[\d.]*", Path(program[0]).name)
        leave = f": leave '{program[0]}' out" if python else ""
        raise InputError(f"there is no script '{program[0]}'{leave}")
    if batch != "all" and not (batch.isascii() and batch.isdigit()):
        raise UsageError(f"--batch '{batch}' is no item of a batch: give its number from 0, or all")
    spans = {"--rows": options.origin.rows, "--window": options.origin.window}
    rows, window = (part and parse_part(part, option) for option, part in spans.items())
    if rows and window:
        raise UsageError("--rows and --window contradict each other: give one")
    silent = replace(options, output=replace(options.output, format="none"))
    here, process = Path.cwd(), os.getpid()
    with Report(silent, many=batch == "all") as report:
        # What sees torch's functions is made of torch, which is therefore imported before the
        # program does it: variables that torch reads then must be set outside of the program.
        from attnviz.runs.watching import watch as watching

        with watching(
            only=only,
            every=every,
            first=first,
            batch="all" if batch == "all" else int(batch),
            max_size=options.origin.max_size or 1024,
            rows=rows or None,
            window=window or None,
            eager=eager,
        ) as watched:
            status = _status_of(program, module=module)
        if os.getpid() != process:  # the files are those of the process that it has forked from
            report.open.pop_all()
            raise typer.Exit(status)
        os.chdir(here)
        try:
            _write(watched, Path(program[0]).name, report)
        except AttentionError as error:
            complain(str(error))
            status = status or NOTHING_SEEN * bool(_files(options))
        except OutputError as error:
            complain(str(error))
            status = status or error.status
    raise typer.Exit(status)


def _write(watched: Watched, name: str, report: Report) -> None:
    """Write what was seen in a program of that name, and say how much that is."""
    named = [
        replace(found, provenance=replace(found.provenance, model=name))
        for found in watched.records()
    ]
    report_all(((None, found) for found in named), report)
    seen, written = watched.seen, ", ".join(_files(report.options))
    paths, calls = list(seen.calls), sum(seen.calls.values())
    report.say(
        f"{calls} call{'s' * (calls != 1)} of attention by {', '.join(paths[:4])}"
        f"{f' and {len(paths) - 4} more' * (len(paths) > 4)}; {len(seen.kept)} kept"
        + (f": {written}" if written else ", and written by -o, --html, --heatmap or --grid FILE")
    )
    report.say_done("program and maps")


def _files(options: Options) -> list[str]:
    """The files that were asked for."""
    output = options.output
    places = (output.output, output.heatmap, output.grid, output.lines, output.html)
    return [str(place) for place in places if place]


def _status_of(program: list[str], *, module: bool) -> int:
    """Run a program as the main one, and answer its exit status."""
    name, *words = program
    before = sys.argv, sys.path, sys.stdout, sys.stderr
    answers: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: _terminate,
    }
    ours = [number for number in answers if signal.getsignal(number) is interrupt]
    folder = os.getcwd() if module else os.path.dirname(os.path.realpath(name))  # noqa: PTH109, PTH120
    sys.argv = ["-m" if module else name, *words]
    sys.path = list(sys.path) if sys.flags.safe_path else [folder, *sys.path[1:]]
    # It stays the main module, which Python takes down last, and closes its files in order.
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    try:
        for number in ours:
            signal.signal(number, answers[number])
        if module:
            _run_module(name)
        else:
            file = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118 - as python joins them
            loader = SourceFileLoader("__main__", file)
            vars(main).update(__file__=file, __cached__=None, __loader__=loader)
            exec(compile(loader.get_data(file), file, "exec", dont_inherit=True), vars(main))
    except InputError:
        raise
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        error.__traceback__ = _own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        for number in ours:
            signal.signal(number, interrupt)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        sys.argv, sys.path, sys.stdout, sys.stderr = before
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # who read it has gone, or the program has closed it
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    return 0


def _run_module(name: str) -> None:
    """Run a module as `python -m` does, which runs this very function of the library."""
    import runpy

    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise InputError(f"there is no module '{name}'")
    if found.submodule_search_locations is not None and find_spec(f"{name}.__main__") is None:
        raise InputError(f"'{name}' is a package without a module __main__, which could be run")
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _terminate(number: int, _: Any) -> None:
    """End the program by SIGTERM, but so that what was seen is kept."""
    raise SystemExit(128 + number)


def _own_frames(error: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package."""
    frames = list[TracebackType]()
    while error is not None:
        if not error.tb_frame.f_code.co_filename.startswith(PACKAGE):
            frames.append(error)
        error = error.tb_next
    for frame, following in zip(frames, [*frames[1:], None], strict=False):
        frame.tb_next = following
    return frames[0] if frames else None
