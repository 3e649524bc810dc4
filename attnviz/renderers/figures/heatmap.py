"""One matrix of weights as a heat map: rows are queries, columns are keys."""

import math
from itertools import groupby
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from numpy.typing import NDArray

from attnviz.core.attention_map import IMPLIED, SIMILARITY, AttentionMap, Token
from attnviz.core.options import INDEXER
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import kind_edges, kinds_in_words
from attnviz.renderers import colors, look
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface
from attnviz.renderers.figures.places import TextPlaces, places_of
from attnviz.renderers.printable import UNKNOWN, printable, shorten_words

_LABEL_CELLS = 18
_WORD_CELLS, _WORD_CELLS_IN_PAPER = 22, 12  # of a place's first words
_PITCH = 1.02  # least distance of labels as a multiple of their size, so that they do not touch
_LONGEST = 1500  # pixels of a long side at most; short sides are shorter and have larger cells
_READABLE = 22  # pixels of a cell with room for a label beside it
_STRIP = 130  # pixels of a spectrogram above the columns, with the gap below it
_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)
_STEPS = (1, 2, 3, 4, 5, 10, 15, 20, 25, 50, 100, 200, 250, 500)


@dataclass(frozen=True, slots=True)
class TokenAxis:
    """The layout of the tokens of one side."""

    tokens: tuple[Token, ...]
    texts: tuple[str, ...]
    block: int
    cell: int
    size: float
    step: int
    named_places: tuple[int, ...]
    note: str = ""  # which tokens are named, where these are not all

    @property
    def pixels(self) -> int:
        return -(-len(self.tokens) // self.block) * self.cell

    @property
    def spacing(self) -> float:
        return self.cell / self.block

    @property
    def pad(self) -> int:
        """Pixels between an image and its labels; more with tick marks."""
        return 8 if self.step == 1 else 16

    def widest(self, face: Typeface) -> float:
        return max(
            face.width(self.texts[i], self.size, bold=self.tokens[i].label is not None)
            for i in self.named_places
        )


def label_words(token: Token) -> tuple[str, ...]:
    """The words of a token on an axis: its text and its label, if it has one."""
    parts = (token.text, token.label) if token.label else (token.text,)
    # A very long token is cut before fonts are searched for it, and once more as drawn.
    return tuple(shorten_words(printable(part), _LABEL_CELLS) for part in parts)


def axis_label(token: Token, face: Typeface) -> str:
    """The name of a token on an axis; a very long one is cut."""
    return " · ".join(
        shorten_words(face.drawable(word), _LABEL_CELLS) for word in label_words(token)
    )


def axes_of(
    queries: TextPlaces,
    keys: TextPlaces,
    face: Typeface,
    longest: int = _LONGEST,
    words: int = _WORD_CELLS,
) -> tuple[TokenAxis, TokenAxis]:
    """The layout of both sides; cells may be up to twice as long as wide.

    TextPlaces of long sides are named by so many cells of `words`.
    """
    counts = len(queries.tokens), len(keys.tokens)
    down, across = (-(-count // longest) for count in counts)
    height = max(1, longest // (counts[0] // down + 13))
    width = max(1, longest // (counts[1] // across + 13))
    high, wide = min(height, max(2 * width, _READABLE)), min(width, max(2 * height, _READABLE))
    return (
        _axis(queries, "query", (down, high), face, words),
        _axis(keys, "key", (across, wide), face, words),
    )


def _axis(
    places: TextPlaces, what: str, pixels: tuple[int, int], face: Typeface, words: int
) -> TokenAxis:
    tokens, (block, cell) = places.tokens, pixels
    spacing = cell / block
    size = min(sheet.TEXT_SIZE, max(sheet.SMALLEST, sheet.size_of(0.8 * spacing)))
    line = sheet.points(_PITCH * size)
    step = next((step for step in _STEPS if step * spacing >= line), len(tokens))
    texts = [axis_label(token, face) for token in tokens]
    labels, note = tuple(range(len(tokens))), ""
    if step > 1:
        apart = line / spacing
        positions: list[int] = []
        with_label = (i for i, token in enumerate(tokens) if token.label)
        for position in (*with_label, *(places.begins or range(0, len(tokens), step))):
            if all(abs(position - other) >= apart for other in positions):
                positions.append(position)
        labels = tuple(sorted(positions))
        note = places.note or f"every {_ordinal(step)} {what} is named"
    for place in labels:
        if places.is_part and step == 1:
            texts[place] = f"{places.number(place)} {texts[place]}"
        elif step > 1 and places.text and not (tokens[place].label or tokens[place].special):
            texts[place] = face.drawable(places.name(place, words))
    return TokenAxis(tokens, tuple(texts), block, cell, size, step, labels, note)


def label_angle(columns: TokenAxis, face: Typeface) -> int:
    """The angle of column labels: 0 if they fit, 45 if their lines do, else 90."""
    apart = min(np.diff(columns.named_places), default=columns.step)
    spacing = apart * columns.spacing
    if columns.widest(face) + sheet.points(0.5 * columns.size) <= spacing:
        return 0
    return 45 if spacing >= sheet.line_height(columns.size) * 1.3 else 90


def label_room(columns: TokenAxis, angle: int, face: Typeface) -> tuple[int, int]:
    """Pixels that turned labels take above the columns, and beyond the last one."""
    turn, widest = np.radians(angle), columns.widest(face)
    height = widest * np.sin(turn) + sheet.line_height(columns.size) * np.cos(turn)
    return int(height) + columns.pad, int(widest * np.cos(turn)) if angle else 0


def _at_round_times(columns: TokenAxis, face: Typeface) -> TokenAxis | None:
    """Columns of a recording named at 0.5, 1, … seconds; None where they are no times."""
    try:
        times = np.array([float(text) for text in columns.texts])
    except ValueError:
        return None
    for step in _SECONDS:
        marks, first = np.unique(np.floor(times / step + 1e-6), return_index=True)
        by_place = dict(zip(first.tolist(), (f"{mark * step:.4g}" for mark in marks), strict=True))
        widest = max(face.width(text, sheet.TEXT_SIZE) for text in by_place.values())
        room = columns.spacing * np.diff(first).min(initial=len(times))
        if room >= widest + sheet.points(sheet.TEXT_SIZE):
            break
    texts = tuple(by_place.get(place, "") for place in range(len(times)))
    return replace(columns, texts=texts, size=sheet.TEXT_SIZE, step=1, named_places=tuple(by_place))


def thinning_notes(rows: TokenAxis, columns: TokenAxis) -> tuple[str, ...]:
    """A note on the tokens and weights that the picture does not show."""
    notes = list(dict.fromkeys(filter(None, (rows.note, columns.note))))
    if rows.step == columns.step > 1 and len(notes) == 2:
        notes = [f"every {_ordinal(rows.step)} token is named"]
    if max(rows.block, columns.block) > 1:
        notes.append(f"each pixel shows the strongest of {rows.block} × {columns.block} weights")
    return ("; ".join(notes),) if notes else ()


def cell_note(item: AttentionMap) -> str:
    """What a cell of a map of blocks is; empty where it is one weight."""
    if not item.is_pooled:
        return ""
    rows, columns = (f"{n} tokens" if n > 1 else "one token" for n in item.blocks)
    return f"a cell: what {rows} give to {columns}, the mean of its rows and the sum of its columns"


def _ordinal(count: int) -> str:
    return f"{count}" + {2: "nd", 3: "rd"}.get(count, "th")


QUERY_AXIS, KEY_AXIS = "query (attends)", "key (attended)"
IMPLIED_AXES = "output", "input"
OUTPUT_AXES = "output", "attribution"
_MOST_NUMBERS = 400
_LARGEST_NUMBER = 8.0


def axis_names(item: AttentionMap) -> tuple[str, str]:
    """The names of a map's rows and columns."""
    if item.stream == IMPLIED:
        return IMPLIED_AXES
    if item.stream == SIMILARITY:
        return "query", "document"
    if item.stream == INDEXER:
        return "query (scores)", "key (scored)"
    if kind_edges(item.key_tokens):  # a line stands between the kinds
        runs = [[*run] for _, run in groupby(item.key_tokens, lambda token: token.kind)]
        words = " | ".join(kinds_in_words({run[0].kind: len(run)}) for run in runs)
        return QUERY_AXIS, f"{KEY_AXIS}: {words}"
    return OUTPUT_AXES if item.query_side == "output" else (QUERY_AXIS, KEY_AXIS)


@sheet.own_settings()
def heatmap(
    attention_map: AttentionMap,
    *,
    title: str,
    subtitle: str = "",
    second_part: tuple[int | None, int | None] = (None, None),
    limits: colors.Limits | None = None,
    fit: sheet.Fit = sheet.FREE,
    above: NDArray[np.float32] | None = None,
    texts: tuple[str, str] = ("", ""),
) -> Figure:
    """One matrix of weights as a heat map, with numbers in the cells if they fit.

    If there is too little room, labels name places of the `texts` (see `places`), else tokens at
    equal steps, and each pixel shows its strongest weight; notes say so.

    Lines mark the row and the column where a second part begins (`second_part`). A spectrogram,
    shape (bands from low to high, time), is drawn `above` the columns.

    Raises:
        ValueError: a map of several layers or heads.
    """
    if attention_map.weights.shape[:2] != (1, 1):
        raise ValueError(f"a heat map shows one head, not shape {attention_map.weights.shape}")
    weights = attention_map.weights[0, 0]
    sides = (attention_map.query_tokens, attention_map.key_tokens)
    words = (word for side in sides for token in side for word in label_words(token))
    face = typeface([title, subtitle, attention_map.unit, *words])
    longest = int(_LONGEST * fit.share)
    if look.look_option("values") == "yes" and not fit.width:
        longest = max(
            longest, min((max(map(len, sides)) + 13) * int(sheet.points(13)), 4 * _LONGEST)
        )
    queries, keys = (places_of(attention_map, axis, text) for axis, text in enumerate(texts))
    rows, columns = axes_of(
        queries, keys, face, longest, _WORD_CELLS_IN_PAPER if fit.width else _WORD_CELLS
    )
    time_axis = None if above is None else _at_round_times(columns, face)
    columns = time_axis or columns
    angle = 0 if time_axis else label_angle(columns, face)
    labels, overhang = label_room(columns, angle, face)
    name_room = int(sheet.line_height(sheet.TEXT_SIZE)) + 8
    strip = 0 if above is None else _STRIP
    limits = limits or colors.picture_scale(attention_map)
    numbers = cell_texts(weights, limits, rows, columns, face)
    marks = (
        *(cell_note(attention_map), colors.no_value_note(attention_map)),
        unwritten_note(weights, limits) if numbers else "",
    )
    frame = sheet.Frame(
        title,
        subtitle,
        (*thinning_notes(rows, columns), *filter(None, marks)),
        attention_map.unit,
        limits,
        face,
        left=int(rows.widest(face)) + rows.pad + 10 + name_room,
        top=labels + 6 + name_room + strip,
        right=overhang,
        fit=fit,
        beyond=colors.is_beyond(weights, limits),
    )
    image = np.clip(colors.block_peaks(weights, rows.block, columns.block), *limits)
    figure, axes = sheet.frame_image(image, columns.pixels, rows.pixels, frame)
    axes.images[0].set_extent((-0.5, len(sides[1]) - 0.5, len(sides[0]) - 0.5, -0.5))
    label_axes(axes, rows, columns, angle, face)
    if above is not None:
        axes.tick_params(axis="x", pad=columns.pad * 72 / DPI + strip * 72 / DPI, length=0)
        _draw_above(axes, above, rows.pixels)
    names = axis_names(attention_map)
    if above is not None:
        names = names[0], f"{names[1]}, in seconds"
    name_axes(axes, names, frame, (columns.pixels, rows.pixels))
    draw_borders(axes, rows, columns)
    looks: dict[str, Any] = {"color": sheet.ink(colors.INK), "linewidth": 0.8, "clip_on": False}
    row, column = second_part
    ends = -0.5, len(rows.tokens) - 0.5
    for edge in kind_edges(columns.tokens):
        axes.vlines(edge - 0.5, *ends, gid="kinds", **looks | {"linewidth": 1.6})
    if row:
        axes.hlines(row - 0.5, -0.5, len(columns.tokens) - 0.5, gid="division", **looks)
    if column:
        axes.vlines(column - 0.5, *ends, gid="division", **looks)
    if numbers:
        write_cells(axes, weights, numbers[0], limits, face.font(numbers[1]))
    return figure


def _draw_above(axes: Axes, bands: NDArray[np.float32], height: int) -> None:
    place, gap = axes.get_position(), 6
    pixel = place.height / height
    figure = axes.get_figure()
    assert figure is not None
    strip = figure.add_axes(
        (place.x0, place.y1 + gap * pixel, place.width, (_STRIP - gap) * pixel), label="spectrogram"
    )
    loudness = float(bands.min()), float(bands.max())
    sheet.draw_image(strip, bands, loudness, cmap="Greys", origin="lower")


def cell_number(value: float, digits: int) -> str:
    """A weight in a cell: .46 for 0.46, −.20 below 0, – for NaN."""
    if math.isnan(value):
        return UNKNOWN
    size = abs(value)
    if size >= 1000:
        text = f"{size:.0e}".replace("e+0", "e")
    elif size >= 10:
        text = f"{size:.0f}"
    else:
        text = f"{size:.{digits}f}"
        text = text[1:] if text.startswith("0.") else text
        text = "1" if size <= 1 and text.startswith("1.") else text
    return f"−{text}" if value < 0 else text


def label_axes(axes: Axes, rows: TokenAxis, columns: TokenAxis, angle: int, face: Typeface) -> None:
    """Write tokens beside the rows and above the columns."""
    upright = {"ha": "center", "va": "bottom"}
    oblique = {"ha": "left", "va": "center", "rotation": angle, "rotation_mode": "anchor"}
    axes.xaxis.tick_top()
    for set_ticks, axis, looks in (
        (axes.set_yticks, rows, {}),
        (axes.set_xticks, columns, oblique if angle else upright),
    ):
        words = [axis.texts[i] for i in axis.named_places]
        font = face.font(axis.size)
        set_ticks(axis.named_places, words, fontproperties=font, parse_math=False, **looks)
    sides: tuple[tuple[Literal["x", "y"], TokenAxis], ...] = (("y", rows), ("x", columns))
    for which, axis in sides:
        mark = 0.0 if axis.step == 1 else 2.5
        gap = axis.pad * 72 / DPI - mark
        axes.tick_params(
            axis=which, length=mark, width=0.5, pad=gap, color=sheet.ink(colors.SPECIAL)
        )
        texts = axes.get_yticklabels() if which == "y" else axes.get_xticklabels()
        for text, position in zip(texts, axis.named_places, strict=True):
            token = axis.tokens[position]
            text.set_color(
                sheet.ink(
                    colors.LABELLED
                    if token.label
                    else colors.SPECIAL
                    if token.special
                    else colors.INK
                )
            )
            if token.label:
                text.set_fontweight("bold")


def name_axes(
    axes: Axes, names: tuple[str, str], frame: sheet.Frame, size: tuple[int, int], gap: int = 2
) -> None:
    """Name the rows and the columns of an image of so many pixels, beyond their labels."""
    looks: dict[str, Any] = {
        "fontproperties": frame.face.font(sheet.TEXT_SIZE),
        "color": sheet.ink(colors.INK),
    }
    axes.xaxis.set_label_position("top")
    axes.set_ylabel(names[0], rotation=90, ha="center", va="center", **looks)
    axes.yaxis.set_label_coords(
        (gap + sheet.points(sheet.TEXT_SIZE) / 2 - frame.left) / size[0], 0.5
    )
    axes.set_xlabel(names[1], va="top", **looks)
    axes.xaxis.set_label_coords(0.5, 1 + (frame.top - gap) / size[1])


def draw_borders(axes: Axes, rows: TokenAxis, columns: TokenAxis) -> None:
    """Draw thin white lines between cells, unless these are too small."""
    if min(rows.spacing, columns.spacing) < 16:
        return
    looks: dict[str, Any] = {"colors": sheet.ink(colors.PAPER), "linewidth": 0.5}
    edges = [np.arange(1, len(axis.tokens)) - 0.5 for axis in (rows, columns)]
    axes.hlines(edges[0], -0.5, len(columns.tokens) - 0.5, **looks)
    axes.vlines(edges[1], -0.5, len(rows.tokens) - 0.5, **looks)


def decimals_of(limits: colors.Limits) -> int:
    """Decimals that show two digits of the largest value of a scale; of shares up to 1 also two."""
    top = max(map(abs, limits))
    return 2 if top == 1 else max(1 - math.floor(math.log10(top)), 0)


def half_step(limits: colors.Limits) -> float:
    """The size below which a value is written as 0."""
    return float(0.5 * 10.0 ** -decimals_of(limits))


def cell_texts(
    values: NDArray[Any], limits: colors.Limits, rows: TokenAxis, columns: TokenAxis, face: Typeface
) -> tuple[list[list[str]], float] | None:
    """What stands in each cell, and its size in points; None where that would tell nothing apart.

    With values=auto numbers have two digits of the largest one and are as large as the smallest
    text. What rounds to 0 stays empty (see `unwritten_note`).

    Raises:
        OutputError: with --style values=yes the numbers have no room.
    """
    choice = look.look_option("values")
    if choice == "no" or (choice == "auto" and values.size > _MOST_NUMBERS):
        return None
    digits = decimals_of(limits)
    texts = [
        ["" if abs(value) < half_step(limits) else cell_number(value, digits) for value in row]
        for row in values.tolist()
    ]
    widest = max((face.width(text, _LARGEST_NUMBER) for row in texts for text in row), default=0)
    room = _LARGEST_NUMBER * 0.86 * columns.cell / max(widest, 1), sheet.size_of(0.8 * rows.cell)
    size = min(_LARGEST_NUMBER, *room)
    if size >= sheet.SMALLEST:
        return texts, size
    if choice == "auto":
        return None
    raise sheet.no_room("--style values=yes: the numbers do not fit their cells")


def unwritten_note(values: NDArray[Any], limits: colors.Limits) -> str:
    """A note on the cells that would be written as 0; empty if there are none."""
    sizes, half = np.abs(values), half_step(limits)
    if not (sizes < half).any():
        return ""
    bound = f"within ±{half:g}" if limits[0] < 0 else f"below {half:g}"
    return f"cells without a number: {bound}".replace("0.", ".")


def write_cells(
    axes: Axes,
    values: NDArray[Any],
    texts: list[list[str]],
    limits: colors.Limits,
    font: FontProperties,
) -> None:
    """Write a text in each cell, in the ink that is easiest to read on its colour."""
    looks: dict[str, Any] = {"fontproperties": font, "ha": "center", "va": "center_baseline"}
    for (i, j), value in np.ndenumerate(values):
        if text := texts[i][j]:
            axes.text(
                j, i, text, color=sheet.ink(colors.ink_on(colors.color_of(value, limits))), **looks
            )
