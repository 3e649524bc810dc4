"""attnviz watch: runs a program as Python does, and shows the attention that it computes."""

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
from typing import Any, Literal

from attnviz.cli.stderr import complain, interrupt
from attnviz.commands.command import MAP_PICTURES, ORIGIN, Run, command
from attnviz.commands.run import report_all
from attnviz.core.errors import AttentionError, InputError, OutputError, UsageError
from attnviz.core.options import Options
from attnviz.core.options.option import arg, rare
from attnviz.features.watch.function import Watched
from attnviz.models.open import parse_part

NOTHING_SEEN = 4
"""The exit status where the program ended with 0, and nothing was seen."""

PACKAGE = str(Path(__file__).parents[2]) + os.sep
"""This package's folder; its frames are removed from a program's traceback."""


@command(
    *("pictures", "look", "page", "browse", "long", "range", "digits"),
    report=("data", "said"),
    draws=MAP_PICTURES,
)
def watch(
    program: list[str] = arg(
        "The program and its arguments, as you would give them to python.",
        "[--] SCRIPT.py|-m MODULE [ARGS]...",
        default=...,
    ),
    *,
    only: list[str] | None = rare(
        ORIGIN, "--only PATTERN", "Only modules with this path: 'decoder.*.attn'. Repeatable."
    ),
    every: int = rare(
        ORIGIN,
        "--every N",
        "Keep the first and then every N-th call of each module.",
        default=1,
        min=1,
    ),
    first: int | None = rare(ORIGIN, "--first N", "Keep at most N calls of each module.", min=1),
    calls: str | None = rare(
        ORIGIN,
        "--calls WHICH",
        "Calls of each module to keep: how many, spread from the first to the last (10 by "
        "default), their numbers (1,50,99), or all.",
    ),
    batch: str = rare(ORIGIN, "--batch WHICH", "Item of a batch, from 0, or all.", default="0"),
    eager: bool = rare(ORIGIN, "--eager", "Run compiled code uncompiled, to see its attention."),
    **options: Any,
) -> int:
    """Run a program and show the attention in it, whatever model computes it.

    attnviz watch --html page.html -- watch_decoder.py --letters 4

    attnviz watch --every 100 -o maps.npz -- -m watch_decoder --letters 3

    The program keeps its stdin, stdout and exit status. The status is 4 if no attention was
    seen and the program ended with 0. The files are written when the program ends,
    also by an exception, Ctrl-C or SIGTERM, but not if it calls os._exit.
    """
    run = Run("watch", options)
    how = run.options
    module = program[0] == "-m" and len(program) > 1
    program = program[module:]
    if not module and not Path(program[0]).is_file():
        python = re.fullmatch(r"python[\d.]*", Path(program[0]).name)
        leave = f": leave '{program[0]}' out" if python else ""
        raise InputError(f"there is no script '{program[0]}'{leave}")
    if batch != "all" and not (batch.isascii() and batch.isdigit()):
        raise UsageError(f"--batch '{batch}' is no item of a batch: give its number from 0, or all")
    which_calls = None if calls is None else _calls(calls)
    spans = {"--rows": how.origin.rows, "--window": how.origin.window}
    rows, window = (part and parse_part(part, option) for option, part in spans.items())
    if rows and window:
        raise UsageError("--rows and --window contradict each other: give one")
    files = _files(how)
    if not files:
        raise UsageError(
            "nothing would be written: add -o, --html, --heatmap, --grid or --picture FILE"
        )
    run.options = replace(how, output=replace(how.output, format="none"))
    here, process = Path.cwd(), os.getpid()
    with run.report(many=batch == "all") as report:
        report.say(f"{', '.join(files)}: written when the program ends")
        # This imports torch before the program does: variables that torch reads at its import must
        # be set outside of the program.
        from attnviz.features.watch.function import watch as watching

        with watching(
            only=only,
            every=every,
            first=first,
            calls=which_calls,
            batch="all" if batch == "all" else int(batch),
            max_size=how.origin.max_size or 1024,
            rows=rows or None,
            window=window or None,
            eager=eager,
        ) as block:
            status = _status_of(program, module=module)
        if os.getpid() != process:  # the files are those of the process that it has forked from
            report.open.pop_all()
            return status
        os.chdir(here)
        try:
            _write(block, Path(program[0]).name, report)
        except AttentionError as error:
            complain(str(error))
            status = status or NOTHING_SEEN
        except OutputError as error:
            complain(str(error))
            status = status or error.status
    return status


def _calls(value: str) -> int | list[int] | Literal["all"]:
    """Which calls of a module are kept."""
    if value == "all":
        return "all"
    numbers = value.split(",")
    if not all(one.isascii() and one.isdigit() and int(one) for one in numbers):
        raise UsageError(
            f"--calls '{value}' names no calls: how many (10), their numbers from 1 (1,50,99), or "
            "all"
        )
    return int(value) if len(numbers) == 1 else [*map(int, numbers)]


def _write(block: Watched, name: str, report: Any) -> None:
    """Write the attention seen in the program of that name, and note how much it is."""
    results = [
        replace(result, provenance=replace(result.provenance, model=name))
        for result in block.records()
    ]
    report_all(((None, result) for result in results), report)
    log, files = block.log, ", ".join(_files(report.options))
    calls, paths = sum(log.calls.values()), list(log.calls)
    names = ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
    report.say(
        f"{calls} {'call' if calls == 1 else 'calls'} of attention by {names}; "
        f"{len(log.captures)} kept: {files}"
    )
    report.say_done("program and maps")


def _files(options: Options) -> list[str]:
    """The files to write."""
    output = options.output
    places = (output.output, *options.pictures.values(), output.html)
    return [str(place) for place in places if place]


def _status_of(program: list[str], *, module: bool) -> int:
    """Run a program as the main module, and return its exit status."""
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
    # Afterwards it stays the main module: Python takes that down last, and closes its files.
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
        except (OSError, ValueError):  # the reader is gone, or the program has closed it
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    return 0


def _run_module(name: str) -> None:
    """Run a module with the library function that `python -m` itself uses."""
    import runpy

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise InputError(f"there is no module '{name}'")
    if spec.submodule_search_locations is not None and find_spec(f"{name}.__main__") is None:
        raise InputError(f"'{name}' is a package without a module __main__, which could be run")
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _terminate(number: int, _: Any) -> None:
    """End the program at a SIGTERM in a way that keeps what was seen."""
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
