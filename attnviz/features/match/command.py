"""attnviz match."""

from typing import Any

from attnviz.commands import arguments, findings
from attnviz.commands.command import INPUT, RECORD, Run, command
from attnviz.core.options.option import arg


@command(
    *("model", "compute", "show", "look", "page", "reading"),
    writes="match",
    draws={"heatmap": "query tokens by document tokens, the largest of each row framed"},
)
def match(
    query: str = arg("Query, whose tokens look for their like.", default=...),
    document: str | arguments.Texts | None = arg(
        "Document: a text.", shell=str | None, python="a document: a text, or a list of them."
    ),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    record: str | None = RECORD,
    **options: Any,
) -> findings.Findings:
    """Show how a query matches a document, token by token (late interaction, as in ColBERT).

    attnviz match "Which car is fast?" "The red car is fast." --model colbert-ir/colbertv2.0

    attnviz match "Which car is fast?" --input sentences.txt --model colbert-ir/colbertv2.0

    attnviz match "a fast car" -i sentences.txt --record 3 -m colbert-ir/colbertv2.0 --picture m.png

    Returns:
        A `MatchReport`; of several documents a tuple of them, the largest score first.
    """
    from attnviz.features.match.request import report_matches

    run = Run("match", options)
    if isinstance(document, str) or (document is None and run.in_shell):
        from attnviz.runs.inputs import texts_of

        words = [] if document is None else [document]
        texts = texts_of(words, input, run.options.many)
    else:
        texts = arguments.read_texts("match", document, input, run.options.many)
    with run.report("match") as report:
        report_matches(query, texts, record, run.options, report)
    return run.result
