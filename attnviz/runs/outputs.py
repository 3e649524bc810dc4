"""Attention becomes what is written: data, pictures and pages as bytes, named by suffix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnviz.analyses.view import divisions, views
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import OutputError, choose
from attnviz.core.registry import FORMATS, PICTURES
from attnviz.renderers import Display, Renderer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.renderers.page import Patches


def make_renderer(format_name: str, display: Display) -> Renderer:
    """A fresh renderer of a format.

    Raises:
        UsageError: no such format.
    """
    choose(format_name, FORMATS, "format")
    renderer: Renderer = FORMATS[format_name].load()(display)
    return renderer


def draw(attention: Attention, picture: str) -> Figure:
    """A picture of the main map as a matplotlib figure, with what was run in its title."""
    from attnviz.analyses.view import describe_run, few_heads, orientation, sides

    function = PICTURES[picture].load()
    if picture == "heatmap" and len(views(attention)) > 1:
        return draw_side_by_side(attention)
    if picture == "heatmap":
        view = views(attention)[0]
        parts = divisions(attention, view.map)
        words = {"title": view.caption, "subtitle": view.orientation}
        figure: Figure = function(view.map, **words, divided=parts)
    elif picture == "links":
        item, title = few_heads(attention)
        figure = function(item, title=title, subtitle=sides(item))
    else:
        item = attention.main
        figure = function(item, title=describe_run(attention, item), subtitle=orientation(item))
    return figure


def draw_side_by_side(attention: Attention) -> Figure:
    """A text through every lens, one panel each."""
    from attnviz.analyses.view import orientation
    from attnviz.renderers.figures.panels import panels

    shown = views(attention)
    return panels(
        [view.map for view in shown],
        title=f"{attention.provenance.title} · every lens side by side on one scale",
        subtitle=orientation(attention.main),
        notes=[f"{view.map.stream}: {view.which}, {view.map.unit}" for view in shown],
    )


def page_html(
    attention: Attention,
    command: str = "",
    most_weights: int | None = None,
    picture: bytes | None = None,
) -> str:
    """Every map of one text as one interactive HTML file, with the measures of its heads.

    Args:
        attention: the maps.
        command: the command that makes the page again, if there is one.
        most_weights: of more weights than these, tokens are pooled; None: as many as a browser
            opens quickly.
        picture: the file of the picture (PNG, JPEG or WebP) whose patches stand at the end of the
            keys of every map, if they do.
    """
    from attnviz.analyses.heads import measure_heads
    from attnviz.analyses.words import word_numbers
    from attnviz.renderers.page import MOST_WEIGHTS, page

    provenance = attention.provenance
    texts = {"text": attention.text, "source": attention.source, "target": attention.target}

    def words(tokens: Sequence[Token], side: str) -> list[int | None]:
        text = texts.get(side)
        return word_numbers(tokens, text) if text else []

    return page(
        attention,
        title=" · ".join([provenance.title, *provenance.steps]),
        command=command,
        measures={
            number: list(measure_heads(item, repeated=False).values())
            for number, item in enumerate(attention.maps)
            if item.values == "share" and not item.is_pooled
        },
        words={
            number: (
                words(item.query_tokens, item.query_side),
                words(item.key_tokens, item.key_side),
            )
            for number, item in enumerate(attention.maps)
        },
        projections={
            number: kept
            for number, item in enumerate(attention.maps)
            if item.stream in attention.projections
            and (kept := attention.projections[item.stream].of(item)) is not None
        },
        patches={
            number: _patches(picture, item) for number, item in enumerate(attention.maps) if picture
        },
        most_weights=most_weights or MOST_WEIGHTS,
    )


def _patches(picture: bytes, item: AttentionMap) -> Patches:
    from attnviz.core.tokens import patch_grid
    from attnviz.renderers.page import Patches

    rows, columns = patch_grid(item.key_tokens)
    return Patches(picture, rows, columns, first=len(item.key_tokens) - rows * columns)


def picture_bytes(attention: Attention, picture: str, suffix: str) -> bytes:
    """A picture of the main map as a file's bytes.

    Raises:
        OutputError: matplotlib cannot write it.
    """
    from attnviz.renderers.figures.figure import figure_bytes

    try:
        return figure_bytes(draw(attention, picture), suffix)
    except MemoryError as error:
        raise OutputError(f"the {picture} does not fit in memory: choose fewer heads") from error


def as_bytes(part: str | bytes) -> bytes:
    """Text as UTF-8; bytes as they are."""
    return part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace")
