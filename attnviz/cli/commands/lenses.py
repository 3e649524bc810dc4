"""attnviz lenses."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from attnviz.analyses.effects.faithfulness import TextFaithfulness, faithfulness, lens_report
from attnviz.cli.inputs import INPUT, reading, texts_of
from attnviz.cli.options import CHOICE, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Options, opt
from attnviz.core.query import Kind, Query
from attnviz.core.registry import Command
from attnviz.models import Source
from attnviz.models.lens import ask_source, explained_by, open_experiment, scores_of
from attnviz.models.open import check_origin, open_source
from attnviz.renderers.reports import Data
from attnviz.renderers.text.lenses import lenses_json, lenses_table, lenses_tsv
from attnviz.storage.texts import BadText, Text


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
    arguments = [one for one in (text, target) if one is not None]
    pairs = target is not None or input_file is not None
    texts, many = texts_of(arguments, input_file, pairs=pairs, **reading(options))
    command: Command = "cross" if pairs else "self"
    check_origin(options.origin, command)
    found = list[TextFaithfulness]()
    with Report(options, "lenses", pictures={}) as report:
        source = open_source(options.origin, command, with_head=True)
        with report.counted((lambda: None) if many else None) as advance:
            for record in texts:
                advance(1)
                try:
                    found.append(judged(source, record, options.choice.explain, seed))
                except AttnvizError as error:
                    if not record.where:
                        raise
                    report.skip(record, InputError(f"{record.where}: {error}"))
        if found:
            result = lens_report(found)
            report.add(
                Data(
                    text=partial(lenses_table, result),
                    rows=partial(lenses_tsv, result),
                    document=partial(lenses_json, result),
                    value=result,
                )
            )
            for note in result.provenance.notes:
                report.say(note)
        report.finish()
        report.say_done(f"{len(found)} text{'s' * (len(found) != 1)}")
    raise typer.Exit(report.status if found else 1)


def judged(
    source: Source, record: Text | BadText, wanted: str | None, seed: int
) -> TextFaithfulness:
    """How faithful each lens is on one text."""
    if isinstance(record, BadText):
        raise record.error
    kind: Kind = "self" if record.target is None else "cross"
    query = Query(record.text, record.target, kind)
    explained = explained_by(open_experiment(source, query, wanted))
    return faithfulness(scores_of(explained, partial(ask_source, source, query)), seed)
