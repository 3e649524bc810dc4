"""A query and documents: the map of one, or all of them by score."""

from __future__ import annotations

from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError, is_number
from attnviz.core.options import Options, Origin
from attnviz.features.match.encoder import LateEncoder, load_encoder
from attnviz.features.match.report import MatchReport, match_data, match_of, ranking_data
from attnviz.models.open import check_torch, is_shipped, loading_of, name_of
from attnviz.runs.inputs import TextInput
from attnviz.runs.readers import each_text
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.texts import BadText, Text, check_text


def open_encoder(origin: Origin) -> LateEncoder:
    """The model of a request."""
    if is_shipped(origin):
        raise UsageError(
            "match compares a query with documents by a model like ColBERT, or by any encoder: "
            "--model ID_OR_FOLDER"
        )
    check_torch(origin, "models of late interaction")
    return load_encoder(name_of(origin), **loading_of(origin))


def report_matches(
    query: str, texts: TextInput, record: str | None, options: Options, report: RunReport
) -> None:
    """Report the map of a single document, or the ranking of several."""
    check_text(query)
    encoder = open_encoder(options.origin)
    query_side = encoder.encode_query(query)

    def match_one(text: Text) -> MatchReport:
        return match_of(query_side, encoder.encode_document(text.text), encoder.provenance, text.id)

    records = texts.open() if record is None else [_choose_record([*texts.open()], record)]
    outcomes = each_text(records, match_one)
    output = options.output
    arrays = "npz" in (output.format, getattr(output.output, "suffix", "").lower()[1:])
    if arrays and record is None and texts.several and (texts.count() or 1) > 1:
        raise UsageError(
            "a ranking of several documents is no array: write .json or .tsv, or give --record"
        )
    matches = [one for _, one in good_results(outcomes, report, texts.total)]
    if not matches:
        report.finish("0 documents")
        return
    if len(matches) == 1:
        (one,) = matches
        report.add(match_data(one, lambda command: _page(one.attention, command)))
        notes = one.attention.provenance.notes
    else:
        report.add(ranking_data(query, matches, encoder.provenance))
        notes = encoder.provenance.notes
    for note in notes:
        report.hold(note)
    report.finish(f"{len(matches)} document{'s' if len(matches) != 1 else ''}")


def _choose_record(records: list[Text | BadText], record: str) -> Text | BadText:
    """The record of this id, or else of this number from 0."""
    for one in records:
        if isinstance(one, Text) and one.id == record:
            return one
    if is_number(record) and int(record) < len(records):
        return records[int(record)]
    raise UsageError(f"--record {record} is no id and no number of the {len(records)} documents")


def _page(attention: Attention, command: str) -> str:
    from attnviz.runs.outputs import page_html

    return page_html(attention, command)
