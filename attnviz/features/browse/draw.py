"""A state as lines of text in colours: pure functions, which know no terminal.

Colours are those of pictures; on dark ground a table from dark to light. With sixteen colours or
none, shades are drawn by characters (░▒▓█) and by bold, underlined and reversed text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.style import Style

from attnviz.analyses.kv_groups import groups_of, sizes_of
from attnviz.core import attention_map, notices, registry
from attnviz.features.browse.keys import KEYS, Act
from attnviz.features.browse.state import State
from attnviz.renderers import colors
from attnviz.renderers.colors import Color, Limits, colors_of, ink_on
from attnviz.renderers.printable import printable, shorten, two_digits

DARK_SIGNED_SHADES = colors.diverging_path(
    ((0.24, 0.0, 60.0), (0.50, 0.10, 50.0), (0.75, 0.13, 62.0), (0.93, 0.08, 80.0)),
    ((0.24, 0.0, 240.0), (0.50, 0.11, 258.0), (0.72, 0.12, 243.0), (0.94, 0.05, 220.0)),
)
ACCENT: Color = (230, 130, 0)
ActAt = Callable[[int, int], Act]  # what a click does on a cell of a line and a column
GLYPHS = " ░▒▓█"
WIDE, ROOMY = 72, 100
"""Columns from which heads and matrix stand side by side, and also where one is moved over."""
THUMBNAILS = [(wide, 1) for wide in (16, 14, 12, 10, 8, 6, 5)] + [(n, 0) for n in (8, 6, 5, 4, 3)]
"""Columns of a thumbnail and lines between layers; a line is worth smaller ones, to a degree."""


@lru_cache(maxsize=16384)
def look(ink: Color | None = None, ground: Color | None = None, **marks: Any) -> Style:
    """How a text looks, readable on its ground; None: the terminal's own colour."""
    both = [ink if ink or ground is None else ink_on(ground), ground]
    color, bgcolor = (one and RichColor.from_rgb(*one) for one in both)
    return Style(color=color, bgcolor=bgcolor, **marks)


PLAIN, BOLD, DIM = look(), look(bold=True), look(dim=True)


class Span(NamedTuple):
    """A piece of a line, how it looks, and what a click on it does."""

    text: str
    style: Style = PLAIN
    act: Act = ""


Line = list[Span]


def plain(line: Iterable[Span]) -> str:
    return "".join(span.text for span in line)


def fit(line: Iterable[Span], width: int) -> Line:
    """The line cut, or filled with spaces, to exactly so many cells."""
    spans, room = list[Span](), width
    for span in line:
        fits = cell_len(span.text) <= room
        spans.append(span if fits else span._replace(text=shorten(span.text, room)))
        room -= cell_len(spans[-1].text)
    return [*spans, Span(" " * room)]


def pad(lines: Sequence[Line], rows: int) -> list[Line]:
    return [*lines, *[list[Span]()] * rows][:rows]


def cell(text: str, width: int) -> str:
    return plain(fit([Span(text)], width))


@lru_cache(maxsize=4096)
def name_of(token: attention_map.Token, side: str = "") -> str:
    """A token's text without anything that a terminal would obey."""
    text = printable(token.text)
    return f"patch {text}" if side == "picture" and not token.special else text


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
    place = " ".join(map(registry.axis_name, ("layer", "head"), state.place))
    parts = [item.stream if len(whole.maps) > 1 else "", place, state.words_of_head()]
    said = "".join(f" · {part}" for part in parts if part)
    left = [Span(printable(whole.provenance.title), BOLD), Span(said)]
    unit = "patches" if item.query_side == "picture" else "words" if state.words else "pieces"
    right = f"{state.lens} · {unit}{'' if state.special else ' · no special'}"
    right += f" · blocks of {item.blocks[0]}" * item.is_pooled
    right += f" · {len(item.layers) * len(item.heads)} heads"
    size = sizes_of(whole, item).get(state.place[0], 1)
    right += f" in groups of {size}" * (size > 1)
    room = state.size[0] - cell_len(right)
    return left if cell_len(plain(left)) + 2 > room else [*fit(left, room), Span(right, DIM)]


def limits_of_head(state: State) -> Limits:
    """The scale of a head: that of its words, since special tokens often exceed all else."""

    def make() -> Limits:
        small = state.overview(state.layer, state.head)
        if small.shape == state.weights.shape:
            return colors.scale_of(state.part)
        return colors.limits_of(np.nan_to_num(small), state.item.values)

    limits: Limits = state.note("limits", make, state.layer, state.head)
    return limits


def table_of(state: State, limits: Limits) -> NDArray[np.uint8]:
    """The colours of a scale on dark or light ground."""
    if limits[0] < 0:
        return DARK_SIGNED_SHADES if state.dark else colors.SIGNED_SHADES
    return colors.SHADES[::-1] if state.dark else colors.SHADES


def shade(state: State, text: str, value: float, limits: Limits, **marks: bool) -> Style:
    """The look of a text on the colour of a weight; without colours, by how it is written."""
    share = abs(value) / limits[1] if value == value else 0.0
    if not state.has_shades:
        by_size = {"bold": share >= 0.25, "underline": share >= 0.1, "reverse": share >= 0.5}
        return look(**{**by_size, **marks})
    if value == value and share < 0.02:
        return look(dim=text.strip()[:1] in (".", "0"), **marks)
    table, (low, high) = table_of(state, limits), limits
    step = round((max(low, min(high, value)) - low) / (high - low) * (len(table) - 1))
    return look(None, colors.NO_VALUE if value != value else (*table[step].tolist(),), **marks)


def stretch(cells: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """The cells repeated, or some left out, to so many rows and columns."""
    sides = zip(cells.shape, (rows, columns), strict=False)
    return np.asarray(cells[np.ix_(*(np.arange(to) * n // to for n, to in sides))])


def resample(weights: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
    """The matrix in so many rows and columns: blocks by their largest weight, or cells repeated."""
    sides = zip(weights.shape, (rows, columns), strict=True)
    down, across = (max(-(-n // to), 1) for n, to in sides)
    return stretch(colors.block_peaks(weights, down, across), rows, columns)


def half_blocks(pixels: NDArray[np.uint8], act: ActAt) -> list[Line]:
    """Pixels (an even number of rows, columns, 3), two rows a line."""
    lines = []
    for y, (upper, lower) in enumerate(pixels.reshape(-1, 2, *pixels.shape[1:]).tolist()):
        pairs = enumerate(zip(map(tuple, upper), map(tuple, lower), strict=True))
        lines.append([Span("▀", look(*pair), act(y, x)) for x, pair in pairs])
    return lines


def shades(state: State, cells: NDArray[Any], limits: Limits, act: ActAt) -> list[Line]:
    """A matrix of an even number of rows: half blocks, or characters of five shades."""
    if state.has_shades:
        return half_blocks(colors_of(cells, limits, table_of(state, limits)), act)
    sizes = np.nan_to_num(np.abs(cells))
    sizes = np.maximum(sizes[::2], sizes[1::2]) / limits[1]
    levels = np.ceil(np.clip(sizes, 0, 1) * 4 - 0.12).astype(int).clip(0, 4)
    rows = enumerate(levels.tolist())
    return [[Span(GLYPHS[n], act=act(y, x)) for x, n in enumerate(row)] for y, row in rows]


def sentence(state: State, most: int) -> list[Line]:
    """The text shaded by where the chosen token looks; of a pair, the target above the source."""
    item = state.item
    if item.query_side == "picture":
        return []
    if state.over_picture:
        return _flow(state, 0, most, weigh=False)
    if item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens):
        return _flow(state, 0, most)
    lines = _flow(state, 0, max(most // 2, 1), weigh=False)
    return lines + _flow(state, 1, max(most - len(lines), 1))


def _flow(state: State, axis: int, most: int, *, weigh: bool = True) -> list[Line]:
    """The tokens of an axis in so many lines, around the query or the strongest key."""
    tokens = (state.item.query_tokens, state.item.key_tokens)[axis]
    width, limits, aim = state.size[0], limits_of_head(state), (state.query, state.aim)[axis]
    # Only what can be near the wanted token is laid out: a text may have thousands.
    near = (most + 1) * width // 3
    lines, room, line_of_aim = [list[Span]()], width, 0
    for at in range(max(aim - near, 0), min(aim + near, len(tokens))):
        here = axis == 0 and at == aim
        text = f" {shorten(name_of(tokens[at]), width - 2)} "
        if cell_len(text) > room:
            lines.append([])
            room = width
        if here:
            text = f"▸{text[1:]}" if state.has_shades else f"[{text[1:-1]}]"
        marks = {"bold": True} if here else {}
        if here or (weigh and at == state.key):
            marks["underline"] = True
        act = {"key": at, "matrix": True} if axis else {"query": at}
        value = float(state.row[at]) if weigh else 0.0
        lines[-1].append(Span(text, shade(state, text, value, limits, **marks), act))
        room -= cell_len(text)
        line_of_aim = len(lines) - 1 if at == aim else line_of_aim
    part = _around(line_of_aim, most, len(lines))
    return lines[part.start : part.stop]


def said_of_query(state: State) -> list[Line]:
    """Where the chosen token looks, in words; on a high screen also who looks at it."""
    item = state.item
    query = name_of(item.query_tokens[state.query], item.query_side)
    if state.key is None:
        verb = "looks at" if item.values == "share" else "goes with"
        looks = _links(state.row, item.key_tokens, item.key_side)
        lines = [[Span(f" {query} ", BOLD), Span(f"{verb} {looks}")]]
    else:
        key, weight = item.key_tokens[state.key], two_digits(float(state.row[state.key]))
        lines = [[Span(f" {query} → {name_of(key, item.key_side)} {weight}", BOLD)]]
    if state.size[1] >= 30 and item.query_side == item.key_side != "picture":
        column = state.weights[:, min(state.query, state.weights.shape[1] - 1)]
        looks = _links(column, item.query_tokens, item.query_side)
        lines.append([Span(f" {query} ", BOLD), Span(f"is looked at by {looks}")])
    return lines


def _links(row: NDArray[np.float32], tokens: Sequence[attention_map.Token], side: str) -> str:
    sizes = np.nan_to_num(np.abs(row))
    places = [at for at in np.argsort(-sizes, kind="stable")[:6].tolist() if sizes[at] > 0]
    places = [at for at in places if sizes[at] >= 0.005] or places[:1]
    words = [f"{name_of(tokens[at], side)} {two_digits(float(row[at]))}" for at in places]
    return " · ".join(words) or "nothing"


def panes(state: State, rows: int) -> list[Line]:
    """Heads and matrix side by side, or of a narrow screen the one that the arrows move over."""
    width, of_picture = state.size[0], state.over_picture
    right = over_picture if of_picture else blocks if state.in_blocks else numbers
    if width < (ROOMY if state.matrix and not of_picture else WIDE):
        return pad((right if state.matrix else heads)(state, rows, width), rows)
    left = min(width * 11 // 20, 10 + len(state.item.heads) * 17)
    sides = pad(heads(state, rows, left), rows), pad(right(state, rows, width - left - 3), rows)
    return [[*fit(one, left), Span(" │ ", DIM), *two] for one, two in zip(*sides, strict=True)]


def _around(place: int, count: int, of: int) -> range:
    first = min(max(place - count // 2, 0), max(of - count, 0))
    return range(first, min(first + count, of))


def heads(state: State, rows: int, width: int) -> list[Line]:
    """The thumbnails of heads, as large as all fit, with the chosen one between marks."""
    item = state.item
    names = [shorten(printable(name), 8) for name in item.layers]
    label, layers, count = max(map(cell_len, names)), len(item.layers), len(item.heads)
    for wide, gap in THUMBNAILS:
        across, down = (width - label - 1) // (wide + 1), (rows - 1 + gap) // (wide // 2 + gap)
        if across >= count and down >= layers:
            break
    places = _around(state.head, max(across, 1), count)
    groups = state.note("groups", lambda: groups_of(item, sizes_of(state.seen, item)))
    corner = "" if across >= count and down >= layers else "…"
    columns = [cell(printable(item.heads[head]), wide) for head in places]
    lines = [[Span(" ".join([corner.ljust(label), *columns]), DIM)]]
    for layer in _around(state.layer, max(down, 1), layers):
        here = state.head if layer == state.layer else -9
        firsts = {group[0] for group in groups[layer].values()} - {places[0]}
        name = Span(f"{names[layer]:>{label}}", BOLD if here >= 0 else DIM)
        block = [[name], *[[Span(" " * label)] for _ in range(wide // 2 - 1)]]
        for head in places:
            edge = _mark(state, begins=head == here, ends=head - 1 == here)
            edge = Span("│", DIM) if head in firsts and edge.text == " " else edge
            for line, cells in zip(block, thumbnail(state, layer, head, wide), strict=True):
                line += [edge, *cells]
        end = _mark(state, ends=places[-1] == here)
        lines += [[*line, end] for line in block] + [[]] * gap
    return lines[:rows]


def _mark(state: State, *, begins: bool = False, ends: bool = False) -> Span:
    marks = "[] " if state.colors is None else "▐▌ "
    style = look(ACCENT if state.has_shades else None, bold=True)
    return Span(marks[0 if begins else 1 if ends else 2], style if begins or ends else PLAIN)


def thumbnail(state: State, layer: int, head: int, wide: int) -> list[Line]:
    """One head in a few cells; crosses where it is switched off."""
    act: Act = {"layer": layer, "head": head}

    def make() -> list[Line]:
        raw, weights = state.raw_map, state.overview(layer, head)
        off = [(at.layer, raw.heads[at.head]) for at in state.off.heads if at.stream == raw.stream]
        if state.item.place(layer, head) in off:
            return [[Span("╳" * wide, DIM, act)]] * (wide // 2)
        if state.over_picture and weights.shape[1] > 8:
            weights = state.looks(layer, head)
        small = resample(weights, wide // 2 * 2, wide)
        limits = colors.limits_of(np.nan_to_num(small), state.item.values)
        return shades(state, small, limits, lambda *_: act)

    lines: list[Line] = state.note("thumbnail", make, layer, head, wide)
    return lines


def numbers(state: State, rows: int, width: int) -> list[Line]:
    keys, limits = [name_of(one) for one in state.item.key_tokens], limits_of_head(state)
    queries = _around(state.query, max(rows - 1, 1), len(state.item.query_tokens))
    names = {at: name_of(state.item.query_tokens[at]) for at in queries}
    label = min(max(map(cell_len, names.values())), 12, max(width // 4, 3))
    room = width - label - 3
    columns = _around(state.aim, max(room // 4, 1), len(keys))
    for most in (12, 10, 8, 7, 6, 5):  # names as long as all columns have room for
        widths = {at: min(max(cell_len(keys[at]), 3), most) for at in columns}
        if sum(widths.values()) + len(widths) <= room:
            break
    while len(columns) > 1 and sum(widths[at] + 1 for at in columns) > room:
        columns = _around(state.aim, len(columns) - 1, len(keys))
    header = [Span(" " * (label + 1) + (" ‹"[columns.start > 0]))]
    for at in columns:
        name = shorten(keys[at], widths[at])
        text = " " * (widths[at] - cell_len(name)) + name + " "
        header.append(Span(text, BOLD if at == state.key else DIM))
    lines = [[*header, Span("›" * (columns.stop < len(keys)))]]
    for query, name in names.items():
        here = query == state.query
        text = f"{' ▸'[here]}{cell(name, label)} "
        line = [Span(text, look(bold=here), {"query": query})]
        for at in columns:
            value = float(state.weights[query, at])
            text = two_digits(value).rjust(widths[at]) + " "
            marks = {"bold": True, "underline": True} if here and at == state.key else {}
            act = {"query": query, "key": at, "matrix": True}
            line.append(Span(text, shade(state, text, value, limits, **marks), act))
        lines.append(line)
    return lines


def blocks(state: State, rows: int, width: int) -> list[Line]:
    queries, keys = state.weights.shape
    high, wide = max(min(rows - 1, -(-queries // 2)), 1), max(min(width - 2, keys), 1)
    if queries == keys:
        high = max(min(high, wide // 2), 1)
        wide = min(wide, 2 * high)

    def act(y: int, x: int) -> Act:
        return {"query": y * queries // high, "key": x * keys // wide, "matrix": True}

    def make() -> list[Line]:
        small = resample(state.overview(state.layer, state.head), 2 * high, wide)
        return shades(state, small, limits_of_head(state), act)

    lines = state.note("blocks", make, state.layer, state.head, high, wide)
    at, aim = state.query * high // queries, state.aim * wide // keys
    body = [[_mark(state, begins=y == at), *line] for y, line in enumerate(lines)]
    return [[Span(" " * (aim + 1) + "▾", BOLD)], *body]


def over_picture(state: State, rows: int, width: int) -> list[Line]:
    """The picture under the weights of its patches, from the chosen query."""
    item, looks = state.item, state.looks(state.layer, state.head, state.query)
    pixels = state.pictures.get(item.stream)
    down, across = looks.shape if pixels is None else pixels.shape[:2]
    high = max(min(rows, width * down // across // 2), 1)
    wide = max(min(2 * high * across // down, width), 1)
    rows, columns = looks.shape
    first = len(item.key_tokens) - rows * columns

    def act(y: int, x: int) -> Act:
        patch = first + y * rows // high * columns + x * columns // wide
        return {"query" if item.query_side == "picture" else "key": patch, "matrix": True}

    values = stretch(looks, 2 * high, wide)
    limits = colors.limits_of(np.nan_to_num(looks), item.values)
    if not state.has_shades or pixels is None:
        lines = shades(state, values, limits, act)
    else:
        cover = (0.9 * np.clip(np.abs(np.nan_to_num(values)) / limits[1], 0, 1) ** 0.8)[..., None]
        glow = colors_of(values, limits, colors.GLOW if limits[0] >= 0 else None)
        mix = (1 - cover) * stretch(pixels, 2 * high, wide) + cover * glow
        lines = half_blocks(np.rint(mix).astype(np.uint8), act)
    if item.query_side == "picture" and state.query >= first:  # a mark on the patch that looks
        row, column = divmod(state.query - first, columns)
        y, x = (2 * row + 1) * high // (2 * rows), (2 * column + 1) * wide // (2 * columns)
        ground = lines[y][x].style.bgcolor
        lines[y][x] = Span("◉", look(ground=ground and tuple(ground.triplet), bold=True), act(y, x))
    return lines


def status(state: State) -> Line:
    """A message, the effect of what is off, or the first note."""
    if text := state.message or state.effect:
        return [Span(f" {printable(text)}", BOLD)]
    notes = state.seen.provenance.notes
    return [Span(f" {printable(notes[0])}", DIM)] if notes and notices.kind_of(notes[0]) else []


def footer(width: int) -> Line:
    """The keys that matter, as many as have room; the list of all is always named."""
    pairs = []
    for key, word, _ in KEYS:
        act = {"↑↓": "down", "←→": "right"}.get(key, key)
        pairs.append([Span(f" {key} ", BOLD, act), Span(word, DIM, act)])
    while len(pairs) > 2 and cell_len(plain(chain(*pairs))) > width:
        del pairs[-3]
    return [*chain(*pairs)]
