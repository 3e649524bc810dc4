"""Two columns of tokens with lines between them: the larger the weight, the heavier the line.

This bipartite picture is that of Vig 2019, "A Multiscale Visualization of Attention in the
Transformer Model". Here only the strongest links are drawn, and a note gives the rule.
"""

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.attention_map import IMPLIED, AttentionMap, Token
from attnviz.core.records import dataclass
from attnviz.core.registry import axis_name
from attnviz.renderers.colors import (
    FAINT,
    HEAD_COLORS,
    INK,
    LABELLED,
    SPECIAL,
    Color,
    color_of,
    line_scale,
)
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface
from attnviz.renderers.figures.heatmap import axis_label, axis_names, label_words
from attnviz.renderers.printable import two_digits

MOST_HEADS = len(HEAD_COLORS)
LINES_A_QUERY, FEWEST_LINES, MOST_LINES = 3, 20, 400
FAINTEST = 0.05  # weaker links, as a share of the scale, are not drawn
PALE: Color = (205, 205, 205)

_EDGE, _GAP, _BETWEEN, _TALLEST, _ROOMY = 20, 12, 620, 2600, 11.5
_LEAST_BETWEEN, _TALLEST_IN_PAPER = 100, 1700
_WIDEST, _NARROWEST, _LANES = 4.0, 0.4, 0.75


@dataclass(frozen=True, slots=True, eq=False)
class LinkLines:
    """The links to draw, strongest first, and the rule in words.

    Places, shape (links, 4), are layer, head, query and key. Links of special tokens are pale.
    """

    places: NDArray[np.intp]
    weights: NDArray[np.float32]
    pale: NDArray[np.bool_]
    rule: str


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    size: float
    tokens: tuple[Token, ...]
    texts: tuple[str, ...]
    places: tuple[int, ...]
    room: float
    step: float  # from one token to the next

    def height(self, place: int) -> float:
        """Pixels from the top of the column to a token."""
        return (place + 0.5) * self.step


@sheet.own_settings()
def lines(
    attention_map: AttentionMap, *, title: str, subtitle: str = "", fit: sheet.Fit = sheet.FREE
) -> Figure:
    """Queries on the left, keys on the right, and a line for each strong link.

    One head has the colours of the scale; several have a colour each. Lines of special tokens are
    grey and lie below the others. If not all tokens can be named, those with the strongest links
    are, and a note says how many.

    Raises:
        ValueError: more than eight heads over all layers, since there are eight colours.
    """
    layers, heads = attention_map.weights.shape[:2]
    if layers * heads > MOST_HEADS:
        raise ValueError(f"{layers * heads} heads are more than {MOST_HEADS} colours")
    links = choose_lines(attention_map)
    sides = (attention_map.query_tokens, attention_map.key_tokens)
    words = (word for side in sides for token in side for word in label_words(token))
    legend = _legend(attention_map)
    face = typeface([title, subtitle, *words, *(name for name, _ in legend)])
    roomy = sheet.points(_ROOMY)
    spacing = min(roomy, (_TALLEST_IN_PAPER if fit.width else _TALLEST) / max(map(len, sides)))
    height = int(spacing * max(map(len, sides)))
    # If the longer side is squeezed, the shorter one uses the same height.
    tight = spacing < roomy
    left, right = (
        _column(name, side, links.places[:, axis], height / len(side) if tight else spacing, face)
        for name, side, axis in zip(axis_names(attention_map), sides, (2, 3), strict=True)
    )
    notes = [links.rule]
    thin_sides = [
        f"{len(column.places)} of {len(column.tokens)} {what}"
        for column, what in ((left, "queries"), (right, "keys"))
        if len(column.places) < len(column.tokens)
    ]
    if thin_sides:
        notes.append(f"named: {' and '.join(thin_sides)}, those of the strongest links first")
    notes += sheet.missing_font_note(face)
    around = int(left.room + right.room) + 2 * (_EDGE + _GAP)
    width = fit.width or around + _BETWEEN
    if width < around + _LEAST_BETWEEN:
        raise sheet.TooWide(0)
    figure, axes = _frame_lines(width, height, (title, subtitle), notes, legend, face)
    axes.set(xlim=(0, width), ylim=(height, 0))
    start, end = _EDGE + left.room + _GAP, width - _EDGE - right.room - _GAP
    _draw(axes, attention_map, links, (start, end), (left, right))
    _write_tokens(axes, left, start - _GAP, "right", face)
    _write_tokens(axes, right, end + _GAP, "left", face)
    return figure


def choose_lines(item: AttentionMap) -> LinkLines:
    """The links to draw, and the rule in words.

    The strongest links between ordinary tokens: three times as many as queries, but from 20 to 400,
    and none below a twentieth of the scale. Then links of special tokens that are as strong.
    """
    size = np.nan_to_num(np.abs(item.weights))
    special = np.array([token.special for token in item.query_tokens])[:, None] | np.array(
        [token.special for token in item.key_tokens]
    )
    pale = np.broadcast_to(special & ~special.all(), size.shape).ravel()
    top = line_scale(item)[1]
    flat = size.ravel()
    plain = np.flatnonzero(~pale & (flat >= FAINTEST * top))
    budget = min(max(LINES_A_QUERY * len(item.query_tokens), FEWEST_LINES), MOST_LINES)
    strongest = plain[np.argsort(-flat[plain], kind="stable")[:budget]]
    least = float(flat[strongest].min()) if len(strongest) else FAINTEST * top
    others = np.flatnonzero(pale & (flat >= least))
    # Every query may attend to a sink; its strongest lines suffice to show that.
    others = others[np.argsort(-flat[others], kind="stable")[:MOST_LINES]]
    cells = np.concatenate([strongest, others])
    places = np.stack(np.unravel_index(cells, size.shape), axis=-1)
    total = float(flat.sum(dtype=np.float64)) or 1.0
    share, share_of_special = (
        float(flat[x].sum(dtype=np.float64)) / total for x in (strongest, others)
    )
    what = "attention" if item.values == "share" else "change"
    if item.stream == IMPLIED:
        what = "sum of all sizes"
    rule = f"drawn: the {len(strongest)} strongest of {(~pale).sum()} links"
    rule += f", from {least:.2g} up; they hold {share:.0%} of the {what}"
    if len(others):
        rule += f"; grey: links of special tokens as strong, with {share_of_special:.0%}"
    return LinkLines(places, item.weights.ravel()[cells], pale[cells], rule)


def _column(
    name: str, tokens: tuple[Token, ...], ends: NDArray[np.intp], step: float, face: Typeface
) -> _Column:
    texts = tuple(axis_label(token, face) for token in tokens)
    size = min(sheet.TEXT_SIZE, max(sheet.SMALLEST, sheet.size_of(0.8 * step)))
    apart = sheet.line_height(size) * 0.92 / step
    if apart <= 1:
        places: list[int] = list(range(len(tokens)))
    else:
        near = np.zeros(len(tokens), dtype=bool)
        reach = int(np.ceil(apart)) - 1
        places = []
        labels = [place for place, token in enumerate(tokens) if token.label]
        for place in (*labels, *ends.tolist(), *range(len(tokens))):
            if not near[place]:
                places.append(place)
                near[max(place - reach, 0) : place + reach + 1] = True
    room = max(face.width(texts[place], size, bold=bool(tokens[place].label)) for place in places)
    room = max(room, face.width(name, size))
    return _Column(name, size, tokens, texts, tuple(sorted(places)), room, step)


def _legend(item: AttentionMap) -> list[tuple[str, dict[str, Any]]]:
    top = line_scale(item)[1]
    layers, heads = item.weights.shape[:2]
    if layers * heads > 1:
        return [
            (
                f"layer {layer} {axis_name('head', head)}"
                if layers > 1
                else axis_name("head", head),
                {"color": sheet.ink(HEAD_COLORS[row * heads + column]), "linewidth": 2.5},
            )
            for row, layer in enumerate(item.layers)
            for column, head in enumerate(item.heads)
        ]
    signs = (-1, 1) if item.values == "signed" else (1,)
    return [
        (
            two_digits(sign * share * top).replace("-", "−"),
            {"color": _color(item, sign * share * top), "linewidth": _line_width(share)},
        )
        for sign in signs
        for share in (0.1, 0.5, 1.0)
    ]


def _color(item: AttentionMap, weight: float) -> tuple[float, float, float]:
    limits = line_scale(item)
    least = 0.45 * limits[1]
    return sheet.ink(color_of(np.copysign(max(abs(weight), least), weight).item(), limits))


def _line_width(share: float, widest: float = _WIDEST) -> float:
    return _NARROWEST + (widest - _NARROWEST) * min(share, 1.0)


def _frame_lines(
    width: int,
    height: int,
    head: tuple[str, str],
    notes: list[str],
    legend: list[tuple[str, dict[str, Any]]],
    face: Typeface,
) -> tuple[Figure, Any]:
    room = width - 2 * _EDGE
    above, below = (
        sheet.title_paragraphs(face, *head, room),
        sheet.note_paragraphs(face, notes, room),
    )
    names = [face.drawable(name) for name, _ in legend]
    places = sheet.flow_lines((44 + face.width(name, sheet.NOTE_SIZE) + 28 for name in names), room)
    line = int(sheet.line_height(sheet.NOTE_SIZE)) + 6
    lines = line * (places[-1][1] + 1)
    top = _EDGE + sheet.height_of(above) + 14 + int(sheet.line_height(sheet.TEXT_SIZE))
    foot = top + height + 16
    full = foot + lines + 8 + sheet.height_of(below) + _EDGE
    page = sheet.blank_page(width, full)
    axes = page.axes(0, top, width, height)
    axes.axis("off")
    axes.set_label("links")
    page.stack(above, _EDGE, _EDGE, face, axes)
    page.stack(below, _EDGE, foot + lines + 8, face)
    key = page.axes(0, foot, width, lines)
    key.set(xlim=(0, width), ylim=(lines, 0), label="legend")
    key.axis("off")
    for (across, number), name, (_, looks) in zip(places, names, legend, strict=True):
        left, middle = _EDGE + across, line * (number + 0.5)
        key.plot([left, left + 36], [middle, middle], solid_capstyle="butt", **looks)
        sheet.write(
            key, (left + 44, middle), name, face, sheet.NOTE_SIZE, FAINT, va="center_baseline"
        )
    return page.figure, axes


def _draw(
    axes: Any,
    item: AttentionMap,
    links: LinkLines,
    ends: tuple[float, float],
    columns: tuple[_Column, _Column],
) -> None:
    heads, spacing = item.weights.shape[1], min(column.step for column in columns)
    count = item.weights.shape[0] * heads
    several = count > 1
    # Heads that agree would hide one another, so each has its own lane.
    lane = _LANES * spacing / count if several else 0.0
    widest = min(_WIDEST, max(lane * 72 / DPI, 3 * _NARROWEST)) if several else _WIDEST
    top = line_scale(item)[1]
    order = np.lexsort((np.abs(links.weights), ~links.pale))
    segments, widths, colors, styles = [], [], [], []
    for number in order.tolist():
        layer, head, query, key = links.places[number].tolist()
        weight = float(links.weights[number])
        share = abs(weight) / top
        shift = (layer * heads + head - (count - 1) / 2) * lane
        left, right = columns[0].height(query) + shift, columns[1].height(key) + shift
        segments.append([(ends[0], left), (ends[1], right)])
        thin = 0.5 if links.pale[number] else 1.0
        thick = _line_width(share, widest) * thin * min(1.0, spacing / 16 + 0.3)
        widths.append(min(thick, 0.75 * spacing * 72 / DPI))  # neighbours stay apart
        own = sheet.ink(HEAD_COLORS[layer * heads + head]) if several else _color(item, weight)
        color = sheet.ink(PALE) if links.pale[number] else own
        colors.append((*color, 0.5 + 0.45 * min(share, 1.0)))
        styles.append("--" if several and weight < 0 else "-")
    looks: dict[str, Any] = {"linewidths": widths, "colors": colors, "linestyles": styles}
    axes.add_collection(LineCollection(segments, capstyle="round", **looks))


def _write_tokens(axes: Any, column: _Column, place: float, side: str, face: Typeface) -> None:
    looks: dict[str, Any] = {"ha": side}
    where = place, -6.0
    sheet.write(axes, where, column.name, face, column.size, FAINT, va="bottom", **looks)
    looks |= {"va": "center_baseline", "gid": "token"}
    for number in column.places:
        token, text = column.tokens[number], column.texts[number]
        color = LABELLED if token.label else SPECIAL if token.special else INK
        where = place, column.height(number)
        sheet.write(axes, where, text, face, column.size, color, bold=bool(token.label), **looks)
