"""The arithmetic of attention, and lessons about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from attnviz.api.arguments import NotNegative, Positive, public, read_options
from attnviz.api.collected import Findings, collecting
from attnviz.api.options import StepsOptions
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Options
from attnviz.core.registry import LESSONS
from attnviz.teach.lessons.teaching import lesson_data, teach
from attnviz.teach.steps.request import StepsRequest


@public
def steps(
    file: str | None = None,
    target: str | None = None,
    *,
    text: str | None = None,
    example: str | None = None,
    heads: Positive = 1,
    causal: bool = False,
    mask: str | None = None,
    padding: NotNegative = 0,
    size: Positive | None = None,
    seed: NotNegative | None = None,
    diagram: bool = False,
    **options: Unpack[StepsOptions],
) -> Findings:
    """The arithmetic of attention, matrix by matrix.

    Args:
        file: a file of matrices (.json, .npz, .safetensors), or a sentence: what has a space in
            it, is no file and does not end like one. None: a worked example.
        target: a second sentence, whose words are the queries.
        text: a sentence, also of one word.
        example: a worked example: "self", "cross" or "naive"; of a file with several, one of them.
        heads: heads of the mechanism.
        causal: hide later positions.
        mask: 1 where a query may look, a row a query: "1 0 1, 1 1 1"; or a file that holds it.
        padding: hide so many of the last keys.
        size: features of a sentence's vectors, by default 4.
        seed: seed of what is drawn.
        diagram: a table is the flow of the data, as Mermaid text.
        options: those of `attnviz steps`, by name.

    Returns:
        Every matrix; the picture "scatter"; a page.
    """
    how = read_options(options)
    asked = StepsRequest(
        file=file,
        target=target,
        text=text,
        example=example,
        heads=heads,
        causal=causal,
        mask=mask,
        padding=padding,
        size=size,
        seed=seed,
        diagram=diagram,
    )
    with collecting("steps", "steps", how) as report:
        report.add(asked.data(how))
    return report.found


@public
def lesson(
    name: str,
    *,
    length: Positive | None = None,
    size: Positive | None = None,
    heads: Positive | None = None,
    window: Positive | None = None,
    steps: Positive | None = None,
    seed: NotNegative | None = None,
    text: str | None = None,
    model: Path | None = None,
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
        model: the configuration, or the folder with it, that "cache" works out.

    Returns:
        The numbers; the picture "plot"; a page.
    """
    choose(name, LESSONS, "lesson")
    wanted: dict[str, Any] = {"length": length, "size": size, "heads": heads, "window": window}
    wanted |= {"steps": steps, "seed": seed, "text": text, "model": model}
    given = {option: value for option, value in wanted.items() if value is not None}
    for option, value in given.items():
        if isinstance(value, int) and value > 10**9 and option != "seed":
            raise UsageError(f"{option}={value}: no more than 1,000,000,000 can be asked for")
    with collecting("lesson", "lesson", Options()) as report:
        report.add(lesson_data(teach(name, given)))
    return report.found
