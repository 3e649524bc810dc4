"""attnviz heads."""

from typing import Annotated

import typer

from attnviz.analyses.heads import ORDERS, ROLES
from attnviz.cli.options import CHOICE, INPUT, ORIGIN, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.models.open import brings_tokens
from attnviz.runs import head_measures
from attnviz.runs.inputs import given_texts, texts_of
from attnviz.storage.texts import Text

SORT = opt(
    CHOICE,
    "--sort NAME",
    "Order of the heads: role (clearest first), layer, or a measure (largest first).",
    default="role",
    choices=ORDERS,
)
WITH_EFFECT = opt(
    CHOICE,
    "--effect",
    "Switch off each head by itself and measure the drop in log p of the output, in nats.",
)
BY = rare(CHOICE, "--by HOW", "What replaces a head that is off: {choices}.", default="zero")
CROSS = opt(
    ORIGIN, "--cross", "The texts are pairs: measure how each target attends to its source."
)


@with_options(
    *("model", "compute", "mechanism", "weights", "causal", "generate", "long"),
    *("stream", "heads", "token-groups", "special", "to", "show", "look", "reading"),
    *("sharing", "scores"),
    writes="heads",
    draws={
        "overview": "roles and measures of all heads",
        "scatter": "heads in a plane, close if they attend alike",
    },
)
def heads(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts, each in quotes; - reads stdin."),
    ] = None,
    input_file: str | None = INPUT,
    cross: bool = CROSS,
    no_repeat: bool = rare(
        ORIGIN,
        "--no-repeat",
        "Skip the second run over repeated random words, which induction is measured on.",
    ),
    treebank: str | None = rare(
        ORIGIN,
        "--treebank FILE",
        "Sentences with dependencies (.conllu), to show which head finds which relation.",
    ),
    role: str | None = opt(
        CHOICE, "--role NAME", "Only heads with this role: {choices}.", choices=ROLES
    ),
    order: str = SORT,
    effect: bool = WITH_EFFECT,
    by: head_measures.Instead = BY,
    writes: bool = rare(
        CHOICE, "--writes", "Show the tokens that each head argues for most, by their logits."
    ),
    probe: bool = rare(
        CHOICE,
        "--probe",
        "Also measure which heads find a needle in random words, and carry the task of examples.",
    ),
    similar: bool = opt(
        CHOICE, "--similar", "Show instead which heads attend alike, by Jensen-Shannon divergence."
    ),
    *,
    options: Options,
) -> None:
    """Show what each head does: one line per head, and what uniform attention would give.

    attnviz heads "The cat sat on the mat" --model ./my-bert

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads "The cat sleeps." "Le chat dort." --cross --effect --sort effect

    attnviz heads --treebank sample_inputs/relations.conllu
    """
    overview, scatter = options.pictures["overview"], options.pictures["scatter"]
    request = head_measures.HeadsRequest(
        cross=cross,
        role=role,
        order=order,
        effect=effect,
        writes=writes,
        probe=probe,
        by=by,
        repeat=not no_repeat and bool(not similar or overview or scatter),
        similar=similar,
        compares=bool(similar or scatter),
    )
    head_measures.check_heads(options, request.command)
    if treebank is not None:
        others: dict[str, object] = {
            "TEXT": text,
            "--input": input_file,
            "--role": role,
            "--similar": similar,
        }
        others |= {"--picture": options.output.picture, "--no-repeat": no_repeat}
        others |= {
            "--sort": order != "role",
            "--cross": cross,
            "--effect": effect,
            "--writes": writes,
            "--probe": probe,
        }
        head_measures.check_treebank(others)
        with Report(options, "heads") as report:
            head_measures.report_relations(treebank, options, report)
        raise typer.Exit(report.status)
    if cross and len(text or ()) > 2:
        raise UsageError("--cross takes one source and one target: give more by --input FILE")
    # A file of weights can bring its own tokens.
    if brings_tokens(options.origin) and not text and input_file is None:
        texts = given_texts(Text("0", ""))
    else:
        texts = texts_of(text or [], input_file, options.many, pairs=cross)
    with Report(options, "heads") as report:
        head_measures.report_heads(request, texts, options, report)
    raise typer.Exit(report.status)
