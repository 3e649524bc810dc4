"""attnviz lenses."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, INPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.options import Options, opt
from attnviz.runs.ablation import report_lenses
from attnviz.runs.inputs import texts_or_pairs


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
