"""`attnviz lesson`: one thing about attention, in numbers and a picture."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli.commands.listings import listing, write_listing
from attnviz.cli.options import OUTPUT, with_options
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Options, opt
from attnviz.core.registry import LESSONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.renderers.reports import Data
    from attnviz.teach.lessons.lesson import Lesson

GIVEN = "What it is about"
_LIST = ", ".join(LESSONS)


@with_options("page", writes="lesson")
def lesson(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of {_LIST}.")] = None,
    length: int | None = opt(GIVEN, "--length N", "Positions; in delta, pairs.", min=1),
    size: int | None = opt(GIVEN, "--size N", "Features of a position or head.", min=1),
    heads: int | None = opt(GIVEN, "--heads N", "Heads in alibi, default 8.", min=1),
    window: int | None = opt(GIVEN, "--window N", "Positions to either side, default 2.", min=1),
    steps: int | None = opt(GIVEN, "--steps N", "Training steps in training, default 300.", min=1),
    seed: int | None = opt(GIVEN, "--seed N", "Seed of random numbers, default 0.", min=0),
    text: str | None = opt(GIVEN, "--text TEXT", "Sentence to attend over."),
    model: Path | None = opt(
        GIVEN, "--model -m CONFIG_OR_FOLDER", "Model configuration that cache computes for."
    ),
    plot: Path | None = opt(OUTPUT, "--plot FILE", "The lesson as a picture: .png, .svg or .pdf."),
    *,
    options: Options,
) -> None:
    """Teach one thing about attention in numbers.

    positions, rotary, alibi: how a model knows positions. scaling,
    temperature, online, sinks: how scores become weights. masking, padding,
    window: which tokens are visible. linear, delta: attention without a
    softmax. cache, groups: what is kept of the past. training, induction:
    what is learned.

    attnviz lesson scaling

    attnviz lesson positions --plot positions.png
    """
    from attnviz.cli.report import Report

    if name is None:
        rows = [(one, row.summary) for one, row in LESSONS.items()]
        write_listing(listing(("lesson", "summary"), rows), options)
        return
    choose(name, LESSONS, "lesson")
    wanted: dict[str, Any] = {"length": length, "size": size, "heads": heads, "window": window}
    wanted |= {"steps": steps, "seed": seed, "text": text, "model": model}
    given = {option: value for option, value in wanted.items() if value is not None}
    with Report(options, "lesson", pictures={"plot": plot}) as report:
        report.add(_data(_teach(name, given)))
        report.finish("taught")


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

    def draw() -> Figure:
        from attnviz.teach.lessons.drawing import draw_lesson

        return draw_lesson(result)

    def page(command: str) -> str:
        from attnviz.teach.lessons.drawing import lesson_page

        return lesson_page(result, command)

    lines = ["\t".join(escape(str(c)) for c in row) for row in (result.columns, *result.rows)]
    return Data(
        text=result.table,
        rows=lambda: "".join(f"{line}\n" for line in lines),
        document=lambda: dump_json(result.data()) + "\n",
        page=page,
        figures={"plot": draw},
        about=result.title,
        value=result,
    )
