"""attnviz ablate."""

from typing import Annotated

import typer

from attnviz.cli.options import BY_HELP, CHOICE, INPUT, OUTPUT, SEED, with_options
from attnviz.cli.report import Report
from attnviz.core.effects import By
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.features.ablate.parts import Each
from attnviz.features.ablate.request import (
    Ablation,
    check_reference,
    refuse_with_lenses,
    report_ablation,
    report_lenses,
)
from attnviz.runs.inputs import texts_of, texts_or_pairs


@with_options(
    *("model", "compute", "causal", "to", "chat", "labels", "show", "look", "reading"),
    also=["explain"],
    writes=("ablation", "lenses"),
    draws={
        "bars": "effects as bars",
        "grid": "all heads coloured by effect, with --each heads",
        "highlight": "the text coloured by effect, with --each tokens",
    },
)
def ablate(
    text: Annotated[str | None, typer.Argument(help="Text, or the source text of a pair.")] = None,
    target: Annotated[str | None, typer.Argument(help="Target of a pair, or second text.")] = None,
    input_file: str | None = INPUT,
    layer: str | None = opt(
        CHOICE,
        "--layer WHICH",
        "Layers to switch off: 2, 0-3, last, all, encoder.2; with --head 3 those of that head.",
    ),
    head: list[str] | None = opt(
        CHOICE,
        "--head WHICH",
        "Heads to switch off: 2.3 is head 3 of layer 2; also 2.3,2.4, encoder.2.3; 3 is head 3 of "
        "every layer, or of those of --layer; also 0-3. Repeatable.",
    ),
    link: list[str] | None = opt(
        CHOICE,
        "--link QUERY>KEY",
        'Link to cut in all heads: "rouge>red", "encoder:the>cat". Repeatable.',
    ),
    token: list[str] | None = opt(
        CHOICE,
        "--token WORD",
        "Token or word to hide from all others: red, or red[3] if there are several. Repeatable.",
    ),
    each: Each | None = opt(
        CHOICE, "--each WHAT", "Switch off all {choices}, one after the other."
    ),
    by: By = opt(
        CHOICE,
        "--by HOW",
        BY_HELP,
        default="zero",
    ),
    reference: str | None = rare(
        CHOICE,
        "--reference FILE",
        "Texts that replacements come from: --by mean takes the mean over them, --by "
        "resample draws from them.",
    ),
    lenses: bool = rare(
        CHOICE,
        "--lenses",
        "Show instead how far to trust each lens: do its scores agree with hiding each token?",
    ),
    seed: int = rare(
        CHOICE,
        "--seed N",
        SEED,
        default=0,
        min=0,
    ),
    top: int = opt(OUTPUT, "--top N", "How many effects the table lists.", default=10, min=1),
    *,
    options: Options,
) -> None:
    """Show what changes when heads, links or tokens are switched off.

    attnviz ablate "The red car is fast." "La voiture rouge est rapide." --token red

    attnviz ablate "The red car." "La voiture rouge." --each heads --picture grid:effects.png

    attnviz ablate --input pairs.tsv --head 2.0,2.1 --head encoder.3.5 --by mean -o effects.npz

    attnviz ablate --input pairs.tsv --lenses
    """
    options.choice.check_names()
    request = Ablation(
        heads=tuple(head or ()),
        links=tuple(link or ()),
        tokens=tuple(token or ()),
        layer=layer,
        each=each,
        by=by,
        output=options.choice.explain,
        seed=seed,
        names=options.choice.token_groups,
        lenses=lenses,
    )
    texts, command = texts_or_pairs(text, target, input_file, options)
    output = options.output
    if lenses:
        places = {"--show": output.show, "--picture": output.picture}
        refuse_with_lenses({"--reference": reference, **places})
        with Report(options, "lenses") as report:
            report_lenses(texts, command, seed, options, report)
        raise typer.Exit(report.status)
    check_reference(request, has_reference=reference is not None)
    pictures = options.pictures
    if pictures["grid"] is not None and (request.joint or request.each not in (None, "heads")):
        raise UsageError("--picture grid:FILE colours every head by its effect: add --each heads")
    if pictures["highlight"] is not None and (request.each != "tokens" or texts.several):
        raise UsageError(
            "--picture highlight:FILE colours every token of one text by its effect: give TEXT "
            "and --each tokens"
        )
    with Report(options, "ablation") as report:
        others = texts_of([], reference, options.many, pairs=True) if reference else None
        report_ablation(
            *(request, texts, command, options, report),
            reference=others,
            top=top,
            single="jsonl" in report.formats,
        )
    raise typer.Exit(report.status)
