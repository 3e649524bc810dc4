"""Matrices side by side: every head on one scale, or one of each lens on its own scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Token, layer_of_call
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import axis_name
from attnviz.core.tokens import kind_edges
from attnviz.renderers import colors
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures import heatmap
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface
from attnviz.renderers.figures.places import places_of
from attnviz.renderers.look import look_option
from attnviz.renderers.printable import printable, shorten, shorten_words

_LONGEST = 1620
_LARGEST_TILE = 360
_NAME_CELLS, _TOKEN_CELLS = 18, 12
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
    attention_map: AttentionMap,
    *,
    title: str,
    subtitle: str = "",
    fit: sheet.Fit = sheet.FREE,
    groups: Sequence[Sequence[Sequence[int]]] = (),
) -> Figure:
    """Every head of every layer side by side on one scale (see `colors.scale_of`).

    One scale lets heads be compared; with scale=own each ends at the head's largest weight.
    Layers run down, heads across; heads of one layer, or chosen from several, run on in rows. In
    each tile rows are queries and columns keys, which are named where they have room. If there are
    more weights than pixels, each pixel shows its strongest weight, and a note says so. `groups`
    are for each layer the places of heads that share keys and values: a line runs under each.
    """
    weights, unit = attention_map.weights, attention_map.unit
    layers, heads, queries, keys = weights.shape
    words = (token.text for side in (attention_map.query_tokens, attention_map.key_tokens)
             for token in side)  # fmt: skip
    names = (*attention_map.layers, *attention_map.heads)
    face = typeface([title, subtitle, unit, *names, *words])
    strip = layers == 1 < heads
    down, across = _sides(attention_map, fit.share, _name_line() if strip else None)
    limits, notes = colors.picture_scale(attention_map), list[str]()
    tokens = _TileTokens.of(attention_map, down, across, face)
    if not (tokens.rows and tokens.columns):
        the = "the " if queries == keys else ""
        notes.append(f"in each tile rows are {the}{queries} queries, columns {the}{keys} keys")
    if max(down.block, across.block) > 1:
        notes.append(f"each pixel shows the strongest of {down.block} × {across.block} weights")
    notes += filter(None, (heatmap.cell_note(attention_map), colors.no_value_note(attention_map)))
    tops = np.full((layers, heads), limits[1])
    if look_option("scale") == "own":
        for layer, head in np.ndindex(layers, heads):
            one = weights[layer : layer + 1, head : head + 1]
            item = attention_map.with_weights(one, layers=("",), heads=("",))
            tops[layer, head] = colors.largest_of(item) or 1
        weights, unit = weights / tops[..., None, None], OWN_UNIT
        limits = (-1.0 if limits[0] < 0 else 0.0), 1.0
        notes.append("each head on a scale of its own")
    if any(groups):
        notes.append("lines join the heads that share keys and values")
    left, top = (tokens.left, _name_line()) if strip else tile_room(attention_map.layers, face)
    place = left + (0 if strip else tokens.left), top + tokens.top
    about = title, subtitle, ("; ".join(notes),) if notes else (), unit, limits, face
    frame = sheet.Frame(*about, *place, fit=fit, beyond=colors.is_beyond(weights, limits))
    wide, high = across.tile + across.gap, down.tile + down.gap
    numbers = (divmod(number, across.tiles) for number in range(layers * heads))
    corners = [(column * wide, row * high) for row, column in numbers]
    image = _composite(weights.reshape(-1, queries, keys), corners, down, across, limits)
    figure, axes = sheet.frame_image(image, across.pixels, down.pixels, frame)
    if strip:
        _name_strip(axes, attention_map.heads, corners, across, tokens, face)
    else:
        name_tiles(axes, down, attention_map.layers, across, attention_map.heads, face)
        pads = {"x": tokens.top, "y": tokens.left}
        for axis, pixels in pads.items():
            axes.tick_params(axis=axis, pad=3 + pixels * 72 / DPI)  # type: ignore[arg-type]
    tokens.write(axes, corners, face)
    for edge in kind_edges(attention_map.key_tokens):
        at = edge * across.scale / across.block - 0.5
        places = [(x + at, y - 0.5, y + down.tile - 0.5) for x, y in corners]
        axes.vlines(
            *zip(*places, strict=True), gid="kinds", linewidth=1, color=sheet.ink(colors.INK)
        )
    _join_groups(axes, groups, corners, heads, (down, across))
    if unit == OWN_UNIT and look_option("values") != "no":
        lower = [(x, y + down.tile) for x, y in corners]
        write_largest(axes, lower, tops.ravel().tolist(), across.tile, face)
    return figure


def _join_groups(
    axes: Axes,
    groups: Sequence[Sequence[Sequence[int]]],
    corners: Sequence[tuple[int, int]],
    heads: int,
    sides: tuple[GridSide, GridSide],
) -> None:
    """A line under the tiles of each group of heads, and under each row of one that runs on."""
    down, across = sides
    looks: dict[str, Any] = {"gid": "group", "linewidth": 1.2, "color": sheet.ink(colors.INK)}
    for layer, own in enumerate(groups):
        for members in own:
            tiles = [corners[layer * heads + head] for head in members]
            for y in dict.fromkeys(y for _, y in tiles):
                ends = [x for x, row in tiles if row == y]
                level = y + down.tile + min(down.gap / 2, 3) - 0.5  # above the names below
                axes.hlines(level, min(ends), max(ends) + across.tile - 1, clip_on=False, **looks)


def _name_line() -> int:
    """Pixels for a line of names above a tile."""
    return int(sheet.line_height(sheet.TEXT_SIZE)) + 8


@dataclass(frozen=True, slots=True)
class _TileTokens:
    """The names of tokens beside the first tiles of each row, and above those of the first row."""

    rows: tuple[Token, ...]  # (): they have no room
    columns: tuple[Token, ...]
    steps: tuple[int, int]  # pixels from a row to the next, and from a column to the next
    size: float
    left: int  # pixels that they take
    top: int

    @classmethod
    def of(
        cls, item: AttentionMap, down: GridSide, across: GridSide, face: Typeface
    ) -> _TileTokens:
        fits = sheet.points(1.02 * sheet.SMALLEST)
        rows, columns = (
            tokens if side.block == 1 and side.scale >= fits else ()
            for side, tokens in ((down, item.query_tokens), (across, item.key_tokens))
        )
        steps = down.scale, across.scale
        size = min(sheet.TEXT_SIZE, max(sheet.SMALLEST, sheet.size_of(0.8 * min(steps))))
        wide, high = (
            max((face.width(_tile_name(one, face), size) for one in tokens), default=0)
            for tokens in (rows, columns)
        )
        if high and not cls._turns(high, steps, size):
            high = sheet.line_height(size)
        gap = 12
        return cls(
            rows, columns, steps, size, int(wide + gap * bool(wide)), int(high + gap * bool(high))
        )

    @staticmethod
    def _turns(widest: float, steps: tuple[int, int], size: float) -> bool:
        return widest + sheet.points(0.5 * size) > steps[1]

    def write(self, axes: Axes, corners: Sequence[tuple[int, int]], face: Typeface) -> None:
        """Write the names around tiles at these corners."""
        columns = [_tile_name(token, face) for token in self.columns]
        widest = max((face.width(name, self.size) for name in columns), default=0)
        upright = self._turns(widest, self.steps, self.size)
        looks: dict[str, Any] = {"gid": "token", "clip_on": False}
        for x in dict.fromkeys(x for x, y in corners if y == 0):
            for number, (token, name) in enumerate(zip(self.columns, columns, strict=True)):
                place = x + (number + 0.5) * self.steps[1] - 0.5, -8.0
                how = {"ha": "center", "va": "bottom", "rotation": 90 if upright else 0, **looks}
                sheet.write(axes, place, name, face, self.size, _ink_of(token), **how)
        for y in dict.fromkeys(y for x, y in corners if x == 0):
            for number, token in enumerate(self.rows):
                place = -8.0, y + (number + 0.5) * self.steps[0] - 0.5
                how = {"ha": "right", "va": "center_baseline", **looks}
                name = _tile_name(token, face)
                sheet.write(axes, place, name, face, self.size, _ink_of(token), **how)


def _tile_name(token: Token, face: Typeface) -> str:
    return shorten_words(face.drawable(printable(token.text)), _TOKEN_CELLS)


def _ink_of(token: Token) -> colors.Color:
    return colors.LABELLED if token.label else colors.SPECIAL if token.special else colors.INK


def _name_strip(
    axes: Axes,
    heads: Sequence[str],
    corners: Sequence[tuple[int, int]],
    across: GridSide,
    tokens: _TileTokens,
    face: Typeface,
) -> None:
    """Write the name of each head above its tile."""
    axes.spines[:].set_visible(False)
    looks: dict[str, Any] = {"gid": "head", "va": "bottom", "ha": "center", "clip_on": False}
    names = [axis_name("head", _shorten_name(head, face)) for head in heads]
    if max(face.width(name, sheet.TEXT_SIZE) for name in names) > across.tile + across.gap:
        names = [_shorten_name(head, face) for head in heads]
    for name, (x, y) in zip(names, corners, strict=True):
        place = x + across.tile / 2 - 0.5, y - 8 - (0 if y else tokens.top)
        sheet.write(axes, place, name, face, sheet.TEXT_SIZE, **looks)


def write_largest(
    axes: Axes,
    corners: Sequence[tuple[int, int]],
    values: Sequence[float],
    width: int,
    face: Typeface,
    unit: str = "",
) -> None:
    """Write each tile's largest weight into its lower left corner, where it has room."""
    if width < sheet.points(_ROOM_FOR_NUMBER):
        return
    outline = [withStroke(linewidth=1.6, foreground=sheet.ink(colors.INK))]
    looks: dict[str, Any] = {"gid": "largest", "va": "bottom", "path_effects": outline}
    for (left, bottom), value in zip(corners, values, strict=True):
        number = f"{value:.2g}" if value < 100 else f"{value:.0f}"
        number = (number.removeprefix("0") or "0") + unit
        sheet.write(
            axes, (left + 3, bottom - 3), number, face, sheet.NOTE_SIZE, colors.PAPER, **looks
        )


def _sides(
    item: AttentionMap, share: float = 1.0, name_line: int | None = None
) -> tuple[GridSide, GridSide]:
    """Both sides, with as many pixels a weight, or as few weights a pixel, as the room allows.

    Weights are square; those of a narrow map are up to three times as wide. With a `name_line` of
    so many pixels above each tile, tiles run on in as many rows as make them largest.
    """
    layers, heads, *lengths = item.weights.shape
    gap = 6 if max(layers, heads) <= 16 else 3
    gaps = gap, gap
    tiles = layers, heads
    if name_line is not None:
        gaps = name_line + gap, gap

        def smaller_side(columns: int) -> int:
            return min(_rooms((-(-heads // columns), columns), gaps, share))

        columns = max(range(1, heads + 1), key=lambda count: (smaller_side(count), count))
        tiles = -(-heads // columns), columns
    rooms = _rooms(tiles, gaps, share)
    blocks = [-(-length // room) for length, room in zip(lengths, rooms, strict=True)]
    if lengths[0] == lengths[1]:
        blocks = [max(blocks)] * 2
    scales = [room // length for room, length in zip(rooms, lengths, strict=True)]
    least = max(1, min(scales))
    sides = []
    for count, length, block, scale, one in zip(tiles, lengths, blocks, scales, gaps, strict=True):
        pixels = 3 * least if scale > 3 * least else least
        sides.append(GridSide(count, block, pixels, -(-length // block) * pixels, one))
    return sides[0], sides[1]


def _rooms(tiles: tuple[int, int], gaps: tuple[int, int], share: float) -> list[int]:
    """The pixels of a tile's height and width at most."""
    return [
        max(1, int(share * min(_LARGEST_TILE, (_LONGEST - gap * (count - 1)) // count)))
        for count, gap in zip(tiles, gaps, strict=True)
    ]


def _composite(
    weights: NDArray[np.float32],
    corners: Sequence[tuple[int, int]],
    down: GridSide,
    across: GridSide,
    limits: colors.Limits,
) -> NDArray[np.float32]:
    """All heads in one image, one value for each pixel."""
    low, high = limits
    # Gaps have a value below the scale, which is drawn white. NaN would be three times as slow.
    image = np.full((down.pixels, across.pixels), low - (high - low), dtype=np.float32)
    tiles = colors.block_peaks(weights, down.block, across.block)
    for tile, (left, top) in zip(tiles, corners, strict=True):
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
    calls = [layer_of_call(name) for name in layers]
    name, what = calls[0] or ("", "")
    both = f"layer · {what}" if name else what
    style: Any = {"fontproperties": font, "color": sheet.ink(colors.INK), "labelpad": 3}
    axes.set_ylabel(both if all(calls) else "layer", **style)
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
        [*sheet.bar_ticks(scale, colors.is_beyond(item.weights, scale)).values()]
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
    """The scale of a panel: its own, unless scale= is a range, or shared by those of one unit.

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
