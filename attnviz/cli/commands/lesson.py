"""`attnviz lesson`: one thing about attention, in numbers and a picture."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli.options import OUTPUT, with_options
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Options, opt
from attnviz.core.registry import LESSONS

if TYPE_CHECKING:
    from attnviz.renderers.reports import Data
    from attnviz.teach.lessons.lesson import Lesson

GIVEN = "What it is about"
_LIST = ", ".join(LESSONS)


@with_options(writes="lesson")
def lesson(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of {_LIST}.")] = None,
    length: int | None = opt(
        GIVEN, "--length N", "Positions: default 64, of linear at most, default 4096."
    ),
    size: int | None = opt(GIVEN, "--size N", "Features: default 64, of masking 16.", min=1),
    seed: int | None = opt(GIVEN, "--seed N", "Seed of random numbers, default 0.", min=0),
    text: str | None = opt(GIVEN, "--text TEXT", "Sentence for masking."),
    plot: Path | None = opt(OUTPUT, "--plot FILE", "The lesson as a picture: .png, .svg or .pdf."),
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

    lines = ["\t".join(escape(str(c)) for c in row) for row in (result.columns, *result.rows)]
    return Data(
        text=result.table,
        rows=lambda: "".join(f"{line}\n" for line in lines),
        document=lambda: dump_json(result.data()) + "\n",
        figures={"plot": result.draw},
        about=result.title,
        value=result,
    )
