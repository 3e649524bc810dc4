"""A corpus in one picture: portraits of heads, what layers attend to, measures with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.renderers.colors import FAINT, INK
from attnviz.renderers.figures.canvas import Canvas
from attnviz.renderers.figures.corpus_plots import CLASS_NAMES, ClassBars, MeasurePlots, RoleLegend
from attnviz.renderers.figures.corpus_profiles import NAMES, Profiles
from attnviz.renderers.figures.figure import (
    LINE,
    NOTE_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    blank_page,
    paragraph,
    points,
)
from attnviz.renderers.figures.fonts import typeface

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.corpus_report import CorpusReport


_EDGE, _CORPUS_OVERVIEW_GAP, _WIDTH = 24, 44, 1560
_LEGEND = 300
_HOW = (
    "each head: its attention between words by position, key minus query (height: root of the "
    "share; the outermost: all beyond); the strip: what all its keys are"
)


def corpus_overview(report: CorpusReport) -> Figure:
    """The first stream of a corpus.

    Args:
        report: of at least one text.
    """
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
    foot = [paragraph(face, text, NOTE_SIZE, False, FAINT, _WIDTH) for text in notes]
    names = int(2 * points(LINE * NOTE_SIZE)) + 16
    top = _EDGE + sum(item.height for item in head) + names
    profiles = Profiles(stream, _EDGE + NAMES, top, _WIDTH - NAMES)
    middle = top + profiles.height + _CORPUS_OVERVIEW_GAP
    across = _WIDTH - NAMES - _LEGEND - _CORPUS_OVERVIEW_GAP
    bars = ClassBars(stream, _EDGE + NAMES + 30, middle, across - 30)
    legend = RoleLegend(stream, _EDGE + _WIDTH - _LEGEND, middle)
    lower = middle + max(bars.height, legend.height) + _CORPUS_OVERVIEW_GAP
    plots = MeasurePlots(stream, _EDGE + 40, lower, _WIDTH - 40)
    bottom = lower + plots.height
    height = bottom + sum(item.height for item in foot) + _EDGE
    width = _WIDTH + 2 * _EDGE
    page = blank_page(width, height)
    canvas = Canvas(page.axes(0, 0, width, height), width, height, face)
    page.stack(head, _EDGE, _EDGE, face)
    page.stack(foot, _EDGE, bottom, face, gid="note")
    for part in (profiles, bars, legend, plots):
        part.draw(canvas)
    return page.figure


def _notes(report: CorpusReport) -> list[str]:
    others = ", ".join(stream.stream for stream in report.streams)
    only = f"stream {report.streams[0].stream} of {others}" if len(report.streams) > 1 else ""
    failed = f"{report.failed:,} texts could not be read" if report.failed else ""
    told = (
        f"measures: heads in the order of their means; dark: {report.interval}; pale: one standard "
        "deviation between texts; dashed: uniform attention"
    )
    return [text for text in (told, only, failed) if text]
