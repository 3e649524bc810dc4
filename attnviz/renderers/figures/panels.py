"""Several matrices of one text in a grid, each on its own scale, such as those of every lens."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.core.attention_map import AttentionMap
from attnviz.renderers import colors
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures import heatmap as cells
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.look import look_option

_LONGEST = 700  # pixels of a panel's side at most
_ACROSS, _GAP, _BAR, _NARROWEST = 3, 40, 14, 420
"""Panels in a row at most; pixels between them, of a colour bar's width, and of a panel's room."""


@sheet.own_settings()
def panels(
    maps: Sequence[AttentionMap],
    *,
    title: str,
    subtitle: str = "",
    headings: Sequence[str] = (),
    notes: Sequence[str] = (),
    fit: sheet.Fit = sheet.FREE,
) -> Figure:
    """Matrices of one layer and head each, named after their streams, at most three in a row.

    Each has its own scale and bar, since lenses have different units, and its lines of `headings`
    below its name. One with other queries, such as a single output, has no names of rows.
    """
    tokens = (token for item in maps for token in (*item.query_tokens, *item.key_tokens))
    words = [word for token in tokens for word in cells.label_words(token)]
    headings = headings or [""] * len(maps)
    texts = [title, subtitle, *notes, *headings, *words, *(item.stream for item in maps)]
    face = typeface(texts)
    rows, columns = cells.axes_of(
        maps[0].query_tokens, maps[0].key_tokens, face, int(_LONGEST * fit.share)
    )
    angle = cells.label_angle(columns, face)
    labels, overhang = cells.label_room(columns, angle, face)
    scales = [_scale_of(item, maps) for item in maps]
    ticks = [[f"{end:.3g}".replace("-", "−") for end in scale] for scale in scales]
    bar = _BAR + 18 + int(max(face.width(tick, sheet.NOTE_SIZE) for pair in ticks for tick in pair))
    pitch = max(columns.pixels + max(bar + 12, overhang), 0 if fit.width else _NARROWEST) + _GAP
    across = min(_ACROSS, len(maps))
    left = 12 + int(rows.widest(face)) + rows.pad
    full = left + across * pitch - _GAP + 12
    if fit.width and full > fit.width:
        raise sheet.TooWide(1 - (full - fit.width) / (across * columns.pixels))
    room = (fit.width or full) - 24
    heads = [
        [
            sheet.paragraph(face, text, size, size == sheet.TEXT_SIZE, color, pitch - _GAP)
            for text, size, color in (
                (item.stream, sheet.TEXT_SIZE, colors.INK),
                *((line, sheet.NOTE_SIZE, colors.FAINT) for line in heading.splitlines()),
            )
        ]
        for item, heading in zip(maps, headings, strict=True)
    ]
    above = sheet.title_paragraphs(face, title, subtitle, room)
    own = [*notes, *cells.thinning_notes(rows, columns)]
    for item, scale in zip(maps, scales, strict=True):
        own += [colors.beyond_note(item, scale), colors.no_value_note(item)]
        if cells.cell_texts(item.weights[0, 0], scale, *_axes_for(item, rows, columns), face):
            own.append(cells.unwritten_note(item.weights[0, 0], scale))
    below = sheet.note_paragraphs(face, [*filter(None, own), *sheet.missing_font_note(face)], room)
    # All panels in a row start below the longest heading.
    shares = [heads[start : start + across] for start in range(0, len(maps), across)]
    top, tops = 12 + sheet.height_of(above) + 12, list[tuple[int, int]]()
    for share in shares:
        tops.append((top, top + max(map(sheet.height_of, share)) + 6 + labels))
        top = tops[-1][1] + rows.pixels + _GAP
    page = sheet.blank_page(fit.width or full, top + sheet.height_of(below) + 12)
    for place, (item, scale, head) in enumerate(zip(maps, scales, heads, strict=True)):
        row, column = divmod(place, across)
        own_rows, own_columns = _axes_for(item, rows, columns)
        x, (first, y) = left + column * pitch, tops[row]
        axes = page.axes(x, y, own_columns.pixels, own_rows.pixels)
        _draw(axes, item, (own_rows, own_columns), scale, face)
        cells.label_axes(axes, own_rows, own_columns, angle, face)
        if column:
            axes.set_yticks([])
        page.stack(head, x, first, face, axes)
        height = max(own_rows.pixels, int(2 * sheet.line_height(sheet.NOTE_SIZE)))
        _draw_bar(page.axes(x + columns.pixels + 12, y, _BAR, height), axes, ticks[place], face)
    page.stack(above, 12, 12, face)
    page.stack(below, 12, top, face)
    return page.figure


def _scale_of(item: AttentionMap, maps: Sequence[AttentionMap]) -> colors.Limits:
    """The scale of a panel: its own, unless --scale is a range or shared by those of one unit.

    A scale begins at 0 unless all values lie in its upper half, where 0 would make all alike.
    """
    if look_option("scale") == "shared":
        alike = [colors.picture_scale(one) for one in maps if one.values == item.values]
        return max(alike, key=lambda one: one[1])
    if look_option("scale") or item.values == "signed":
        return colors.picture_scale(item)
    values = item.weights[np.isfinite(item.weights)]
    low, top = (
        (float(values.min()), colors.round_up(float(values.max()), 2))
        if values.size
        else (0.0, 1.0)
    )
    low = math.floor(low * 100) / 100
    return (low if top / 2 < low < top else 0.0), top


def _axes_for(
    item: AttentionMap, rows: cells.TokenAxis, columns: cells.TokenAxis
) -> tuple[cells.TokenAxis, cells.TokenAxis]:
    """The axes of a panel: those of the first, as far as its queries and keys are the same."""
    count = len(item.key_tokens)
    places = tuple(place for place in columns.named_places if place < count)
    keys = replace(
        columns, tokens=columns.tokens[:count], texts=columns.texts[:count], named_places=places
    )
    if len(item.query_tokens) == len(rows.tokens):
        return rows, keys
    cell = max(rows.cell, int(sheet.line_height(rows.size)) + 2)
    names = ("",) * len(item.query_tokens)
    return replace(
        rows, tokens=item.query_tokens, texts=names, block=1, cell=cell, named_places=()
    ), keys


def _draw(
    axes: Axes,
    item: AttentionMap,
    axis: tuple[cells.TokenAxis, cells.TokenAxis],
    limits: colors.Limits,
    face: Typeface,
) -> None:
    rows, columns = axis
    axes.set_label(item.stream)
    weights = item.weights[0, 0]
    image = colors.block_peaks(weights, rows.block, columns.block)
    extent = (-0.5, len(columns.tokens) - 0.5, len(rows.tokens) - 0.5, -0.5)
    sheet.draw_image(axes, np.clip(image, *limits), limits, extent=extent)
    cells.draw_borders(axes, rows, columns)
    if numbers := cells.cell_texts(weights, limits, rows, columns, face):
        cells.write_cells(axes, weights, numbers[0], limits, face.font(numbers[1]))


def _draw_bar(where: Axes, axes: Axes, ticks: Sequence[str], face: Typeface) -> None:
    image: Any = axes.images[0]
    bar = image.figure.colorbar(image, cax=where)
    bar.set_ticks(
        list(image.get_clim()), labels=list(ticks), fontproperties=face.font(sheet.NOTE_SIZE)
    )
    bar.outline.set(linewidth=0.5, edgecolor=sheet.ink((190, 190, 190)))
    faint = sheet.ink(colors.FAINT)
    where.tick_params(length=2.5, width=0.5, pad=2, color=faint, labelcolor=faint)
    where.set_label("colour bar")
