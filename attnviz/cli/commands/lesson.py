"""`attnviz lesson`: one thing about attention, in numbers and a picture."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.core.errors import UsageError, choose
from attnviz.core.registry import LESSONS, PICTURE_SUFFIXES

if TYPE_CHECKING:
    from attnviz.teach.lessons.lesson import Lesson

FORMATS = ("table", "json", "csv", "none")
_LIST = ", ".join(LESSONS)


def lesson(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of {_LIST}.")] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", help="Positions: default 64, of linear at most, default 4096."),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="Features: default 64, of masking 16."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of random numbers, default 0.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="Sentence for masking.")] = None,
    format_name: Annotated[
        str, typer.Option("--format", "-f", help="What stdout gets: table, json, csv or none.")
    ] = "table",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Picture to write (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Teach one thing about attention in numbers.

    positions: sinusoidal encoding. scaling: scaled against unscaled softmax.
    masking: full against causal attention. linear: what length costs.

    attnviz lesson scaling

    attnviz lesson positions --plot positions.png
    """
    if name is None:
        raise UsageError(f"which lesson? Choose from {_LIST}")
    choose(name, LESSONS, "lesson")
    choose(format_name, FORMATS, "format")
    _check_plot(plot)
    options = {"length": length, "size": size, "seed": seed, "text": text}
    given = {option: value for option, value in options.items() if value is not None}
    _write(_teach(name, given), format_name, plot)


def _teach(name: str, given: Mapping[str, Any]) -> Lesson:
    """The lesson with those options that were given.

    Raises:
        UsageError: an option that means nothing to this lesson.
        InputError: a blank text.
    """
    if "text" in given:
        from attnviz.storage.texts import check_text

        check_text(given["text"])
    teach = LESSONS[name].load()
    known = inspect.signature(teach).parameters
    for option in given:
        if option not in known:
            takes = ", ".join(f"--{parameter}" for parameter in known)
            raise UsageError(f"--{option} means nothing to lesson '{name}', which takes {takes}")
    result: Lesson = teach(**given)
    return result


def _check_plot(plot: Path | None) -> None:
    """Find out before the work whether the picture can be written.

    Raises:
        UsageError: an unknown suffix.
    """
    from attnviz.cli.output import check_writable

    if plot is None:
        return
    if plot.suffix.lower() not in PICTURE_SUFFIXES:
        raise UsageError(f"--plot '{plot}' must end in {', '.join(PICTURE_SUFFIXES)}")
    check_writable(plot)


def _write(result: Lesson, format_name: str, plot: Path | None) -> None:
    """The picture first, so that a table on stdout means that all went well."""
    from attnviz.cli.output import write_file, write_text
    from attnviz.teach.lessons import lesson as show

    if plot is not None:
        from attnviz.renderers.figures.figure import figure_bytes

        write_file(plot, figure_bytes(result.draw(), plot.suffix.lower(), result.title))
    if format_name == "table":
        from attnviz.cli.sinks import display_of_stdout

        write_text(show.as_table(result, display_of_stdout(many=False)))
    elif format_name != "none":
        write_text({"json": show.as_json, "csv": show.as_csv}[format_name](result))
