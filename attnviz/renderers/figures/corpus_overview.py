"""A corpus in one picture: portraits of heads, what layers attend to, measures with intervals."""

from __future__ import annotations

from matplotlib.figure import Figure

from attnviz.core.corpus_report import CorpusReport
from attnviz.core.measures import about_effects, mass_note
from attnviz.renderers.colors import FAINT, INK
from attnviz.renderers.figures.canvas import EDGE, full_canvas
from attnviz.renderers.figures.corpus_plots import CLASS_NAMES, ClassBars, MeasurePlots, RoleLegend
from attnviz.renderers.figures.corpus_profiles import NAMES, Profiles
from attnviz.renderers.figures.figure import (
    NOTE_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    footing,
    height_of,
    line_height,
    own_settings,
    paragraph,
)
from attnviz.renderers.figures.fonts import typeface

_GAP, _WIDTH, _LEGEND = 44, 1560, 300
_HOW = (
    "each head: its attention between words by position, key minus query (height: root of the "
    "share; the outermost: all beyond); the strip: what all its keys are"
)


@own_settings()
def corpus_overview(report: CorpusReport) -> Figure:
    """The first stream of a corpus of at least one text."""
    stream = report.streams[0]
    size = f"{report.texts:,} texts · {stream.tokens:,} tokens"
    notes = _notes(report)
    words = [report.caption, size, _HOW, *notes, *stream.layers, *stream.heads]
    face = typeface([*words, *CLASS_NAMES.values(), "−+"])
    head = [
        paragraph(face, report.caption, TITLE_SIZE, True, INK, _WIDTH),
        paragraph(face, size, TEXT_SIZE, False, INK, _WIDTH),
        paragraph(face, _HOW, NOTE_SIZE, False, FAINT, _WIDTH),
    ]
    foot = footing(face, notes, _WIDTH)
    names = int(2 * line_height(NOTE_SIZE)) + 16
    top = EDGE + height_of(head) + names
    profiles = Profiles(stream, EDGE + NAMES, top, _WIDTH - NAMES)
    middle = top + profiles.height + _GAP
    across = _WIDTH - NAMES - _LEGEND - _GAP
    bars = ClassBars(stream, EDGE + NAMES + 30, middle, across - 30)
    legend = RoleLegend(stream, EDGE + _WIDTH - _LEGEND, middle)
    lower = middle + max(bars.height, legend.height) + _GAP
    plots = MeasurePlots(stream, EDGE + 40, lower, _WIDTH - 40)
    canvas = full_canvas(face, _WIDTH, head, foot, lower + plots.height)
    for part in (profiles, bars, legend, plots):
        part.draw(canvas)
    return canvas.figure


def _notes(report: CorpusReport) -> list[str]:
    others = ", ".join(stream.stream for stream in report.streams)
    only = f"stream {report.streams[0].stream} of {others}" if len(report.streams) > 1 else ""
    failed = f"{report.failed:,} texts could not be read" if report.failed else ""
    told = (
        f"measures: heads in the order of their means; dark: {report.interval}; pale: one standard "
        "deviation between texts; dashed: uniform attention"
    )
    mass = mass_note(report.streams[0].measures)
    about = about_effects(report.provenance)
    return [text for text in (told, mass, about, only, failed, *report.notes) if text]
