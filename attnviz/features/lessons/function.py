"""The function of Python: attnviz.lesson."""

from pathlib import Path
from typing import Any

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Options
from attnviz.features.lessons import LESSONS
from attnviz.features.lessons.teaching import lesson_data, teach


@arguments.public
def lesson(
    name: str,
    *,
    length: arguments.Positive | None = None,
    size: arguments.Positive | None = None,
    heads: arguments.Positive | None = None,
    window: arguments.Positive | None = None,
    steps: arguments.Positive | None = None,
    seed: arguments.NotNegative | None = None,
    text: str | None = None,
    config: Path | None = None,
) -> Findings:
    """One thing about attention in numbers.

    Args:
        name: one of `attnviz lesson --help`: "scaling", "masking", "induction", ….
        length: positions, or pairs of "delta".
        size: features of a position or head.
        heads: heads of "alibi".
        window: positions to either side.
        steps: steps of training.
        seed: seed of random numbers.
        text: the sentence that is attended over.
        config: the configuration, or the folder with it, that "cache" works out.

    Returns:
        The numbers; the picture "plot"; a page.
    """
    choose(name, LESSONS, "lesson")
    values: dict[str, Any] = {"length": length, "size": size, "heads": heads, "window": window}
    values |= {"steps": steps, "seed": seed, "text": text, "config": config}
    for option, value in values.items():
        if isinstance(value, int) and value > 10**9 and option != "seed":
            raise UsageError(f"{option}={value}: no more than 1,000,000,000 can be asked for")
    with collect("lesson", "lesson", Options()) as report:
        report.add(lesson_data(teach(name, values)))
    return report.findings
