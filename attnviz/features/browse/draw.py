"""A state as lines of text in colours: pure functions, which know no terminal.

Colours are those of pictures; on dark ground a table from dark to light. With sixteen colours or
none, shades are drawn by characters (░▒▓█) and by bold, underlined and reversed text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.cells import cell_len

from attnviz.core.attention_map import Token
from attnviz.core.notices import kind_of
from attnviz.core.registry import axis_name
from attnviz.features.browse.state import (
    KEYS,
    State,
    draws_blocks,
    head_words,
    looks_of,
    overview,
    patch_sides,
    raw_map,
    strongest,
)
from attnviz.renderers import colors
from attnviz.renderers.colors import Color, Limits, colors_of, ink_on
from attnviz.renderers.printable import printable, shorten, two_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

DARK_SHADES = colors.even_path(
    ((0.24, 0.03, 262.0), (0.45, 0.12, 258.0), (0.72, 0.12, 243.0), (0.96, 0.04, 220.0)), 256
)
DARK_SIGNED_SHADES = colors.diverging_path(
    ((0.24, 0.0, 60.0), (0.50, 0.10, 50.0), (0.75, 0.13, 62.0), (0.93, 0.08, 80.0)),
    ((0.24, 0.0, 240.0), (0.50, 0.11, 258.0), (0.72, 0.12, 243.0), (0.94, 0.05, 220.0)),
)
ACCENT: Color = (230, 130, 0)
GLYPHS = " ░▒▓█"
WIDE, ROOMY = 72, 100
"""Columns from which heads and matrix stand side by side, and also where one is moved over."""


class Span(NamedTuple):
    """A piece of a line, and how it looks; None: the terminal's own colour."""

    text: str
    ink: Color | None = None
    ground: Color | None = None
    bold: bool = False
    underline: bool = False
    reverse: bool = False
    dim: bool = False
    act: tuple[Any, ...] = ()


Line = list[Span]


def plain(line: Iterable[Span]) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)


def width_of(line: Iterable[Span]) -> int:
    """The cells of a line."""
    return sum(cell_len(span.text) for span in line)


def fit(line: Iterable[Span], width: int) -> Line:
    """The line cut, or filled with spaces, to exactly so many cells."""
    spans, room = list[Span](), width
    for span in line:
        length = cell_len(span.text)
        if length > room:
            text = shorten(span.text, room)
            spans.append(span._replace(text=text))
            room -= cell_len(text)
            break
        spans.append(span)
        room -= length
    return [*spans, Span(" " * room)] if room else spans


def cell(text: str, width: int) -> str:
    """A text cut or filled to so many cells."""
    text = shorten(text, width)
    return text + " " * (width - cell_len(text))


@lru_cache(maxsize=4096)
def name_of(token: Token, *, patch: bool = False) -> str:
    """A token's text without anything that a terminal would obey."""
    text = printable(token.text)
    return f"patch {text}" if patch and not token.special else text


def screen(state: State) -> list[Line]:
    """Every line of the screen, each exactly as wide as it."""
    width, height = state.size
    top = [title(state), *sentence(state, max(height // 6, 1)), *said_of_query(state)]
    bottom = [status(state), footer(width)]
    rows = max(height - len(top) - len(bottom), 0)
    body = page(state, rows) if state.mode == "page" else panes(state, rows)
    lines = [*top[: max(height - 1, 0)], *body, *bottom]
    return [fit(line, width) for line in lines[:height]]


def title(state: State) -> Line:
    """The model, the head and what it does; at the right the lens and the unit."""
    item, whole = state.item, state.seen
    names = zip(("layer", "head"), item.place(state.layer, state.head), strict=True)
    head = " ".join(axis_name(*name) for name in names)
    parts = [head, head_words(state)]
    if len(whole.maps) > 1:
        parts.insert(0, item.stream)
    unit = "patches" if item.query_side == "picture" else "words" if state.words else "pieces"
    right = f"{state.lens} · {unit}"
    if not state.special:
        right += " · no special"
    if item.is_pooled:
        right += f" · blocks of {item.blocks[0]}"
    right += f" · {len(item.layers) * len(item.heads)} heads"
    name = printable(whole.provenance.title)
    left = [Span(name, bold=True), Span(" · " + " · ".join(filter(None, parts)))]
    width = state.size[0]
    if width_of(left) + cell_len(right) + 2 > width:
        return left
    return [*fit(left, width - cell_len(right)), Span(right, dim=True)]


# Colours of weights


def limits_of_head(state: State) -> Limits:
    """The scale of a head: that of its words, since special tokens often exceed all else."""

    def make() -> Limits:
        words = [
            [at for at, token in enumerate(tokens) if not token.special]
            for tokens in (state.item.query_tokens, state.item.key_tokens)
        ]
        weights = overview(state, state.layer, state.head)
        if weights.shape != state.weights.shape:
            return colors.limits_of(np.nan_to_num(weights), state.item.values)
        if all(words) and any(map(len, words)):
            weights = weights[np.ix_(*words)]
        return colors.limits_of(np.nan_to_num(weights), state.item.values)

    limits: Limits = state.note(("limits", state.stream, state.layer, state.head), make)
    return limits


def shades_on(*, signed: bool, dark: bool) -> NDArray[np.uint8]:
    """The colours of a scale on dark or light ground."""
    if signed:
        return DARK_SIGNED_SHADES if dark else colors.SIGNED_SHADES
    return DARK_SHADES if dark else colors.SHADES


def has_shades(state: State) -> bool:
    """Whether the terminal has colours enough to draw shades by them."""
    return state.colors in ("truecolor", "256")


def shade(state: State, text: str, value: float, limits: Limits, **more: Any) -> Span:
    """A text on the colour of a weight; without colours, by how it is written."""
    there = value == value
    share = min(abs(value) / limits[1], 1.0) if there else 0.0
    if not has_shades(state):
        looks = {"bold": share >= 0.25, "underline": share >= 0.1, "reverse": share >= 0.5}
        return Span(text, **{**looks, **more})
    if there and share < 0.02:
        return Span(text, **{"dim": text.strip()[:1] in (".", "0"), **more})
    step = round(100 * value / limits[1]) if there else None
    ground = ground_of(step, signed=limits[0] < 0, dark=state.dark)
    return Span(text, ink_on(ground), ground, **more)


@lru_cache(maxsize=1024)
def ground_of(step: int | None, *, signed: bool, dark: bool) -> Color:
    """The colour of a share of the scale in hundredths; None: that of no value."""
    value = np.array(np.nan if step is None else step / 100, dtype=np.float32)
    table = shades_on(signed=signed, dark=dark)
    red, green, blue = colors_of(value, (-1.0 if signed else 0.0, 1.0), table).tolist()
    return red, green, blue


def stretch(cells: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """The cells repeated, or some left out, to so many rows and columns."""
    sides = zip(cells.shape, (rows, columns), strict=False)
    return np.asarray(cells[np.ix_(*(np.arange(to) * n // to for n, to in sides))])


def resample(weights: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
    """The matrix in so many rows and columns: blocks by their largest weight, or cells repeated."""
    down, across = (
        max(-(-n // to), 1) for n, to in zip(weights.shape, (rows, columns), strict=True)
    )
    return stretch(colors.block_peaks(weights, down, across), rows, columns)


def picture_lines(pixels: NDArray[np.uint8]) -> list[Line]:
    """Pixels (an even number of rows, columns, 3) as half blocks, two rows a line."""
    lines = []
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        line, last = list[Span](), None
        for one, two in zip(upper, lower, strict=True):
            if last == (one, two):
                line[-1] = line[-1]._replace(text=line[-1].text + "▀")
            else:
                line.append(Span("▀", tuple(one), tuple(two)))
            last = (one, two)
        lines.append(line)
    return lines


def shades(state: State, weights: NDArray[np.float32], limits: Limits) -> list[Line]:
    """A matrix of an even number of rows as cells: half blocks, or characters of five shades."""
    if has_shades(state):
        table = shades_on(signed=limits[0] < 0, dark=state.dark)
        return picture_lines(colors_of(weights, limits, table))
    sizes = np.maximum(*(np.nan_to_num(np.abs(half)) for half in (weights[::2], weights[1::2])))
    levels = np.ceil(np.clip(sizes / limits[1], 0, 1) * 4 - 0.12).astype(int).clip(0, 4)
    return [[Span("".join(GLYPHS[level] for level in row))] for row in levels.tolist()]


# The sentence, and where the chosen token looks


def sentence(state: State, most: int) -> list[Line]:
    """The text shaded by where the chosen token looks; of a pair, the target above the source."""
    item = state.item
    if item.query_side == "picture":
        return []
    sides = (item.query_side, len(item.query_tokens)), (item.key_side, len(item.key_tokens))
    same = sides[0] == sides[1] and not state.over_picture
    queries = _flow(state, item.query_tokens, state.query, state.row if same else None, most)
    if same or state.over_picture:
        return _part(queries, most)
    lines = _part(queries, max(most // 2, 1))
    keys = _flow(state, item.key_tokens, None, state.row, most)
    return [*lines, *_part(keys, max(most - len(lines), 1))]


def _flow(
    state: State,
    tokens: Sequence[Token],
    query: int | None,
    row: NDArray[np.float32] | None,
    most: int,
) -> tuple[list[Line], int]:
    """Tokens in lines, and the line of the query one, else of the strongest."""
    width, limits = state.size[0], limits_of_head(state)
    aim = query if query is not None else state.aim
    # Only what can be near the wanted token is laid out: a text may have thousands.
    near = (most + 1) * width // 3
    first = max(aim - near, 0)
    lines, room, at_line = [list[Span]()], width, 0
    for at in range(first, min(aim + near, len(tokens))):
        text = f" {shorten(name_of(tokens[at]), width - 2)} "
        if cell_len(text) > room:
            lines.append([])
            room = width
        more: dict[str, Any] = {"act": ("query" if query is not None else "key", at)}
        if at == query:
            text = f"▸{text[1:]}" if has_shades(state) else f"[{text[1:-1]}]"
            more |= {"bold": True}
        if at == query or (row is not None and at == state.key):
            more |= {"underline": True}
        value = 0.0 if row is None else float(row[at])
        lines[-1].append(shade(state, text, value, limits, **more))
        room -= cell_len(text)
        at_line = len(lines) - 1 if at == aim else at_line
    return lines, at_line


def _part(flow: tuple[list[Line], int], most: int) -> list[Line]:
    """So many lines around the one that matters."""
    lines, at = flow
    first = min(max(at - most // 2, 0), max(len(lines) - most, 0))
    return lines[first : first + most]


def said_of_query(state: State) -> list[Line]:
    """Where the chosen token looks, in words; on a high screen also who looks at it."""
    item, patch = state.item, state.item.key_side == "picture"
    query = name_of(item.query_tokens[state.query], patch=item.query_side == "picture")
    if state.key is not None:
        key = name_of(item.key_tokens[state.key], patch=patch)
        line = [Span(f" {query} → {key} {two_digits(float(state.row[state.key]))}", bold=True)]
    else:
        verb = "looks at" if item.values == "share" else "goes with"
        looks = _links(state.row, item.key_tokens, patch=patch)
        line = [Span(f" {query} ", bold=True), Span(f"{verb} {looks}")]
    lines = [line]
    if state.size[1] >= 30 and item.query_side == item.key_side and not patch:
        column = state.weights[:, min(state.query, state.weights.shape[1] - 1)]
        looks = _links(column, item.query_tokens)
        lines.append([Span(f" {query} ", bold=True), Span(f"is looked at by {looks}")])
    return lines


def _links(row: NDArray[np.float32], tokens: Sequence[Token], *, patch: bool = False) -> str:
    places = strongest(row, 6)
    places = [at for at in places if abs(row[at]) >= 0.005] or places[:1]
    words = [f"{name_of(tokens[at], patch=patch)} {two_digits(float(row[at]))}" for at in places]
    return " · ".join(words) or "nothing"


# The panes


def panes(state: State, rows: int) -> list[Line]:
    """Heads and matrix side by side, or of a narrow screen the one that the arrows move over."""
    width = state.size[0]
    right = over_picture if state.over_picture else matrix
    if width < (ROOMY if state.matrix and not state.over_picture else WIDE):
        lines = right(state, rows, width) if state.matrix else heads(state, rows, width)
        return [fit(line, width) for line in (*lines, *[[]] * rows)][:rows]
    shape = state.item.weights.shape
    share = width * 11 // 20
    left = min(share, 10 + shape[1] * 17)
    lines = heads(state, rows, left)
    others = right(state, rows, width - left - 3)
    rule = Span(" │ ", dim=True)
    pairs = zip((*lines, *[[]] * rows), (*others, *[[]] * rows), strict=False)
    return [[*fit(one, left), rule, *fit(two, width - left - 3)] for one, two in pairs][:rows]


class HeadGrid(NamedTuple):
    """Where thumbnails stand: their cells, and the first layer and head that are seen."""

    wide: int
    high: int
    gap: int
    label: int
    layers: range
    heads: range


def grid_of(state: State, rows: int, width: int) -> HeadGrid:
    """The largest size at which all thumbnails fit, else small ones around the chosen head."""
    layers, heads_count = state.item.weights.shape[:2]
    label = max(max(map(cell_len, map(_layer_name, state.item.layers))), 1)
    # A line between layers is worth smaller thumbnails, but for the smallest.
    sizes = [(wide, 1) for wide in (16, 14, 12, 10, 8, 6, 5)]
    for wide, gap in (*sizes, *((wide, 0) for wide in (8, 6, 5, 4, 3))):
        high = max(wide // 2, 1)
        across = max((width - label - 1) // (wide + 1), 1)
        down = max((rows - 1 + gap) // (high + gap), 1)
        if across >= heads_count and down >= layers:
            break
    seen_layers = _around(state.layer, down, layers)
    return HeadGrid(wide, high, gap, label, seen_layers, _around(state.head, across, heads_count))


def _layer_name(name: str) -> str:
    return shorten(printable(name), 8)


def _around(place: int, count: int, of: int) -> range:
    """So many places around one, of all."""
    first = min(max(place - count // 2, 0), max(of - count, 0))
    return range(first, min(first + count, of))


def thumbnail(state: State, layer: int, head: int, wide: int, high: int) -> list[Line]:
    """One head in a few cells; those of another size are forgotten."""
    store = state.note(("thumbnails", state.stream), dict)
    if store.get("size") != (wide, high):
        store.clear()
        store["size"] = wide, high
    if (layer, head) not in store:
        weights = overview(state, layer, head)
        if state.over_picture and weights.shape[1] > 8:
            weights = looks_of(state.item, layer, head)
        small = resample(weights, 2 * high, wide)
        limits = colors.limits_of(np.nan_to_num(small), state.item.values)
        store[layer, head] = shades(state, small, limits)
    lines: list[Line] = store[layer, head]
    return lines


def is_off(state: State, layer: int, head: int) -> bool:
    """Whether a head is switched off."""
    place, item = state.item.place(layer, head), raw_map(state)
    own = [one for one in state.off.heads if one.stream == item.stream]
    return place in [(one.layer, item.heads[one.head]) for one in own]


def heads(state: State, rows: int, width: int) -> list[Line]:
    """The thumbnails of layers and heads, with the chosen one between marks."""
    grid = grid_of(state, rows, width)
    names = [cell(printable(state.item.heads[head]), grid.wide) for head in grid.heads]
    first = [Span(" " * (grid.label + 1)), Span(" ".join(names), dim=True)]
    lines = [first]
    for layer in grid.layers:
        pictures = [thumbnail(state, layer, head, grid.wide, grid.high) for head in grid.heads]
        for row in range(grid.high):
            label = _layer_name(state.item.layers[layer]) if row == 0 else ""
            line = [
                Span(f"{label:>{grid.label}}", dim=layer != state.layer, bold=layer == state.layer)
            ]
            for head, picture in zip(grid.heads, pictures, strict=True):
                here, after = (
                    (layer, one) == (state.layer, state.head) for one in (head, head - 1)
                )
                line.append(_mark(state, "▐" if here else "▌" if after else " "))
                cells = picture[row]
                if is_off(state, layer, head):
                    cells = [Span("╳" * grid.wide, dim=True)]
                line += [span._replace(act=("head", layer, head)) for span in cells]
            ends = (layer, grid.heads[-1]) == (state.layer, state.head)
            lines.append([*line, _mark(state, "▌" if ends else " ")])
        lines += [[]] * grid.gap
    if (len(grid.layers), len(grid.heads)) < state.item.weights.shape[:2]:
        first[0] = Span("…".ljust(grid.label + 1), dim=True)
    return lines[:rows]


def _mark(state: State, mark: str) -> Span:
    if mark == " ":
        return Span(mark)
    if state.colors is None:
        return Span({"▐": "[", "▌": "]"}[mark], bold=True)
    return Span(mark, ACCENT if has_shades(state) else None, bold=True)


def matrix(state: State, rows: int, width: int) -> list[Line]:
    """The matrix of the head: numbers around the chosen link, or all of it in blocks."""
    return _blocks(state, rows, width) if draws_blocks(state) else _numbers(state, rows, width)


def _numbers(state: State, rows: int, width: int) -> list[Line]:
    item, limits = state.item, limits_of_head(state)
    queries = _around(state.query, rows - 1, len(item.query_tokens))
    names = {at: name_of(item.query_tokens[at]) for at in queries}
    label = min(max(map(cell_len, names.values()), default=0), 12, max(width // 4, 3))
    near, room = _around(state.aim, width // 4 + 1, len(item.key_tokens)), width - label - 2
    lengths = {at: cell_len(name_of(item.key_tokens[at])) for at in near}
    for most in (12, 10, 8, 7, 6, 5):  # names as long as all columns have room for
        widths = {at: min(max(length, 3), most) + 1 for at, length in lengths.items()}
        if sum(widths.values()) <= room:
            break
    columns = _columns(widths, state.aim, room)
    names_of_columns = [_column_name(state, at, widths[at]) for at in columns]
    more_left, more_right = columns[0] > 0, columns[-1] + 1 < len(item.key_tokens)
    if more_right:
        end = names_of_columns[-1]
        names_of_columns[-1] = end._replace(text=f"{end.text[:-1]}›")
    lines = [[Span(f"{' ' * (label + 1)}{'‹' if more_left else ' '}"), *names_of_columns]]
    for query, name in names.items():
        here = query == state.query
        text = f"{'▸' if here else ' '}{cell(name, label)} "
        line = [Span(text, bold=here, act=("query", query))]
        for at in columns:
            value = float(state.weights[query, at])
            text = two_digits(value).rjust(widths[at] - 1) + " "
            more: dict[str, Any] = {"act": ("cell", query, at)}
            if here and at == state.key:
                more |= {"bold": True, "underline": True}
            line.append(shade(state, text, value, limits, **more))
        lines.append(line)
    return lines


def _column_name(state: State, at: int, width: int) -> Span:
    text = shorten(name_of(state.item.key_tokens[at]), width - 1)
    text = " " * (width - 1 - cell_len(text)) + text + " "
    return Span(text, bold=at == state.key, dim=at != state.key)


def _columns(widths: Mapping[int, int], aim: int, room: int) -> range:
    """The columns that have room, on both sides of one."""
    first, last, count = aim, aim, -1
    while last - first > count:
        count = last - first
        if last in widths and widths[last] <= room:
            room, last = room - widths[last], last + 1
        if first - 1 in widths and widths[first - 1] <= room:
            room, first = room - widths[first - 1], first - 1
    return range(first, max(last, first + 1))


def _blocks(state: State, rows: int, width: int) -> list[Line]:
    queries, keys = state.weights.shape
    high, wide = min(rows - 1, max(-(-queries // 2), 1)), min(width - 2, keys)
    high, wide = max(min(high, max(wide // 2, 1) if queries == keys else high), 1), max(wide, 1)
    if queries == keys:
        wide = min(wide, 2 * high)
    key = ("blocks", state.stream, state.layer, state.head, high, wide)

    def make() -> list[Line]:
        small = resample(overview(state, state.layer, state.head), 2 * high, wide)
        return shades(state, small, limits_of_head(state))

    at = state.query * 2 * high // queries // 2
    mark = _mark(state, "▐")
    top = state.aim * wide // keys
    lines: list[Line] = [[Span(f"{' ' * (top + 1)}▾", bold=True)]]
    for number, line in enumerate(state.note(key, make)):
        acts = with_acts(line, "block", number, high, wide)
        lines.append([mark if number == at else Span(" "), *acts])
    return lines


def with_acts(line: Line, kind: str, number: int, high: int, wide: int) -> Line:
    """The spans with what a click on them does: their line and first cell, of so many."""
    start, spans = 0, list[Span]()
    for span in line:
        spans.append(span._replace(act=(kind, number, start, high, wide)))
        start += len(span.text)
    return spans


def over_picture(state: State, rows: int, width: int) -> list[Line]:
    """The picture under the weights of its patches, from the chosen query."""
    looks = looks_of(state.item, state.layer, state.head, state.query)
    down, across = looks.shape
    pixels = state.pictures.get(state.item.stream)
    ratio = across / down if pixels is None else pixels.shape[1] / pixels.shape[0]
    high = max(min(rows, int(width / ratio / 2)), 1)
    wide = max(min(int(2 * high * ratio), width), 1)
    values = stretch(looks, 2 * high, wide)
    limits = colors.limits_of(np.nan_to_num(looks), state.item.values)
    if not has_shades(state) or pixels is None:
        lines = shades(state, values, limits)
    else:
        cover = (0.9 * np.clip(np.abs(np.nan_to_num(values)) / limits[1], 0, 1) ** 0.8)[..., None]
        glow = colors_of(values, limits, colors.GLOW if limits[0] >= 0 else None)
        mix = (1 - cover) * stretch(pixels, 2 * high, wide) + cover * glow
        lines = picture_lines(np.rint(mix).astype(np.uint8))
    lines = [with_acts(line, "patch", n, high, wide) for n, line in enumerate(lines)]
    return _with_patch(state, lines, (high, wide), (down, across))


def _with_patch(
    state: State, lines: list[Line], size: tuple[int, int], patches: tuple[int, int]
) -> list[Line]:
    """The lines with a mark on the patch that looks."""
    first = patch_sides(state.item)[2]
    if state.item.query_side != "picture" or state.query < first:
        return lines
    row, column = divmod(state.query - first, patches[1])
    at = (2 * row + 1) * size[0] // (2 * patches[0]), (2 * column + 1) * size[1] // (2 * patches[1])
    cells = [span._replace(text=one) for span in lines[at[0]] for one in span.text]
    ground = cells[at[1]].ground
    cells[at[1]] = Span("◉", ground and ink_on(ground), ground, bold=True)
    return [*lines[: at[0]], cells, *lines[at[0] + 1 :]]


def page(state: State, rows: int) -> list[Line]:
    """A text over the panes: keys, or why a head looks there."""
    wide = state.size[0] - 2
    lines = [part for text in state.page for part in _wrap(text, wide)]
    first = min(state.scroll, max(len(lines) - rows, 0))
    return [[Span(" " + text)] for text in (lines + [""] * rows)[first : first + rows]]


def _wrap(text: str, width: int) -> list[str]:
    """A text in lines, broken at spaces; the rest of a line stands under its beginning."""
    lines, indent = [], " " * min(len(text) - len(text.lstrip()) + 2, 8)
    while cell_len(text) > width:
        head = shorten(text, width + 1)[:-1]
        cut = head.rfind(" ") if " " in head[width // 2 :] else len(head)
        lines.append(text[:cut])
        text = indent + text[cut:].lstrip()
    return [*lines, text]


# The last two lines


def status(state: State) -> Line:
    """What is written, done or said."""
    if state.mode in ("edit", "save"):
        names = ["text"] if len(state.lines) == 1 else ["source", "target"]
        caret, line = state.caret, state.lines[state.line]
        text = "".join(one if one.isprintable() else "?" for one in line)  # each in its place
        start = f" {'save as' if state.mode == 'save' else names[state.line]}: "
        room = max(state.size[0] - cell_len(start) - 2, 1)
        first = max(caret - room, 0)
        before, at, after = text[first:caret], text[caret : caret + 1] or " ", text[caret + 1 :]
        return [Span(start, bold=True), Span(before), Span(at, reverse=True), Span(after)]
    if state.busy:
        return [Span(f" {state.busy}", bold=True), Span(" · esc ends it", dim=True)]
    if state.message:
        return [Span(f" {printable(state.message)}", bold=True)]
    if state.effect:
        return [Span(f" {state.effect}", bold=True)]
    notes = state.seen.provenance.notes
    return [Span(f" {printable(notes[0])}", dim=True)] if notes and kind_of(notes[0]) else []


def footer(width: int) -> Line:
    """The keys that matter, as many as have room; the list of all is always named."""
    line: Line = []
    last = _key("?", "keys") + _key("q", "quit")
    for key, word, _ in KEYS[:-2]:
        more = _key(key, word)
        if width_of([*line, *more, *last]) > width:
            break
        line += more
    return [*line, *last]


def _key(key: str, word: str) -> Line:
    act = ("press", key.replace("↑↓", "down").replace("←→", "right"))
    return [Span(f" {key} ", bold=True, act=act), Span(word, dim=True, act=act)]
