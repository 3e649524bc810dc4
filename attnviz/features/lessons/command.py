"""attnviz lesson."""

from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli.listing import write_listing
from attnviz.cli.options import SEED, with_options
from attnviz.core.errors import choose
from attnviz.core.options import Options, opt
from attnviz.features.lessons import LESSONS
from attnviz.renderers.reports import listing

GIVEN = "What it is about"
_LIST = ", ".join(LESSONS)


@with_options("show", "look", "page", writes="lesson", draws={"plot": "what the lesson shows"})
def lesson(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of {_LIST}.")] = None,
    length: int | None = opt(GIVEN, "--length N", "Positions; in delta, pairs.", min=1),
    size: int | None = opt(GIVEN, "--size N", "Features of a position or head.", min=1),
    heads: int | None = opt(GIVEN, "--heads N", "Heads in alibi, default 8.", min=1),
    window: int | None = opt(GIVEN, "--window N", "Positions to either side, default 2.", min=1),
    steps: int | None = opt(GIVEN, "--steps N", "Training steps in training, default 300.", min=1),
    seed: int | None = opt(GIVEN, "--seed N", SEED, min=0),
    text: str | None = opt(GIVEN, "--text TEXT", "Sentence to attend over."),
    config: Path | None = opt(
        GIVEN, "--config CONFIG_OR_FOLDER", "Model configuration that cache computes for."
    ),
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

    attnviz lesson positions --picture positions.png
    """
    from attnviz.cli.report import Report
    from attnviz.features.lessons.teaching import lesson_data, teach

    if name is None:
        rows = [(one, row.summary) for one, row in LESSONS.items()]
        write_listing(listing("lessons", ("lesson", "summary"), rows), options)
        return
    choose(name, LESSONS, "lesson")
    values: dict[str, Any] = {"length": length, "size": size, "heads": heads, "window": window}
    values |= {"steps": steps, "seed": seed, "text": text, "config": config}
    with Report(options, "lesson") as report:
        report.add(lesson_data(teach(name, values)))
        report.finish("taught")
