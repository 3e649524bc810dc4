"""The function of Python: what decided an answer."""

from pathlib import Path
from typing import Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.api.questions import read_reference, read_written
from attnviz.features.explain.request import AnswerRequest, report_answers
from attnviz.runs.pipeline import Result


@arguments.public
def explain(
    text: str | arguments.Texts | Result | None = None,
    target: str | None = None,
    *,
    input: str | None = None,  # noqa: A002 - as the option is called
    against: str | None = None,
    contrast: str | None = None,
    reference: str | Path | arguments.Texts | None = None,
    **options: Unpack[arguments.ExperimentOptions],
) -> Findings:
    """What decided an answer: the fewest tokens and heads that give it, each claim measured.

    Args:
        text: a text, the source of a pair, a picture's file, a list of texts or pairs, or a result
            of `attend`.
        target: the target of a pair.
        input: a file of texts instead.
        against: explain by how much the answer is likelier than this one.
        contrast: another text of as many tokens: which heads and positions of the first's run
            restore its answer in that one, instead.
        reference: texts whose mean output replaces that of a head that is off: a file, or a
            list; None: English sentences.
        options: those of `attnviz explain`, by name.

    Returns:
        An `AnswerReport`; of several texts an `AnswersReport`; with `contrast` a `ContrastReport`
        and the picture "plot".
    """
    how, texts, kind = read_written("explain", text, target, input, options)
    request = AnswerRequest(how.choice.explain, against, contrast)
    with collect("explain", "answer", how) as report:
        report_answers(request, texts, kind, how, report, read_reference("explain", reference, how))
    return report.findings
