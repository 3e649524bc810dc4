"""attnviz why."""

from typing import Any

from attnviz.commands import arguments, findings
from attnviz.commands.command import CHOICE, INPUT, Run, command
from attnviz.core.options.option import arg, opt
from attnviz.features.experiments.questions import QUESTION, read_written
from attnviz.features.why.request import Why, report_why
from attnviz.runs.pipeline import Result


@command(
    *("model", "compute", "causal", "to", "chat", "show", "look", "page", "reading"),
    also=["explain"],
    writes="why",
    python=["token_groups"],
    draws={"plot": "the way from writers over the link to tokens, or layers by positions"},
)
def why(
    text: str | arguments.Texts | Result | None = arg(
        "Text, the source text of a pair, or a file: a picture or a recording.",
        python=f"a picture's file, {QUESTION}",
    ),
    target: str | None = arg("Target of a pair, or second text."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    head: str | None = opt(
        CHOICE, "--head L.H", "The head: 2.3 is head 3 of layer 2; encoder.2.3 of another stream."
    ),
    link: str | None = opt(
        CHOICE,
        "--link QUERY>KEY",
        'The link: "likes>dogs". By default the strongest of the last word to another word.',
    ),
    against: str | None = opt(
        CHOICE, "--against TOKEN", "Compare with this key, not with the mean of the visible keys."
    ),
    mean: bool = opt(
        CHOICE, "--mean", "Explain the head: the mean over all its links, weighted by attention."
    ),
    layers: bool = opt(
        CHOICE, "--layers", "Show instead what would be predicted after each layer."
    ),
    rows: str | None = opt(
        CHOICE, "--rows A-B", "Of --layers, show tokens A to B, from 0; by default the last 12."
    ),
    attention_only: bool = opt(
        CHOICE,
        "--attention-only",
        "Of --layers, add up embeddings and what heads write, without feed-forward parts.",
    ),
    **options: Any,
) -> findings.Findings:
    """Show why a head looks at a token, and which tokens it argues for.

    A score is a sum over what earlier heads and blocks wrote at its two positions.

    attnviz why "Tom likes dogs. Mary likes cats. Tom likes" --model pocket-lm --head 2.3

    attnviz why "The red car is fast." "La voiture rouge est rapide." --link 'rouge>red'

    attnviz why "The keys to the cabinet are" --model pocket-lm --html why.html

    attnviz why --input sentences.txt --model pocket-lm --head 2.3 --mean -f json

    attnviz why "The keys to the cabinet" --model pocket-lm --layers --picture lens.png

    Returns:
        A `LinkReport`, or a `LayersReport`; the picture "plot".
    """
    run = Run("why", options)
    texts, kind = read_written(run, text, target, input)
    output, answer = run.options.output, run.options.choice.explain
    page = output.html is not None or output.open_page
    request = Why(*(head, link, against, mean, layers, rows, attention_only, answer, page))
    with run.report("why", many=texts.several and not mean) as report:
        report_why(request, texts, kind, run.options, report)
    return run.result
