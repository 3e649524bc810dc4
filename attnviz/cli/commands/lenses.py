"""attnviz lenses."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from attnviz.analyses.effects.faithfulness import TextFaithfulness, faithfulness, lens_report
from attnviz.cli.inputs import INPUT, given_texts
from attnviz.cli.options import CHOICE, with_options
from attnviz.cli.report import Report
from attnviz.cli.sinks import data_of
from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Options, opt
from attnviz.models.lens import ask_source, explained_by, open_experiment, scores_of
from attnviz.models.open import open_source
from attnviz.renderers.text.lenses import lenses_json, lenses_table, lenses_tsv
from attnviz.runs.ablation import query_for
from attnviz.storage.texts import BadText


@with_options(
    "model", "compute", "causal", "to", "chat", "reading", also=["explain"], writes="lenses"
)
def lenses(
    text: Annotated[str | None, typer.Argument(help="Text, or the source text of a pair.")] = None,
    target: Annotated[str | None, typer.Argument(help="Target text of a pair.")] = None,
    input_file: str | None = INPUT,
    seed: int = opt(CHOICE, "--seed N", "Seed of the random scores.", default=0, min=0),
    *,
    options: Options,
) -> None:
    """Show how far each lens can be trusted: do its scores agree with hiding each token?

    attnviz lenses "The red car is fast." "La voiture rouge est rapide."

    attnviz lenses --input sample_inputs/pairs.tsv -f json -o lenses.json
    """
    texts, many, command = given_texts(text, target, input_file, options)
    found = list[TextFaithfulness]()
    with Report(options, "lenses", pictures={}) as report:
        source = open_source(options.origin, command, with_head=True)
        with report.counted((lambda: None) if many else None) as advance:
            for record in texts:
                advance(1)
                if isinstance(record, BadText):
                    report.skip(record, record.error)
                    continue
                query = query_for(record)
                try:
                    experiment = open_experiment(source, query, options.choice.explain)
                    scores = scores_of(explained_by(experiment), partial(ask_source, source, query))
                    found.append(faithfulness(scores, seed))
                except AttnvizError as error:
                    if not record.where:
                        raise
                    report.skip(record, InputError(f"{record.where}: {error}"))
        if found:
            result = lens_report(found)
            report.add(data_of(result, lenses_table, lenses_tsv, lenses_json))
            for note in result.provenance.notes:
                report.say(note)
        report.finish(f"{len(found)} text{'s' * (len(found) != 1)}")
    raise typer.Exit(report.status if found else 1)
