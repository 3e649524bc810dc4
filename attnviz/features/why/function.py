"""The function of Python: attnviz.why."""

from typing import Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.api.questions import read_written
from attnviz.features.why.request import Why, report_why
from attnviz.runs.pipeline import Result


@arguments.public
def why(
    text: str | arguments.Texts | Result | None = None,
    target: str | None = None,
    *,
    input: str | None = None,  # noqa: A002 - as the option is called
    head: str | None = None,
    link: str | None = None,
    against: str | None = None,
    mean: bool = False,
    layers: bool = False,
    rows: str | None = None,
    attention_only: bool = False,
    **options: Unpack[arguments.ExperimentOptions],
) -> Findings:
    """Why a head looks at a token, and which tokens it argues for.

    Args:
        text: a text, the source of a pair, a picture's file, a list of texts or pairs, or a result
            of `attend`.
        target: the target of a pair.
        input: a file of texts instead.
        head: the head: "2.3", or "encoder.2.3"; None: the one that `attend` shows first.
        link: "likes>dogs"; None: the strongest of the last word to another word.
        against: a key to compare with; None: the mean of the visible keys.
        mean: explain the head, over all its links and all texts.
        layers: show what would be predicted after each layer instead, the logit lens.
        rows: of layers, the tokens "A-B"; None: the last 12.
        attention_only: of layers, add up embeddings and what heads write alone.
        options: those of `attnviz why`, by name.

    Returns:
        A `LinkReport`, or a `LayersReport`; the picture "plot".
    """
    how, texts, kind = read_written("why", text, target, input, options)
    request = Why(*(head, link, against, mean, layers, rows, attention_only, how.choice.explain))
    with collect("why", "why", how) as report:
        report_why(request, texts, kind, how, report)
    return report.findings
