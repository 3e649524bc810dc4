"""Heads in a plane, near one another if they look alike, in the colours of their roles."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from attnviz.core.measures import HeadRow, SimilarityReport
from attnviz.renderers.colors import FAINT, INK, NO_ROLE, ROLE_COLORS
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.printable import printable

_EDGE, _WIDTH, _LEGEND, _HIGH = 24, 1480, 330, 460
_MARGIN = 60
_DOT = 5.0


@sheet.own_settings()
def head_plane(report: SimilarityReport, rows: Sequence[HeadRow]) -> Figure:
    """Each head as a point, with its name (layer.head) where there is room.

    The rows give the roles of the heads; heads without a role are grey.
    """
    by_place = {
        (row.layer, row.head): row.roles[0]
        for row in rows
        if row.roles and row.stream == report.stream
    }
    names = [f"{layer}.{head}" for layer, head in report.heads]
    subtitle = (
        f"layer.head, near where they look alike; the plane shows {report.shown:.0%} of how far "
        "they lie apart"
    )
    face = typeface([report.caption, subtitle, *names])
    width = sheet.page_width(_WIDTH, _EDGE)
    head = sheet.title_paragraphs(face, report.caption, subtitle, width)
    foot = sheet.note_paragraphs(face, sheet.missing_font_note(face), width)
    top = _EDGE + sheet.height_of(head) + 12
    roles = [by_place[place].name if place in by_place else "" for place in report.heads]
    labels = {role.name: printable(role.label) for role in by_place.values()}
    beside = width >= 3 * _LEGEND
    legend = 0 if beside else int(sheet.line_height(sheet.NOTE_SIZE) * (len({*roles}) + 1))
    places, size = _pixels(report.places, width - _LEGEND * beside)
    bottom = top + size[1] + 12 + legend
    page = sheet.blank_page(width + 2 * _EDGE, bottom + sheet.height_of(foot) + _EDGE)
    axes = page.axes(_EDGE, top, *size)
    page.stack(head, _EDGE, _EDGE, face, axes)
    page.stack(foot, _EDGE, bottom, face)
    across, down = places.T
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0), xticks=[], yticks=[], label="plane")
    axes.spines[:].set(linewidth=0.5, color=sheet.ink((190, 190, 190)))
    colors = [sheet.ink(ROLE_COLORS.get(role, NO_ROLE)) for role in roles]
    axes.scatter(across, down, s=_DOT**2, c=colors, linewidths=0.4, edgecolors="white", zorder=2)
    _label(axes, places, names, roles, face)
    _legend(axes, roles, labels, face, (1.01, 1.0) if beside else (0.0, -10 / size[1]))
    return page.figure


def _pixels(places: NDArray[np.float64], side: int) -> tuple[NDArray[np.float64], tuple[int, int]]:
    low, high = places.min(axis=0), places.max(axis=0)
    spread = np.maximum(high - low, 1e-9)
    scale = (side - 2 * _MARGIN) / max(float(spread.max()), 1e-3)
    down = max(int(spread[1] * scale) + 2 * _MARGIN, _HIGH)
    middle = np.array([side, down]) / 2
    # In pixels, y grows downwards.
    pixels = (places - (low + high) / 2) * scale * [1, -1]
    return pixels + middle, (side, down)


def _label(
    axes: Any,
    places: NDArray[np.float64],
    names: Sequence[str],
    roles: Sequence[str],
    face: Typeface,
) -> None:
    dot = sheet.points(_DOT) / 2
    obstacles = [(x - dot, y - dot, x + dot, y + dot) for x, y in places.tolist()]
    line = sheet.points(sheet.SMALLEST)
    for place in sorted(range(len(names)), key=lambda place: not roles[place]):
        x, y = places[place].tolist()
        width = face.width(names[place], sheet.SMALLEST)
        for left, middle in (
            (x + dot + 2, y),
            (x - dot - 2 - width, y),
            (x - width / 2, y - dot - line / 2 - 1),
            (x - width / 2, y + dot + line / 2 + 1),
        ):
            box = (left, middle - line / 2, left + width, middle + line / 2)
            if not any(sheet.overlap_area(box, other) for other in obstacles):
                obstacles.append(box)
                name, color = face.drawable(names[place]), INK if roles[place] else FAINT
                sheet.write(
                    axes, (left, middle), name, face, sheet.SMALLEST, color, va="center_baseline"
                )
                break


def _legend(
    axes: Any,
    roles: Sequence[str],
    labels: Mapping[str, str],
    face: Typeface,
    corner: tuple[float, float],
) -> None:
    entries = [(labels[name], color) for name, color in ROLE_COLORS.items() if name in roles]
    entries += [("no clear role", NO_ROLE)] if "" in roles else []
    handles = [
        Line2D(
            [], [], marker="o", linestyle="", markersize=_DOT, color=sheet.ink(color), label=name
        )
        for name, color in entries
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=corner,
        borderaxespad=0.0,
        frameon=False,
        prop=face.font(sheet.NOTE_SIZE),
        labelcolor=sheet.ink(INK),
        labelspacing=sheet.LINE - 0.9,
        handletextpad=0.2,
    )
