"""Which heads read which heads, in texts or by the weights alone, reported."""

from dataclasses import replace
from functools import partial

import numpy as np

from attnviz.analyses.select import select
from attnviz.core import effects, registry
from attnviz.core.options import Options
from attnviz.features.wiring import table as tables
from attnviz.features.wiring.report import WiringReport
from attnviz.features.wiring.study import WiringStudy, wire_weights
from attnviz.models.open import open_source
from attnviz.renderers.reports import data_of, draw_by
from attnviz.runs.inputs import TextInput
from attnviz.runs.readers import each_text, query_for
from attnviz.runs.reporting import RunReport, good_results

PAIRS = 20  # pairs of heads that are listed by default


def report_weights(top: int, options: Options, report: RunReport) -> None:
    """Report how far heads could read one another by their weights alone."""
    source = open_source(options.origin, "self", with_head="exact")
    wires = wire_weights(*source.head_weights())
    _report(wires, top, report)
    report.finish("weights")


def report_wiring(
    texts: TextInput, command: registry.SourceKind, top: int, options: Options, report: RunReport
) -> None:
    """Report which heads read which heads, as the mean over texts."""
    source, study, choice = open_source(options.origin, command), WiringStudy(), options.choice
    heads = set[effects.HeadAt]()
    results = each_text(
        texts.open(), lambda text: source.trace_writers(query_for(source, text, command))
    )
    for _, trace in good_results(results, report, texts.total):
        study.add(trace)
        part = select(trace.attention, choice.stream, choice.layer, choice.head)
        heads |= {
            effects.HeadAt(item.stream, layer, int(head))
            for item in part.maps
            for at in np.ndindex(item.weights.shape[:2])
            for layer, head in [item.place(*at)]
        }
    if study.texts:
        summary = study.report()
        wires = tuple(one for one in summary.wires if one.head in heads)
        summary = replace(summary, wires=wires)
        _report(summary, top, report)
    report.finish(f"{study.texts} text{'s' if study.texts != 1 else ''}")


def _report(wires: WiringReport, top: int, report: RunReport) -> None:
    for note in wires.notes:
        report.say(note)
    data = data_of(
        *(wires, *tables.WIRING, top),
        arrays=partial(tables.wiring_npz, wires),
        figures={"plot": partial(draw_by, "attnviz.features.wiring.picture:wiring_picture", wires)},
    )
    report.add(data)
