"""attnviz ablate."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.effects.ablation import Each
from attnviz.cli.inputs import INPUT, given_texts, texts_of
from attnviz.cli.options import CHOICE, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.run import count_texts
from attnviz.cli.sinks import data_of
from attnviz.core.effects import AblationReport, By, HeadOutputs
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Options, opt
from attnviz.models import Source
from attnviz.models.lens import open_experiment
from attnviz.models.open import open_source
from attnviz.renderers.reports import Data
from attnviz.renderers.text.ablation_table import (
    ablation_json,
    ablation_npz,
    ablation_table,
    ablation_tsv,
)
from attnviz.runs.ablation import Ablation, AblationStudy, ablate_text, query_for
from attnviz.storage.documents import dump_json
from attnviz.storage.texts import BadText, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@with_options(
    "model", "compute", "causal", "to", "chat", "reading", also=["explain"], writes="ablation"
)
def ablate(
    text: Annotated[str | None, typer.Argument(help="Text, or the source text of a pair.")] = None,
    target: Annotated[str | None, typer.Argument(help="Target text of a pair.")] = None,
    input_file: str | None = INPUT,
    layer: str | None = opt(
        CHOICE,
        "--layer WHICH",
        "Layers to switch off: 2, 0-3, last, all, encoder.2; with --head 3 those of that head.",
    ),
    head: list[str] | None = opt(
        CHOICE,
        "--head WHICH",
        "Heads to switch off: 2.3 is head 3 of layer 2; also 2.3,2.4, encoder.2.3, or 3 or "
        "0-3 of each layer chosen. Repeatable.",
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
        "What replaces a head's output: {choices}. mean is over the positions of the text, or "
        "of --reference; resample draws from --reference.",
        default="zero",
    ),
    reference: str | None = opt(
        CHOICE, "--reference FILE", "Texts whose positions --by mean and resample use.", rare=True
    ),
    seed: int = opt(CHOICE, "--seed N", "Seed of --by resample.", default=0, min=0, rare=True),
    top: int = opt(OUTPUT, "--top N", "How many effects the table lists.", default=10, min=1),
    bars: Path | None = opt(OUTPUT, "--bars FILE", "Effects as bars: .png, .svg or .pdf."),
    grid: Path | None = opt(
        OUTPUT, "--grid FILE", "All heads coloured by effect, as a picture; needs --each heads."
    ),
    highlight: Path | None = opt(
        OUTPUT, "--highlight FILE", "Text coloured by effect; needs --each tokens.", rare=True
    ),
    *,
    options: Options,
) -> None:
    """Show what changes when heads, links or tokens are switched off.

    attnviz ablate "The red car is fast." "La voiture rouge est rapide." --token red

    attnviz ablate "The red car is fast." "La voiture rouge est rapide." --each heads --grid e.png

    attnviz ablate --input pairs.tsv --head 2.0,2.1 --head encoder.3.5 --by mean -o effects.npz

    attnviz compare before.npz after.npz
    """
    asked = Ablation(
        heads=tuple(head or ()),
        links=tuple(link or ()),
        tokens=tuple(token or ()),
        layer=layer,
        each=each,
        by=by,
        wanted=options.choice.explain,
        seed=seed,
    )
    texts, many, command = given_texts(text, target, input_file, options)
    check(asked, reference, grid, highlight, many=many)
    pictures = {"bars": bars, "grid": grid, "highlight": highlight}
    study, lines = AblationStudy(), list[str]()
    total = partial(count_texts, input_file, "cross", options) if many else None
    with Report(options, "ablation", pictures=pictures) as report:
        keeps_lines = "jsonl" in report.formats or options.collect is not None
        source = open_source(options.origin, command, with_head=True)
        banks = reference_banks(source, reference, options) if reference else []
        with report.counted(total) as advance:
            for record in texts:
                advance(1)
                found = ablated(source, record, asked, banks, report)
                if found is not None:
                    study.add(found)
                    lines += [ablation_json(found)] * keeps_lines
        if study.texts:
            report.add(_data(study.report(), top, lines))
        report.finish(f"{study.texts} text{'s' * (study.texts != 1)}")
    raise typer.Exit(report.status if study.texts else 1)


def check(
    asked: Ablation, reference: str | None, grid: Path | None, highlight: Path | None, *, many: bool
) -> None:
    """Refuse what contradicts itself before a model loads."""
    if reference is not None and asked.by == "zero":
        raise UsageError("--reference gives what --by mean and resample put in: add --by mean")
    if asked.by == "resample" and reference is None:
        raise UsageError("--by resample draws positions from other texts: add --reference FILE")
    if grid is not None and (asked.joint or asked.each not in (None, "heads")):
        raise UsageError("--grid colours every head by its effect: use it with --each heads")
    if highlight is not None and (asked.each != "tokens" or many):
        raise UsageError(
            "--highlight colours every token of one text by its effect: use it with TEXT and "
            "--each tokens"
        )


def ablated(
    source: Source,
    record: Text | BadText,
    asked: Ablation,
    banks: list[HeadOutputs],
    report: Report,
) -> AblationReport | None:
    """What changes in a text; None: it failed, which was said.

    A usage error is of this text alone where something was named that it may lack.
    """
    if isinstance(record, BadText):
        report.skip(record, record.error)
        return None
    try:
        found = ablate_text(source, record, asked, banks)
    except (InputError, UsageError) as error:
        named = asked.links or asked.tokens or asked.wanted
        if not record.where or (isinstance(error, UsageError) and not named):
            raise
        report.skip(record, InputError(f"{record.where}: {error}"))
        return None
    for note in found.notes:
        report.hold(note)
    return found


def reference_banks(source: Source, file: str, options: Options) -> list[HeadOutputs]:
    """What each head puts out at the positions of a file's texts."""
    found = []
    for text in texts_of([], file, options.many, pairs=True)[0]:
        if isinstance(text, BadText):
            raise text.error
        found.append(open_experiment(source, query_for(text)).head_outputs())
    return found


def _data(report: AblationReport, top: int, lines: list[str]) -> Data:
    def drawn(name: str) -> Figure:
        from attnviz.renderers.figures.effect_bars import effect_bars, effect_grid, effect_words

        return {"bars": effect_bars, "grid": effect_grid, "highlight": effect_words}[name](report)

    kinds = {one.kind for one in report.every}
    shows = {"grid": {"head"}, "highlight": {"token"}}  # every part of a kind
    pictures = ["bars", *(name for name, shown in shows.items() if kinds == shown)]
    return data_of(
        *(report, ablation_table, ablation_tsv, ablation_json, top),
        lines=lambda: "".join(lines),
        arrays=partial(ablation_npz, report),
        figures={name: partial(drawn, name) for name in pictures},
        about=dump_json(asdict(report.maps.provenance)),
    )
