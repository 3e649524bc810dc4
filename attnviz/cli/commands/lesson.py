"""`attnviz lesson`: one thing about attention, in numbers and a picture."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli.options import OUTPUT, with_options
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Option, Options
from attnviz.core.registry import LESSONS

if TYPE_CHECKING:
    from attnviz.renderers.reports import Data
    from attnviz.teach.lessons.lesson import Lesson

_LIST = ", ".join(LESSONS)


@with_options(writes="lesson")
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
    plot: Annotated[
        Path | None,
        Option(OUTPUT, "--plot", "The lesson as a picture: .png, .svg or .pdf.", "FILE"),
    ] = None,
    *,
    options: Options,
) -> None:
    """Teach one thing about attention in numbers.

    positions: sinusoidal encoding. scaling: scaled against unscaled softmax.
    masking: full against causal attention. linear: what length costs.

    attnviz lesson scaling

    attnviz lesson positions --plot positions.png
    """
    from attnviz.cli.report import Report

    if name is None:
        raise UsageError(f"which lesson? Choose from {_LIST}")
    choose(name, LESSONS, "lesson")
    wanted = {"length": length, "size": size, "seed": seed, "text": text}
    given = {option: value for option, value in wanted.items() if value is not None}
    with Report(options, "lesson", pictures={"plot": plot}) as report:
        report.add(_data(_teach(name, given)))
        report.finish()
        report.say_done("taught")


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


def _data(result: Lesson) -> Data:
    from attnviz.renderers.data.maps import escape
    from attnviz.renderers.reports import Data
    from attnviz.storage.documents import dump_json

    def rows() -> str:
        lines = (map(escape, map(str, row)) for row in (result.columns, *result.rows))
        return "".join("\t".join(line) + "\n" for line in lines)

    return Data(
        text=result.table,
        rows=rows,
        document=lambda: dump_json(result.data()) + "\n",
        figures={"plot": result.draw},
        about=result.title,
    )
