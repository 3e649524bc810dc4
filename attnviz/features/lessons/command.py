"""attnviz lesson."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.commands.command import SEED, Run, command
from attnviz.core.errors import UsageError, choose
from attnviz.core.options.option import arg, opt
from attnviz.core.registry import LARGEST
from attnviz.features.lessons import LESSONS
from attnviz.renderers.reports import listing

if TYPE_CHECKING:
    from attnviz.commands.findings import Findings

GIVEN = "What it is about"
_LIST = ", ".join(LESSONS)


@command("show", "look", "page", writes="lesson", draws={"plot": "what the lesson shows"})
def lesson(
    name: str | None = arg(f"One of {_LIST}.", "NAME"),
    *,
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
    **options: Any,
) -> "Findings":
    """Teach one thing about attention in numbers.

    positions, rotary, alibi: how a model knows positions. scaling,
    temperature, online, sinks: how scores become weights. masking, padding,
    window: which tokens are visible. linear, delta: attention without a
    softmax. cache, groups: what is kept of the past. training, induction:
    what is learned.

    attnviz lesson scaling

    attnviz lesson positions --picture positions.png

    Returns:
        The numbers; the picture "plot"; a page.
    """
    from attnviz.features.lessons.teaching import lesson_data, teach

    run = Run("lesson", options)
    values: dict[str, Any] = {"length": length, "size": size, "heads": heads, "window": window}
    values |= {"steps": steps, "seed": seed, "text": text, "config": config}
    if name is None:
        for option, value in values.items():
            if value is not None:
                raise UsageError(f"{run.spell(option)} is for one lesson: name it, of {_LIST}")
        rows = [(one, row.summary) for one, row in LESSONS.items()]
        return run.write(listing("lessons", ("lesson", "summary"), rows))
    choose(name, LESSONS, "lesson")
    for option, value in values.items():
        if isinstance(value, int) and value > LARGEST and option != "seed":
            raise UsageError(f"{option}={value}: no more than {LARGEST:,} can be asked for")
    return run.write(lesson_data(teach(name, values)), "lesson", "taught")
