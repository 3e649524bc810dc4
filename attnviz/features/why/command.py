"""attnviz why."""

from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, INPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.options import Options, opt
from attnviz.features.why.request import Why, report_why
from attnviz.runs.readers import read_texts_or_file

TextOrFile = Annotated[
    str | None,
    typer.Argument(help="Text, the source text of a pair, or a file: a picture or a recording."),
]


@with_options(
    *("model", "compute", "causal", "to", "chat", "show", "look", "page", "reading"),
    also=["explain"],
    writes="why",
    draws={"plot": "the way from writers over the link to tokens, or layers by positions"},
)
def why(
    text: TextOrFile = None,
    target: Annotated[str | None, typer.Argument(help="Target of a pair, or second text.")] = None,
    input_file: str | None = INPUT,
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
    *,
    options: Options,
) -> None:
    """Show why a head looks at a token, and which tokens it argues for.

    A score is a sum over what earlier heads and blocks wrote at its two positions.

    attnviz why "Tom likes dogs. Mary likes cats. Tom likes" --model pocket-lm --head 2.3

    attnviz why "The red car is fast." "La voiture rouge est rapide." --link 'rouge>red'

    attnviz why "The keys to the cabinet are" --model pocket-lm --html why.html

    attnviz why --input sentences.txt --model pocket-lm --head 2.3 --mean -f json

    attnviz why "The keys to the cabinet" --model pocket-lm --layers --picture lens.png
    """
    page = options.output.html is not None or options.output.open_page
    request = Why(
        *(head, link, against, mean, layers, rows),
        *(attention_only, options.choice.explain, page),
    )
    texts, kind, options = read_texts_or_file(text, target, input_file, options)
    with Report(options, "why", many=texts.several and not mean) as report:
        report_why(request, texts, kind, options, report)
    raise typer.Exit(report.status)
