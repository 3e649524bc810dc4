"""attnviz ablate and attnviz lenses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.analyses.effects.ablation import Each
from attnviz.cli.options import CHOICE, INPUT, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.effects import By
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt
from attnviz.runs.ablation import Ablation, check_reference, report_ablation, report_lenses
from attnviz.runs.inputs import texts_of, texts_or_pairs


@with_options(
    "model", "compute", "causal", "to", "chat", "reading", also=["explain"], writes="ablation"
)
def ablate(
    text: Annotated[str | None, typer.Argument(help="Text, or the source of a pair.")] = None,
    target: Annotated[str | None, typer.Argument(help="Target of a pair.")] = None,
    input_file: str | None = INPUT,
    head: list[str] | None = opt(
        CHOICE, "--head LAYER.HEAD", "Head to switch off: 2.0, encoder.3.5; may be repeated."
    ),
    link: list[str] | None = opt(
        CHOICE,
        "--link QUERY>KEY",
        'Link to cut in every head: "rouge>red", "encoder:the>cat"; may be repeated.',
    ),
    token: list[str] | None = opt(
        CHOICE,
        "--token WORD",
        "Token, or word of several, to hide from all others: red, or red[3] where there are more; "
        "may be repeated.",
    ),
    each: Each | None = opt(
        CHOICE, "--each WHAT", "Switch everything of a kind off, one by one: {choices}."
    ),
    by: By = opt(
        CHOICE,
        "--by HOW",
        "What a head puts out instead: {choices}. The mean is over the text's positions, or those "
        "of --reference, from which resample draws.",
        default="zero",
    ),
    reference: str | None = opt(
        CHOICE,
        "--reference FILE",
        "Texts whose positions --by mean and resample are taken from.",
        rare=True,
    ),
    seed: int = opt(
        CHOICE, "--seed N", "Seed of what --by resample draws.", default=0, min=0, rare=True
    ),
    top: int = opt(OUTPUT, "--top N", "Effects that the table lists.", default=10, min=1),
    bars: Path | None = opt(OUTPUT, "--bars FILE", "Effects as bars: .png, .svg or .pdf."),
    grid: Path | None = opt(
        OUTPUT, "--grid FILE", "All heads coloured by effect, with --each heads: a picture."
    ),
    words: Path | None = opt(
        OUTPUT, "--words FILE", "Text coloured by effect, with --each tokens: a picture.", rare=True
    ),
    *,
    options: Options,
) -> None:
    """Show what changes when heads, links or tokens are switched off.

    attnviz ablate "The red car is fast." "La voiture rouge est rapide." --token red

    attnviz ablate "The red car is fast." "La voiture rouge est rapide." --each heads --grid e.png

    attnviz ablate --input pairs.tsv --head 2.0 --head encoder.3.5 --by mean -o effects.npz

    attnviz compare before.npz after.npz
    """
    asked = Ablation(
        heads=tuple(head or ()),
        links=tuple(link or ()),
        tokens=tuple(token or ()),
        each=each,
        by=by,
        wanted=options.choice.explain,
        seed=seed,
    )
    texts, command = texts_or_pairs(text, target, input_file, options)
    check_reference(asked, given=reference is not None)
    if grid is not None and (asked.joint or asked.each not in (None, "heads")):
        raise UsageError("--grid colours every head by its effect: use it with --each heads")
    if words is not None and (asked.each != "tokens" or texts.several):
        raise UsageError(
            "--words colours every token of one text by its effect: use it with TEXT and --each "
            "tokens"
        )
    pictures = {"bars": bars, "grid": grid, "words": words}
    with Report(options, "ablation", pictures=pictures) as report:
        others = texts_of([], reference, options.many, pairs=True) if reference else None
        report_ablation(
            *(asked, texts, command, options, report),
            reference=others,
            top=top,
            single="jsonl" in report.formats,
        )
    raise typer.Exit(report.status)


@with_options(
    "model", "compute", "causal", "to", "chat", "reading", also=["explain"], writes="lenses"
)
def lenses(
    text: Annotated[str | None, typer.Argument(help="Text, or the source of a pair.")] = None,
    target: Annotated[str | None, typer.Argument(help="Target of a pair.")] = None,
    input_file: str | None = INPUT,
    seed: int = opt(CHOICE, "--seed N", "Seed of the random scores.", default=0, min=0),
    *,
    options: Options,
) -> None:
    """Show how far each lens can be trusted: its scores of tokens beside hiding them.

    attnviz lenses "The red car is fast." "La voiture rouge est rapide."

    attnviz lenses --input sample_inputs/pairs.tsv -f json -o lenses.json
    """
    texts, command = texts_or_pairs(text, target, input_file, options)
    with Report(options, "lenses", pictures={}) as report:
        report_lenses(texts, command, seed, options, report)
    raise typer.Exit(report.status)
