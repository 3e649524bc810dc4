"""Several matrices of one text side by side on one scale, such as those of every lens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.core.attention_map import AttentionMap
from attnviz.renderers.blocks import block_peaks
from attnviz.renderers.colors import Limits, beyond_note, no_value_note, picture_scale
from attnviz.renderers.figures.figure import (
    FREE,
    TEXT_SIZE,
    Fit,
    Frame,
    TooWide,
    draw_image,
    frame_image,
    line_height,
    own_settings,
    write,
)
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.figures.heatmap import (
    TokenAxis,
    axes_of,
    axis_label,
    cell_texts,
    draw_borders,
    label_angle,
    label_axes,
    label_room,
    label_words,
    thinning_notes,
    unwritten_note,
    write_cells,
)
from attnviz.renderers.look import chosen

_LONGEST = 760
"""Pixels of a panel's side at most."""
_GAP = 28


@dataclass(frozen=True, slots=True)
class _Panel:
    map: AttentionMap
    rows: TokenAxis
    columns: TokenAxis
    left: int
    top: int


@own_settings()
def panels(
    maps: Sequence[AttentionMap],
    *,
    title: str,
    subtitle: str = "",
    notes: Sequence[str] = (),
    fit: Fit = FREE,
) -> Figure:
    """Matrices of one layer and head each, side by side on one scale, named after their streams.

    Those with the queries of the first stand in a row and share its labels. One with other queries,
    such as a single output, stands below and shares the columns; its keys are the first of these.
    Signed values beside shares have their own scale, and a note says so.
    """
    tokens = (token for item in maps for token in (*item.query_tokens, *item.key_tokens))
    words = [word for token in tokens for word in label_words(token)]
    names = [item.stream for item in maps]
    face = typeface([title, subtitle, *notes, *names, *words, *(item.unit for item in maps)])
    longest = int(_LONGEST * fit.share)
    rows, columns = axes_of(maps[0].query_tokens, maps[0].key_tokens, face, longest)
    placed = _place(maps, rows, columns, face)
    widest = max(face.width(face.drawable(name), TEXT_SIZE, bold=True) for name in names)
    if fit.width and widest > columns.pixels + _GAP - 8:  # one name would run into the next
        raise TooWide(0)
    angle = label_angle(columns, face)
    labels, overhang = label_room(columns, angle, face)
    alike = [picture_scale(item) for item in maps if item.values == maps[0].values]
    limits = max(alike, key=lambda one: one[1])
    units = {item.unit for item in maps}
    scales = [_limits_of(item, limits) for item in maps]
    own_notes = [
        f"{item.stream} has its own scale: from {own[0]:.3g} to {own[1]:.3g}".replace("-", "−")
        for item, own in zip(maps, scales, strict=True)
        if own != limits
    ]
    own_notes += {beyond_note(item, own) for item, own in zip(maps, scales, strict=True)} - {""}
    own_notes += {no_value_note(item) for item in maps} - {""}
    own_notes += {
        unwritten_note(panel.map.weights[0, 0], own)
        for panel, own in zip(placed, scales, strict=True)
        if cell_texts(panel.map.weights[0, 0], own, panel.rows, panel.columns, face)
    } - {""}
    frame = Frame(
        title,
        subtitle,
        (*notes, *own_notes, *thinning_notes(rows, columns)),
        units.pop() if len(units) == 1 else "each as said below",
        limits,
        face,
        left=int(max(panel.rows.widest(face) for panel in placed)) + rows.pad + 10,
        top=labels + int(line_height(TEXT_SIZE)) + 14,
        right=overhang,
        fit=fit,
    )
    width = max(panel.left + panel.columns.pixels for panel in placed)
    height = max(panel.top + panel.rows.pixels for panel in placed)
    ground = np.full((1, 1), frame.limits[0] - 1, dtype=np.float32)
    figure, base = frame_image(ground, width, height, frame)
    base.set_axis_off()
    for panel in placed:
        _draw(figure, base, panel, (width, height), frame, angle if panel.top == 0 else None)
    return figure


def _limits_of(item: AttentionMap, limits: Limits) -> Limits:
    """The scale of a panel: the common one, unless --scale is own, or only one of them signed."""
    if chosen("scale") == "own":
        return picture_scale(item)
    return limits if (item.values == "signed") == (limits[0] < 0) else picture_scale(item)


def _place(
    maps: Sequence[AttentionMap], rows: TokenAxis, columns: TokenAxis, face: Typeface
) -> list[_Panel]:
    placed: list[_Panel] = []
    across, below = 0, rows.pixels
    # Slanted labels must not reach into the next panel.
    angle = label_angle(columns, face)
    apart = columns.pixels + max(_GAP, int(columns.widest(face) * 0.75) if angle == 45 else 0)
    for item in maps:
        if item.query_tokens == maps[0].query_tokens:
            placed.append(_Panel(item, rows, columns, across, 0))
            across += apart
        else:
            tokens, count = item.query_tokens, len(item.key_tokens)
            texts, every = tuple(axis_label(one, face) for one in tokens), tuple(range(len(tokens)))
            cell = max(rows.cell, int(line_height(rows.size)) + 2)
            own = TokenAxis(tokens, texts, 1, cell, rows.size, 1, every)
            first = replace(
                columns,
                tokens=columns.tokens[:count],
                texts=columns.texts[:count],
                shown=tuple(place for place in columns.shown if place < count),
            )
            placed.append(_Panel(item, own, first, 0, below + _GAP))
            below += _GAP + own.pixels
    return placed


def _draw(
    figure: Figure,
    base: Axes,
    panel: _Panel,
    size: tuple[int, int],
    frame: Frame,
    angle: int | None,
) -> None:
    rows, columns, face = panel.rows, panel.columns, frame.face
    room = base.get_position()
    across, down = room.width / size[0], room.height / size[1]
    x, y = room.x0 + panel.left * across, room.y1 - (panel.top + rows.pixels) * down
    axes = figure.add_axes((x, y, columns.pixels * across, rows.pixels * down))
    axes.set_label(panel.map.stream)
    weights = panel.map.weights[0, 0]
    image = block_peaks(weights, rows.block, columns.block)
    limits = _limits_of(panel.map, frame.limits)
    extent = (-0.5, len(columns.tokens) - 0.5, len(rows.tokens) - 0.5, -0.5)
    draw_image(axes, np.clip(image, *limits), limits, extent=extent)
    label_axes(axes, rows, columns, angle or 0, face)
    if panel.left:
        axes.set_yticks([])
    if angle is None:
        axes.set_xticks([])
    draw_borders(axes, rows, columns)
    if numbers := cell_texts(weights, limits, rows, columns, face):
        write_cells(axes, weights, numbers[0], limits, face.font(numbers[1]))
    looks: dict[str, Any] = {"va": "top", "transform": axes.transAxes, "gid": "panel"}
    where = (0.0, 1 + (frame.top - 2) / rows.pixels)
    if angle is None:
        looks["va"], where = "center", (1 + 12 / columns.pixels, 0.5)
    name = face.drawable(panel.map.stream)
    write(axes, where, name, face, TEXT_SIZE, bold=True, clip_on=False, **looks)
