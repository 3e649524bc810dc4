"""A state as lines of text in colours: pure functions, which know no terminal.

Colours are those of pictures; on dark ground a table from dark to light. With sixteen colours or
none, shades are drawn by characters (░▒▓█) and by bold, underlined and reversed text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.cells import cell_len

from attnviz.analyses.kv_groups import groups_of, sizes_of
from attnviz.core.attention_map import Token
from attnviz.core.notices import kind_of
from attnviz.core.registry import axis_name
from attnviz.features.browse.keys import KEYS, Act
from attnviz.features.browse.state import State, head_words, looks_of, overview
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
THUMBNAILS = (*((wide, 1) for wide in (16, 14, 12, 10, 8, 6, 5)), (8, 0), (6, 0), (5, 0), (4, 0))
THUMBNAILS += ((3, 0),)
"""Columns of a thumbnail and lines between layers; a line is worth smaller ones, to a degree."""


class Span(NamedTuple):
    """A piece of a line, how it looks, and what it stands for; None: the terminal's own colour."""

    text: str
    ink: Color | None = None
    ground: Color | None = None
    bold: bool = False
    underline: bool = False
    reverse: bool = False
    dim: bool = False
    act: Act = ""


Line = list[Span]


def plain(line: Iterable[Span]) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)


def fit(line: Iterable[Span], width: int) -> Line:
    """The line cut, or filled with spaces, to exactly so many cells."""
    spans, room = list[Span](), width
    for span in line:
        fits = cell_len(span.text) <= room
        spans.append(span if fits else span._replace(text=shorten(span.text, room)))
        room -= cell_len(spans[-1].text)
    return [*spans, Span(" " * room)]


def cell(text: str, width: int) -> str:
    """A text cut or filled to so many cells."""
    return plain(fit([Span(text)], width))


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
    body = panes(state, max(height - len(top) - len(bottom), 0))
    return [fit(line, width) for line in [*top[: max(height - 1, 0)], *body, *bottom][:height]]


def title(state: State) -> Line:
    """The model, the head and what it does; at the right the lens and the unit."""
    item, whole = state.item, state.seen
    names = zip(("layer", "head"), item.place(state.layer, state.head), strict=True)
    stream = item.stream if len(whole.maps) > 1 else ""
    parts = [stream, " ".join(axis_name(*name) for name in names), head_words(state)]
    left = [Span(printable(whole.provenance.title), bold=True)]
    left.append(Span(" · " + " · ".join(filter(None, parts))))
    unit = "patches" if item.query_side == "picture" else "words" if state.words else "pieces"
    right = f"{state.lens} · {unit}{'' if state.special else ' · no special'}"
    right += f" · blocks of {item.blocks[0]}" * item.is_pooled
    right += f" · {len(item.layers) * len(item.heads)} heads"
    size = sizes_of(whole, item).get(item.place(state.layer, state.head)[0], 1)
    right += f" in groups of {size}" * (size > 1)
    room = state.size[0] - cell_len(right)
    return left if cell_len(plain(left)) + 2 > room else [*fit(left, room), Span(right, dim=True)]


# Colours of weights


def limits_of_head(state: State) -> Limits:
    """The scale of a head: that of its words, since special tokens often exceed all else."""

    def make() -> Limits:
        small = overview(state, state.layer, state.head)
        if small.shape == state.weights.shape:
            return colors.scale_of(state.part)
        return colors.limits_of(np.nan_to_num(small), state.item.values)

    limits: Limits = state.note(("limits", state.layer, state.head), make)
    return limits


def shades_on(*, signed: bool, dark: bool) -> NDArray[np.uint8]:
    """The colours of a scale on dark or light ground."""
    if dark:
        return DARK_SIGNED_SHADES if signed else DARK_SHADES
    return colors.SIGNED_SHADES if signed else colors.SHADES


def has_shades(state: State) -> bool:
    """Whether the terminal has colours enough to draw shades by them."""
    return state.colors in ("truecolor", "256")


def shade(state: State, text: str, value: float, limits: Limits, **more: Any) -> Span:
    """A text on the colour of a weight; without colours, by how it is written."""
    share = abs(value) / limits[1] if value == value else 0.0
    if not has_shades(state):
        looks = {"bold": share >= 0.25, "underline": share >= 0.1, "reverse": share >= 0.5}
        return Span(text, **{**looks, **more})
    if value == value and share < 0.02:
        return Span(text, **{"dim": text.strip()[:1] in (".", "0"), **more})
    step = round(100 * value / limits[1]) if value == value else None
    ground = ground_of(step, limits[0] < 0, state.dark)
    return Span(text, ink_on(ground), ground, **more)


@lru_cache(maxsize=1024)
def ground_of(step: int | None, signed: bool, dark: bool) -> Color:  # noqa: FBT001 - cached
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
    sides = zip(weights.shape, (rows, columns), strict=True)
    down, across = (max(-(-n // to), 1) for n, to in sides)
    return stretch(colors.block_peaks(weights, down, across), rows, columns)


def picture_lines(pixels: NDArray[np.uint8]) -> list[Line]:
    """Pixels (an even number of rows, columns, 3) as half blocks, two rows a line."""
    lines = []
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        pairs = groupby(zip(map(tuple, upper), map(tuple, lower), strict=True))
        lines.append([Span("▀" * len([*same]), *pair) for pair, same in pairs])
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
    item, row = state.item, state.row
    if item.query_side == "picture":
        return []
    if state.over_picture:
        return _flow(state, item.query_tokens, state.query, None, most)
    if item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens):
        return _flow(state, item.query_tokens, state.query, row, most)
    lines = _flow(state, item.query_tokens, state.query, None, max(most // 2, 1))
    return lines + _flow(state, item.key_tokens, None, row, max(most - len(lines), 1))


def _flow(
    state: State,
    tokens: Sequence[Token],
    query: int | None,
    row: NDArray[np.float32] | None,
    most: int,
) -> list[Line]:
    """Tokens in so many lines, around the query one or else the strongest."""
    width, limits = state.size[0], limits_of_head(state)
    aim = state.aim if query is None else query
    # Only what can be near the wanted token is laid out: a text may have thousands.
    near = (most + 1) * width // 3
    lines, room, line_of_aim = [list[Span]()], width, 0
    for at in range(max(aim - near, 0), min(aim + near, len(tokens))):
        text = f" {shorten(name_of(tokens[at]), width - 2)} "
        if cell_len(text) > room:
            lines.append([])
            room = width
        if at == query:
            text = f"▸{text[1:]}" if has_shades(state) else f"[{text[1:-1]}]"
        marks = {"bold": True} if at == query else {}
        if at == query or (row is not None and at == state.key):
            marks |= {"underline": True}
        act = {"key": at, "matrix": True} if query is None else {"query": at}
        value = 0.0 if row is None else float(row[at])
        lines[-1].append(shade(state, text, value, limits, act=act, **marks))
        room -= cell_len(text)
        line_of_aim = len(lines) - 1 if at == aim else line_of_aim
    part = _around(line_of_aim, most, len(lines))
    return lines[part.start : part.stop]


def said_of_query(state: State) -> list[Line]:
    """Where the chosen token looks, in words; on a high screen also who looks at it."""
    item, patch = state.item, state.item.key_side == "picture"
    query = name_of(item.query_tokens[state.query], patch=item.query_side == "picture")
    if state.key is None:
        verb = "looks at" if item.values == "share" else "goes with"
        looks = _links(state.row, item.key_tokens, patch=patch)
        lines = [[Span(f" {query} ", bold=True), Span(f"{verb} {looks}")]]
    else:
        key = name_of(item.key_tokens[state.key], patch=patch)
        weight = two_digits(float(state.row[state.key]))
        lines = [[Span(f" {query} → {key} {weight}", bold=True)]]
    if state.size[1] >= 30 and item.query_side == item.key_side and not patch:
        column = state.weights[:, min(state.query, state.weights.shape[1] - 1)]
        looks = _links(column, item.query_tokens)
        lines.append([Span(f" {query} ", bold=True), Span(f"is looked at by {looks}")])
    return lines


def _links(row: NDArray[np.float32], tokens: Sequence[Token], *, patch: bool = False) -> str:
    sizes = np.nan_to_num(np.abs(row))
    places = [at for at in np.argsort(-sizes, kind="stable")[:6].tolist() if sizes[at] > 0]
    places = [at for at in places if sizes[at] >= 0.005] or places[:1]
    words = [f"{name_of(tokens[at], patch=patch)} {two_digits(float(row[at]))}" for at in places]
    return " · ".join(words) or "nothing"


# The panes


def panes(state: State, rows: int) -> list[Line]:
    """Heads and matrix side by side, or of a narrow screen the one that the arrows move over."""
    width, of_picture = state.size[0], state.over_picture
    right = over_picture if of_picture else matrix
    if width < (ROOMY if state.matrix and not of_picture else WIDE):
        lines = right(state, rows, width) if state.matrix else heads(state, rows, width)
        return [*lines, *[list[Span]()] * rows][:rows]
    left = min(width * 11 // 20, 10 + len(state.item.heads) * 17)
    one, two = heads(state, rows, left), right(state, rows, width - left - 3)
    rule, pad = Span(" │ ", dim=True), [list[Span]()] * rows
    pairs = zip([*one, *pad][:rows], [*two, *pad][:rows], strict=True)
    return [[*fit(first, left), rule, *second] for first, second in pairs]


def _around(place: int, count: int, of: int) -> range:
    """So many places around one, of all."""
    first = min(max(place - count // 2, 0), max(of - count, 0))
    return range(first, min(first + count, of))


def heads(state: State, rows: int, width: int) -> list[Line]:
    """The thumbnails of heads, as large as all fit, with the chosen one between marks."""
    item, here = state.item, (state.layer, state.head)
    names = [shorten(printable(name), 8) for name in item.layers]
    label, layers, count = max(map(cell_len, names)), len(item.layers), len(item.heads)
    for wide, gap in THUMBNAILS:
        high = wide // 2
        across, down = (width - label - 1) // (wide + 1), (rows - 1 + gap) // (high + gap)
        if across >= count and down >= layers:
            break
    shown_heads = _around(state.head, max(across, 1), count)
    groups = state.note("groups", lambda: groups_of(item, sizes_of(state.seen, item)))
    corner = "" if across >= count and down >= layers else "…"
    columns = " ".join(cell(printable(item.heads[head]), wide) for head in shown_heads)
    lines = [[Span(corner.ljust(label + 1), dim=True), Span(columns, dim=True)]]
    for layer in _around(state.layer, max(down, 1), layers):
        pictures = [thumbnail(state, layer, head, wide, high) for head in shown_heads]
        firsts = {group[0] for group in groups[layer].values()} - {shown_heads[0]}
        for row in range(high):
            name = "" if row else names[layer]
            here_too = layer == state.layer
            line = [Span(f"{name:>{label}}", bold=here_too, dim=not here_too)]
            for head, picture in zip(shown_heads, pictures, strict=True):
                mark = "▐" if (layer, head) == here else "▌" * ((layer, head - 1) == here)
                edge = Span("│", dim=True) if head in firsts and not mark else _mark(state, mark)
                line += [edge, *picture[row]]
            lines.append([*line, _mark(state, "▌" * ((layer, shown_heads[-1]) == here))])
        lines += [[]] * gap
    return lines[:rows]


def _mark(state: State, mark: str) -> Span:
    if state.colors is None:
        mark = {"▐": "[", "▌": "]"}.get(mark, mark)
    return Span(mark or " ", ACCENT if mark and has_shades(state) else None, bold=bool(mark))


def thumbnail(state: State, layer: int, head: int, wide: int, high: int) -> list[Line]:
    """One head in a few cells; crosses where it is switched off."""

    def make() -> list[Line]:
        weights, raw = overview(state, layer, head), state.raw_map
        if state.over_picture and weights.shape[1] > 8:
            weights = looks_of(state.item, layer, head)
        small = resample(weights, 2 * high, wide)
        lines = shades(state, small, colors.limits_of(np.nan_to_num(small), state.item.values))
        off = [(at.layer, raw.heads[at.head]) for at in state.off.heads if at.stream == raw.stream]
        if state.item.place(layer, head) in off:
            lines = [[Span("╳" * wide, dim=True)]] * high
        return [
            [span._replace(act={"layer": layer, "head": head}) for span in line] for line in lines
        ]

    lines: list[Line] = state.note(("thumbnail", layer, head, wide, high), make)
    return lines


def matrix(state: State, rows: int, width: int) -> list[Line]:
    """The matrix of the head: numbers around the chosen link, or all of it in blocks."""
    return _blocks(state, rows, width) if state.in_blocks else _numbers(state, rows, width)


def _numbers(state: State, rows: int, width: int) -> list[Line]:
    keys, limits = [name_of(one) for one in state.item.key_tokens], limits_of_head(state)
    queries = _around(state.query, max(rows - 1, 1), len(state.item.query_tokens))
    names = {at: name_of(state.item.query_tokens[at]) for at in queries}
    label = min(max(map(cell_len, names.values())), 12, max(width // 4, 3))
    room = width - label - 3
    columns = _around(state.aim, max(room // 4, 1), len(keys))
    lengths = {at: max(cell_len(keys[at]), 3) for at in columns}
    for most in (12, 10, 8, 7, 6, 5):  # names as long as all columns have room for
        widths = {at: min(length, most) for at, length in lengths.items()}
        if sum(widths.values()) + len(widths) <= room:
            break
    while len(columns) > 1 and sum(widths[at] + 1 for at in columns) > room:
        columns = _around(state.aim, len(columns) - 1, len(keys))
    more_left, more_right = columns.start > 0, columns.stop < len(keys)
    header = [Span(" " * (label + 1) + (" ‹"[more_left]))]
    for at in columns:
        name = shorten(keys[at], widths[at])
        text = " " * (widths[at] - cell_len(name)) + name + " "
        header.append(Span(text, bold=at == state.key, dim=at != state.key))
    lines = [[*header, Span("›" * more_right)]]
    for query, name in names.items():
        here = query == state.query
        text = f"{' ▸'[here]}{cell(name, label)} "
        line = [Span(text, bold=here, act={"query": query})]
        for at in columns:
            value = float(state.weights[query, at])
            text = two_digits(value).rjust(widths[at]) + " "
            act = {"query": query, "key": at, "matrix": True}
            marks = {"bold": True, "underline": True} if here and at == state.key else {}
            line.append(shade(state, text, value, limits, act=act, **marks))
        lines.append(line)
    return lines


def _blocks(state: State, rows: int, width: int) -> list[Line]:
    queries, keys = state.weights.shape
    high, wide = max(min(rows - 1, -(-queries // 2)), 1), max(min(width - 2, keys), 1)
    if queries == keys:
        high = max(min(high, wide // 2), 1)
        wide = min(wide, 2 * high)
    limits = limits_of_head(state)

    def make() -> list[Line]:
        small = resample(overview(state, state.layer, state.head), 2 * high, wide)
        return _with_acts(shades(state, small, limits), high, wide)

    lines = state.note(("blocks", state.layer, state.head, high, wide), make)
    at, aim = state.query * high // queries, state.aim * wide // keys
    marks = (_mark(state, "▐" * (number == at)) for number in range(high))
    head = [Span(" " * (aim + 1) + "▾", bold=True)]
    return [head, *([mark, *line] for mark, line in zip(marks, lines, strict=True))]


def _with_acts(lines: list[Line], high: int, wide: int) -> list[Line]:
    """The lines with what a click means: the line and first cell of a span, of so many."""
    for number, line in enumerate(lines):
        start = 0
        for place, span in enumerate(line):
            line[place] = span._replace(act={"cells": (number, start, high, wide)})
            start += len(span.text)
    return lines


def over_picture(state: State, rows: int, width: int) -> list[Line]:
    """The picture under the weights of its patches, from the chosen query."""
    looks = looks_of(state.item, state.layer, state.head, state.query)
    pixels = state.pictures.get(state.item.stream)
    down, across = looks.shape if pixels is None else pixels.shape[:2]
    high = max(min(rows, width * down // across // 2), 1)
    wide = max(min(2 * high * across // down, width), 1)
    values = stretch(looks, 2 * high, wide)
    limits = colors.limits_of(np.nan_to_num(looks), state.item.values)
    if not has_shades(state) or pixels is None:
        lines = shades(state, values, limits)
    else:
        cover = (0.9 * np.clip(np.abs(np.nan_to_num(values)) / limits[1], 0, 1) ** 0.8)[..., None]
        glow = colors_of(values, limits, colors.GLOW if limits[0] >= 0 else None)
        mix = (1 - cover) * stretch(pixels, 2 * high, wide) + cover * glow
        lines = picture_lines(np.rint(mix).astype(np.uint8))
    rows, columns = looks.shape
    patch = state.query - len(state.item.key_tokens) + rows * columns
    if state.item.query_side == "picture" and patch >= 0:  # a mark on the patch that looks
        line = lines[(2 * (patch // columns) + 1) * high // (2 * rows)]
        at = (2 * (patch % columns) + 1) * wide // (2 * columns)
        line[:] = [span._replace(text=one) for span in line for one in span.text]
        ground = line[at].ground
        line[at] = Span("◉", ground and ink_on(ground), ground, bold=True)
    return _with_acts(lines, high, wide)


# The last two lines


def status(state: State) -> Line:
    """The line of status: a message, the effect of what is off, or the first note."""
    if text := state.message or state.effect:
        return [Span(f" {printable(text)}", bold=True)]
    notes = state.seen.provenance.notes
    return [Span(f" {printable(notes[0])}", dim=True)] if notes and kind_of(notes[0]) else []


def footer(width: int) -> Line:
    """The keys that matter, as many as have room; the list of all is always named."""
    line = [span for row in KEYS[:-2] for span in _key(row)]
    last = [span for row in KEYS[-2:] for span in _key(row)]
    while line and cell_len(plain([*line, *last])) > width:
        del line[-2:]
    return [*line, *last]


def _key(row: tuple[str, str, str]) -> Line:
    key, word, _ = row
    act = key.replace("↑↓", "down").replace("←→", "right")
    return [Span(f" {key} ", bold=True, act=act), Span(word, dim=True, act=act)]
