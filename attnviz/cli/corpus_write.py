"""The report on a corpus, written wherever it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.analyses.corpus.report import report_of
from attnviz.cli.corpus_asked import SUFFIXES, Asked
from attnviz.cli.output import (
    write_bytes,
    write_file,
)
from attnviz.corpus_report import CorpusReport
from attnviz.outputs import as_bytes, picture_suffix
from attnviz.renderers import Display
from attnviz.storage.json import dump_json


def finish(aggregates: Aggregates, asked: Asked) -> None:
    """Write the picture, the file and stdout.

    Raises:
        OutputError: what cannot be written.
    """
    from attnviz.cli.sinks import display_of_stdout

    report = report_of(aggregates, asked.order)
    display = display_of_stdout(many=False)
    if asked.overview is not None:
        from attnviz.renderers.corpus_overview import corpus_overview
        from attnviz.renderers.figure import figure_bytes

        told = dump_json(asdict(report.provenance))
        suffix = picture_suffix(asked.overview)
        write_file(asked.overview, figure_bytes(corpus_overview(report), suffix, told))
    if asked.output is not None:
        format_name = SUFFIXES[asked.output.suffix.lower()]
        plain = Display(width=display.width)
        write_file(asked.output, written(report, format_name, asked, plain))
    if asked.format != "none":
        write_bytes(written(report, asked.format, asked, display))


def written(report: CorpusReport, format_name: str, asked: Asked, display: Display) -> bytes:
    """The report in a format."""
    first = replace(
        report,
        streams=tuple(replace(stream, rows=stream.rows[: asked.top]) for stream in report.streams),
    )
    from attnviz.renderers import corpus_data
    from attnviz.renderers.corpus_table import corpus_table

    spellings: dict[str, Callable[[], str | bytes]] = {
        "table": lambda: corpus_table(first, asked.show, display),
        "tsv": lambda: corpus_data.corpus_tsv(first, asked.show),
        "json": lambda: corpus_data.corpus_json(report),
        "npz": lambda: corpus_data.corpus_npz(report),
    }
    return as_bytes(spellings[format_name]())
