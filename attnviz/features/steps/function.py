"""The function of Python: attnviz.steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.core.errors import UsageError, in_short
from attnviz.features.steps.request import StepsRequest

Numbers = str | Path | Mapping[str, Any]
"""A file of matrices, a sentence, or arrays by name."""


@arguments.public
def steps(
    file: Numbers | None = None,
    target: str | None = None,
    *,
    text: str | None = None,
    example: str | None = None,
    mechanism: str | None = None,
    causal: bool = False,
    mask: str | None = None,
    padding: arguments.NotNegative = 0,
    diagram: bool = False,
    **options: Unpack[arguments.StepsOptions],
) -> Findings:
    """The arithmetic of attention, matrix by matrix.

    Args:
        file: a file of matrices (.json, .npz, .safetensors), or a sentence: what has a space in
            it, is no file and does not end like one; or arrays by name, as a file has them:
            {"query": Q, "key": K, "value": V}. None: a worked example.
        target: a second sentence, whose words are the queries.
        text: a sentence, also of one word.
        example: a worked example: "self", "cross" or "naive"; of a file with several, one of them.
        mechanism: which attention: "rotary", "rotary:heads=2,size=8,seed=1".
        causal: hide later positions.
        mask: 1 if a query may look; one row for each query: "1 0 1, 1 1 1"; or a file.
        padding: how many of the last keys to hide.
        diagram: a table is the flow of the data, as Mermaid text.
        options: those of `attnviz steps`, by name.

    Returns:
        Every matrix; the picture "scatter"; a page.
    """
    how = arguments.read_options(options)
    if not isinstance(file, str | Path | Mapping | None):
        raise UsageError(f"file={in_short(file)} is no file, sentence or dictionary of arrays")
    request = StepsRequest(
        file=str(file) if isinstance(file, Path) else file,
        target=target,
        text=text,
        example=example,
        mechanism=mechanism,
        causal=causal,
        mask=mask,
        padding=padding,
        diagram=diagram,
    )
    with collect("steps", "steps", how) as report:
        report.add(request.data(how))
    return report.findings
