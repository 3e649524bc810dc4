"""Matrices side by side: every head on one scale, or one of each lens on its own scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.renderers import colors
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures import heatmap
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.figures.places import places_of
from attnviz.renderers.look import look_option
from attnviz.renderers.printable import shorten

_LONGEST = 1620
_LARGEST_TILE = 360
_NAME_CELLS = 18
_ROOM_FOR_NUMBER = 21.6  # points of the narrowest tile with its largest weight written in it
_LONGEST_PANEL = 700  # pixels of its side
_ACROSS, _GAP, _BAR, _NARROWEST = 3, 40, 14, 420
"""Panels in a row at most; pixels between them, of a colour bar's width, and of a panel's room."""
OWN_UNIT = "share of the head's largest weight"


@dataclass(frozen=True, slots=True)
class GridSide:
    """The tiles along one side of a grid, in pixels of the image."""

    tiles: int
    block: int
    scale: int
    tile: int
    gap: int

    @property
    def pixels(self) -> int:
        return self.tiles * (self.tile + self.gap) - self.gap

    @property
    def middles(self) -> NDArray[np.float64]:
        starts = np.arange(self.tiles, dtype=np.float64) * (self.tile + self.gap)
        return starts + self.tile / 2 - 0.5


@sheet.own_settings()
def grid(
    attention_map: AttentionMap, *, title: str, subtitle: str = "", fit: sheet.Fit = sheet.FREE
) -> Figure:
    """Every head of every layer side by side on one scale (see `colors.scale_of`).

    One scale lets heads be compared; with --scale own each ends at the head's largest weight.
    Layers run down, heads across; in each tile rows are queries and columns keys. If there are more
    weights than pixels, each pixel shows its strongest weight, and a note says so.
    """
    layers, heads, queries, keys = attention_map.weights.shape
    down, across = _sides(layers, heads, queries, keys, fit.share)
    names = (*attention_map.layers, *attention_map.heads)
    face = typeface([title, subtitle, attention_map.unit, *names])
    the = "the " if queries == keys else ""
    notes = [f"in each tile rows are {the}{queries} queries, columns {the}{keys} keys"]
    if max(down.block, across.block) > 1:
        notes.append(f"each pixel shows the strongest of {down.block} × {across.block} weights")
    limits, unit, weights = (
        colors.picture_scale(attention_map),
        attention_map.unit,
        attention_map.weights,
    )
    notes += filter(None, (heatmap.cell_note(attention_map), colors.no_value_note(attention_map)))
    place = tile_room(attention_map.layers, face)
    tops = np.full((layers, heads), limits[1])
    if look_option("scale") == "own":
        for layer, head in np.ndindex(layers, heads):
            one = weights[layer : layer + 1, head : head + 1]
            item = attention_map.with_weights(one, layers=("",), heads=("",))
            tops[layer, head] = colors.largest_of(item) or 1
        weights, unit = weights / tops[..., None, None], OWN_UNIT
        limits = (-1.0 if limits[0] < 0 else 0.0), 1.0
        notes.append("each head on a scale of its own")
    frame = sheet.Frame(title, subtitle, ("; ".join(notes),), unit, limits, face, *place, fit=fit)
    image = _composite(weights, down, across, limits)
    figure, axes = sheet.frame_image(image, across.pixels, down.pixels, frame)
    name_tiles(axes, down, attention_map.layers, across, attention_map.heads, face)
    if unit == OWN_UNIT and look_option("values") != "no":
        high, wide = down.tile + down.gap, across.tile + across.gap
        corners = [
            (head * wide, layer * high + down.tile) for layer, head in np.ndindex(tops.shape)
        ]
        write_largest(axes, corners, tops.ravel().tolist(), across.tile, face)
    return figure


def write_largest(
    axes: Axes,
    corners: Sequence[tuple[int, int]],
    values: Sequence[float],
    width: int,
    face: Typeface,
) -> None:
    """Write each tile's largest weight into its lower left corner, where it has room."""
    if width < sheet.points(_ROOM_FOR_NUMBER):
        return
    outline = [withStroke(linewidth=1.6, foreground=sheet.ink(colors.INK))]
    looks: dict[str, Any] = {"gid": "largest", "va": "bottom", "path_effects": outline}
    for (left, bottom), value in zip(corners, values, strict=True):
        number = f"{value:.2g}".removeprefix("0") or "0"
        sheet.write(
            axes, (left + 3, bottom - 3), number, face, sheet.NOTE_SIZE, colors.PAPER, **looks
        )


def _sides(
    layers: int, heads: int, queries: int, keys: int, share: float = 1.0
) -> tuple[GridSide, GridSide]:
    """Both sides, with as many pixels a weight, or as few weights a pixel, as the room allows.

    Weights are square; those of a narrow map are up to three times as wide.
    """
    gap = 6 if max(layers, heads) <= 16 else 3
    rooms = [
        max(1, int(share * min(_LARGEST_TILE, (_LONGEST - gap * (tiles - 1)) // tiles)))
        for tiles in (layers, heads)
    ]
    lengths = (queries, keys)
    blocks = [-(-length // room) for length, room in zip(lengths, rooms, strict=True)]
    if queries == keys:
        blocks = [max(blocks)] * 2
    scales = [room // length for room, length in zip(rooms, lengths, strict=True)]
    least = max(1, min(scales))
    sides = []
    for tiles, length, block, scale in zip((layers, heads), lengths, blocks, scales, strict=True):
        pixels = 3 * least if scale > 3 * least else least
        sides.append(GridSide(tiles, block, pixels, -(-length // block) * pixels, gap))
    return sides[0], sides[1]


def _composite(
    weights: NDArray[np.float32], down: GridSide, across: GridSide, limits: colors.Limits
) -> NDArray[np.float32]:
    """All heads in one image, one value for each pixel."""
    low, high = limits
    # Gaps have a value below the scale, which is drawn white. NaN would be three times as slow.
    image = np.full((down.pixels, across.pixels), low - (high - low), dtype=np.float32)
    for layer, heads in enumerate(weights):
        top = layer * (down.tile + down.gap)
        for head, tile in enumerate(colors.block_peaks(heads, down.block, across.block)):
            left = head * (across.tile + across.gap)
            room = image[top : top + down.tile, left : left + across.tile]
            # As (rows, pixels a row, columns, pixels a column) each weight fills its cell.
            cells = room.reshape(tile.shape[0], down.scale, tile.shape[1], across.scale)
            cells[:] = np.clip(tile, low, high)[:, None, :, None]
    return image


def tile_room(layers: Sequence[str], face: Typeface) -> tuple[int, int]:
    """Pixels that the names take on the left of the tiles and above them."""
    line = int(sheet.line_height(sheet.TEXT_SIZE)) + 8
    widest = max(face.width(_shorten_name(name, face), sheet.TEXT_SIZE) for name in layers)
    return int(widest) + 14 + line, 2 * line


def _shorten_name(name: str, face: Typeface) -> str:
    name = face.drawable(name)
    *parts, last = name.split(".")
    if not parts:
        return shorten(name, _NAME_CELLS)
    if len(name) <= 2 * _NAME_CELLS:
        return name
    # Paths of modules differ in their numbers and their ends.
    return ".".join([*(part if len(part) < 6 else part[:4] for part in parts), last])


def name_tiles(
    axes: Axes,
    down: GridSide,
    layers: Sequence[str],
    across: GridSide,
    heads: Sequence[str],
    face: Typeface,
) -> None:
    """Write names of layers on the left and of heads on top, thinned where they would touch."""
    side_names = [_shorten_name(name, face) for name in layers]
    top_names = [_shorten_name(name, face) for name in heads]
    font = face.font(sheet.TEXT_SIZE)
    line = sheet.line_height(sheet.TEXT_SIZE)
    widest = max(face.width(name, sheet.TEXT_SIZE) for name in top_names) + sheet.points(
        0.6 * sheet.TEXT_SIZE
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    for set_ticks, side, names, room in (
        (axes.set_yticks, down, side_names, line),
        (axes.set_xticks, across, top_names, widest),
    ):
        step = int(-(-room // (side.tile + side.gap)))
        set_ticks(side.middles[::step], names[::step], fontproperties=font, parse_math=False)
    axes.tick_params(length=0, pad=3, labelcolor=sheet.ink(colors.INK))
    axes.spines[:].set_visible(False)
    calls = sum("call " in name for name in layers) == len(layers)
    both = "layer · call" if any(" · " in name for name in layers) else "call"
    style: Any = {"fontproperties": font, "color": sheet.ink(colors.INK), "labelpad": 3}
    axes.set_ylabel(both if calls else "layer", **style)
    axes.set_xlabel("head", **style)


@sheet.own_settings()
def panels(
    maps: Sequence[AttentionMap],
    *,
    title: str,
    subtitle: str = "",
    headings: Sequence[str] = (),
    notes: Sequence[str] = (),
    texts: tuple[str, str] = ("", ""),
    fit: sheet.Fit = sheet.FREE,
) -> Figure:
    """Matrices of one layer and head each, named after their streams, at most three in a row.

    Each has its own scale and bar, since lenses have different units, and its lines of `headings`
    below its name. One with other queries, such as a single output, has no names of rows.
    """
    tokens = (token for item in maps for token in (*item.query_tokens, *item.key_tokens))
    words = [word for token in tokens for word in heatmap.label_words(token)]
    headings = headings or [""] * len(maps)
    own = [title, subtitle, *notes, *headings, *words, *(item.stream for item in maps)]
    face = typeface(own)
    queries, keys = (places_of(maps[0], axis, text) for axis, text in enumerate(texts))
    rows, columns = heatmap.axes_of(queries, keys, face, int(_LONGEST_PANEL * fit.share))
    angle = heatmap.label_angle(columns, face)
    labels, overhang = heatmap.label_room(columns, angle, face)
    scales = [_scale_of(item, maps) for item in maps]
    ticks = [
        [*sheet.scale_ticks(scale, colors.is_beyond(item.weights, scale)).values()]
        for item, scale in zip(maps, scales, strict=True)
    ]
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
    own = [*notes, *heatmap.thinning_notes(rows, columns), heatmap.cell_note(maps[0])]
    for item, scale in zip(maps, scales, strict=True):
        own.append(colors.no_value_note(item))
        if heatmap.cell_texts(item.weights[0, 0], scale, *_axes_for(item, rows, columns), face):
            own.append(heatmap.unwritten_note(item.weights[0, 0], scale))
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
        _draw_panel(axes, item, (own_rows, own_columns), scale, face)
        heatmap.label_axes(axes, own_rows, own_columns, angle, face)
        if column:
            axes.set_yticks([])
        page.stack(head, x, first, face, axes)
        height = max(own_rows.pixels, int(2 * sheet.line_height(sheet.NOTE_SIZE)))
        image: Any = axes.images[0]
        bar_axes = page.axes(x + columns.pixels + 12, y, _BAR, height)
        labels_of = dict(zip(image.get_clim(), ticks[place], strict=True))
        sheet.style_bar(page.figure.colorbar(image, cax=bar_axes), labels_of, face)
    page.stack(above, 12, 12, face)
    page.stack(below, 12, top, face)
    return page.figure


def _scale_of(item: AttentionMap, maps: Sequence[AttentionMap]) -> colors.Limits:
    """The scale of a panel: its own, unless --scale is a range, or shared by those of one unit.

    Heads of one stream share it.

    A scale begins at 0 unless all values lie in its upper half, where 0 would make all alike.
    """
    if look_option("scale") == "shared" or len({item.stream for item in maps}) < len(maps):
        alike = [colors.picture_scale(one) for one in maps if one.values == item.values]
        return max(alike, key=lambda one: one[1])
    if look_option("scale") or item.values == "signed":
        return colors.picture_scale(item)
    values = item.weights[np.isfinite(item.weights)]
    top = colors.round_up(colors.reach(values), 2)
    low = math.floor(float(values.min(initial=np.inf)) * 100) / 100 if values.size else 0.0
    return (low if top / 2 < low < top else 0.0), top


def _axes_for(
    item: AttentionMap, rows: heatmap.TokenAxis, columns: heatmap.TokenAxis
) -> tuple[heatmap.TokenAxis, heatmap.TokenAxis]:
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


def _draw_panel(
    axes: Axes,
    item: AttentionMap,
    axis: tuple[heatmap.TokenAxis, heatmap.TokenAxis],
    limits: colors.Limits,
    face: Typeface,
) -> None:
    rows, columns = axis
    axes.set_label(item.stream)
    weights = item.weights[0, 0]
    image = colors.block_peaks(weights, rows.block, columns.block)
    extent = (-0.5, len(columns.tokens) - 0.5, len(rows.tokens) - 0.5, -0.5)
    sheet.draw_image(axes, np.clip(image, *limits), limits, extent=extent)
    heatmap.draw_borders(axes, rows, columns)
    if numbers := heatmap.cell_texts(weights, limits, rows, columns, face):
        heatmap.write_cells(axes, weights, numbers[0], limits, face.font(numbers[1]))
