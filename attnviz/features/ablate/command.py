"""attnviz ablate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnviz.commands.arguments import Texts, name_parts
from attnviz.commands.command import BY_HELP, CHOICE, INPUT, OUTPUT, SEED, Run, command
from attnviz.commands.findings import Findings
from attnviz.core.effects import By
from attnviz.core.errors import UsageError
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.ablate.parts import Each
from attnviz.features.ablate.request import (
    Ablation,
    check_reference,
    refuse_with_lenses,
    report_ablation,
    report_lenses,
)
from attnviz.features.experiments.questions import QUESTION, read_question, read_reference
from attnviz.runs.pipeline import Result

Parts = str | Sequence[str | tuple[str | int, ...]] | None
"""Names of heads ("2.0", (2, 0)), links ("rouge>red", ("rouge", "red")) or tokens ("red[3]")."""


@command(
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
    text: str | Texts | Result | None = arg("Text, or the source text of a pair.", python=QUESTION),
    target: str | None = arg("Target of a pair, or second text."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    layer: str | None = opt(
        CHOICE,
        "--layer WHICH",
        "Layers to switch off: 2, 0-3, last, all, encoder.2; with --head 3 those of that head.",
    ),
    heads: Parts = opt(
        CHOICE,
        "--head WHICH",
        "Heads to switch off: 2.3 is head 3 of layer 2; also 2.3,2.4, encoder.2.3; 3 is head 3 of "
        "every layer, or of those of --layer; also 0-3. Repeatable.",
        shell=list[str] | None,
        python='heads to switch off: "2.0", (2, 0), "encoder.3.5"; or "3" of each layer chosen.',
    ),
    links: Parts = opt(
        CHOICE,
        "--link QUERY>KEY",
        'Link to cut in all heads: "rouge>red", "encoder:the>cat". Repeatable.',
        shell=list[str] | None,
        python='links to cut in every head: "rouge>red", ("rouge", "red"), "encoder:the>cat".',
    ),
    tokens: Parts = opt(
        CHOICE,
        "--token WORD",
        "Token or word to hide from all others: red, or red[3] if there are several. Repeatable.",
        shell=list[str] | None,
        python='tokens, or words of several, to hide from all others: "red", "red[3]".',
    ),
    each: Each | None = opt(
        CHOICE, "--each WHAT", "Switch off all {choices}, one after the other."
    ),
    by: By = opt(CHOICE, "--by HOW", BY_HELP, default="zero"),
    reference: str | Path | Texts | None = rare(
        CHOICE,
        "--reference FILE",
        "Texts that replacements come from: --by mean takes the mean over them, --by "
        "resample draws from them.",
        shell=str | None,
    ),
    lenses: bool = rare(
        CHOICE,
        "--lenses",
        "Show instead how far to trust each lens: do its scores agree with hiding each token?",
    ),
    seed: int = rare(CHOICE, "--seed N", SEED, default=0, min=0),
    top: int = opt(OUTPUT, "--top N", "How many effects the table lists.", default=10, min=1),
    **options: Any,
) -> Findings:
    """Show what changes when heads, links or tokens are switched off.

    attnviz ablate "The red car is fast." "La voiture rouge est rapide." --token red

    attnviz ablate "The red car." "La voiture rouge." --each heads --picture grid:effects.png

    attnviz ablate --input pairs.tsv --head 2.0,2.1 --head encoder.3.5 --by mean -o effects.npz

    attnviz ablate --input pairs.tsv --lenses

    Returns:
        One row for each effect; pictures "bars" and, of every head or token, "grid" or "highlight".
    """
    run = Run("ablate", options)
    run.options.choice.check_names()
    texts, kind = read_question(run, text, target, input)
    how, pictures = run.options, run.options.pictures
    request = Ablation(
        heads=name_parts("heads", heads, "."),
        links=name_parts("links", links, ">"),
        tokens=name_parts("tokens", tokens, ""),
        layer=layer,
        each=each,
        by=by,
        output=how.choice.explain,
        seed=seed,
        names=how.choice.token_groups,
        lenses=lenses,
    )
    if lenses:
        places = {"--show": how.output.show, "--picture": how.output.picture}
        refuse_with_lenses({run.spell("reference"): reference, **places})
        with run.report("lenses") as report:
            report_lenses(texts, kind, seed, how, report)
        return run.result
    check_reference(request, has_reference=reference is not None)
    if pictures.get("grid") is not None and (request.joint or request.each not in (None, "heads")):
        raise UsageError("--picture grid:FILE colours every head by its effect: add --each heads")
    if pictures.get("highlight") is not None and (request.each != "tokens" or texts.several):
        raise UsageError(
            "--picture highlight:FILE colours every token of one text by its effect: give TEXT "
            "and --each tokens"
        )
    with run.report("ablation") as report:
        report_ablation(
            *(request, texts, kind, how, report),
            reference=read_reference(run, reference),
            top=top,
            single="jsonl" in report.formats,
        )
    return run.result
