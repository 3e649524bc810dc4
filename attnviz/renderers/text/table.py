"""One matrix as a table for a terminal, with as much detail as the width allows."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.attention_map import (
    LINK_LISTS,
    Attention,
    AttentionMap,
    HeadLine,
    Link,
    MeasuredLink,
    Token,
    View,
)
from attnviz.core.measures import HeadLinks, Overview
from attnviz.core.registry import axis_name
from attnviz.core.tokens import count_kinds, has_kinds, kind_edges, kinds_in_words
from attnviz.renderers import Display, Views
from attnviz.renderers.colors import Limits, beyond_note, no_value_note, scale_of
from attnviz.renderers.printable import (
    UNKNOWN,
    decimals,
    nats,
    one_digit,
    printable,
    shorten,
    two_digits,
)
from attnviz.renderers.text.console import TextRenderer, color_cell, wrap_text
from attnviz.renderers.text.link_list import name_tokens, place_of

LONGEST_LABEL = 14
LONGEST_LINK = 18  # an arrow, ten cells of a word, two digits
LISTED, FEW = 10, 5
STRONGEST, LEAST_SHOWN = 3, 0.005
"""Keys of a row, and weights, that a list of the strongest shows."""
MOST_BLOCKS = 3  # of columns below each other, of keys of several kinds
FIRST_ROWS = 32
"""Rows of a matrix that are shown unless all are asked for."""
SHADES = " ░▒▓█"
NEGATIVE_SHADES = " ▁▃▅▇"
SHADE_STEPS = (0.05, 0.2, 0.4, 0.7)  # shares of the scale where the next shade begins


def matrix(
    item: AttentionMap, width: int, *, colored: bool, whole: bool = False
) -> list[RenderableType]:
    """The matrix as lines and the legend that it needs.

    Words over columns of two digits where these fit; else the three strongest keys of each row, or
    the `whole` matrix in blocks of columns. The patches of a picture, whose columns are numbers,
    become columns of one digit, or one shade for each.
    """
    keys, sign = len(item.key_tokens), item.values == "signed"
    width -= 2 * len(kind_edges(item.key_tokens))  # a line between kinds
    room = width - 1 - max(row_label(token).cell_len for token in item.query_tokens)
    readable = keys * (5 + sign) <= room and _told_apart(item, room)
    # Kinds of keys are told apart by a line, which a list of the strongest would not have.
    few_blocks = not whole and has_kinds(item) and keys * (5 + sign) <= MOST_BLOCKS * room
    if readable or whole or few_blocks:
        lines: list[RenderableType] = []
        for columns in [slice(keys)] if readable else _blocks(item, room):
            part = item.with_weights(
                item.weights[..., columns], key_tokens=item.key_tokens[columns]
            )
            lines += [Text()] if lines else []
            lines += _word_matrix(part, room, item if colored else None)
        return [*lines, *_scale_notes(item, colored=colored)]
    if item.key_side != "columns":
        return _strongest_keys(item, width)
    number_width = numbered_width(item.query_tokens)
    if number_width + 1 + keys * (3 + sign) <= width and keys <= 100:
        return [*_position_matrix(item, colored=colored), *_scale_notes(item, colored=colored)]
    room = width - number_width - 1 - keys
    return [_shade_matrix(item, room, colored=colored), _legend(item, colored=colored)]


def _told_apart(item: AttentionMap, room: int) -> bool:
    """True where different keys have different names in as much room as their columns have."""
    names = {printable(token.text) for token in item.key_tokens}
    return len({shorten(name, _longest(item, room) - 1) for name in names}) == len(names)


def _longest(item: AttentionMap, room: int) -> int:
    """The cells that the widest column may take."""
    least = 5 + (item.values == "signed")
    lengths = [row_label(token).cell_len + 1 for token in item.key_tokens]
    return next(
        cap
        for cap in range(LONGEST_LABEL + 6, least - 1, -1)
        if cap == least or sum(max(least, min(cap, length)) for length in lengths) <= room
    )


def _blocks(item: AttentionMap, room: int) -> Iterator[slice]:
    """The columns in blocks that fit beside each other."""
    least = 5 + (item.values == "signed")
    first, cells_before = 0, 0
    for place, token in enumerate(item.key_tokens):
        cells = max(least, min(row_label(token).cell_len + 1, LONGEST_LABEL))
        if place > first and cells_before + cells > room:
            yield slice(first, place)
            first, cells_before = place, 0
        cells_before += cells
    yield slice(first, len(item.key_tokens))


def _scale_notes(item: AttentionMap, *, colored: bool) -> list[Text]:
    limits = scale_of(item)
    beyond = beyond_note(item, limits) if colored else ""
    scale = f"colours 0 – {two_digits(limits[1])}; {beyond}" if beyond else ""
    return [Text(line, style="dim") for line in (scale, no_value_note(item, UNKNOWN)) if line]


def row_label(token: Token) -> Text:
    """The label of a token's row: special tokens dim, labelled ones bold with their label."""
    text = shorten(printable(token.text), LONGEST_LABEL)
    if token.label:
        return Text.assemble((text, "bold yellow"), (f" {printable(token.label)}", "yellow"))
    return Text(text, style="dim" if token.special else "")


def numbered_width(tokens: tuple[Token, ...]) -> int:
    """Cells of the widest row label with its position."""
    return max(label.cell_len for label in _numbered_labels(tokens)) - 1


def _table(headers: Iterable[Text | str]) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, header_style="", show_edge=False)
    for header in headers:
        table.add_column(header, no_wrap=True, overflow="crop")
    return table


def _lines(
    heads: Iterable[Text],
    labels: list[Text],
    numbers: list[list[str]],
    item: AttentionMap,
    scale: AttentionMap | None,
) -> list[Text]:
    """A map's numbers as wide as their headings, behind labels, on colours of a map if given."""
    # rich's own table takes ten times as long.
    room = max(label.cell_len for label in labels)
    lines = [Text(" " * room, no_wrap=True).append_text(Text().join(heads))]
    limits = (0.0, 1.0) if scale is None else scale_of(scale)
    for place, (label, texts) in enumerate(zip(labels, numbers, strict=True)):
        label.pad_right(room - label.cell_len)
        line = Text(no_wrap=True).append_text(label)
        if scale is None:
            lines.append(line.append("".join(texts)))
            continue
        for text, value in zip(texts, item.weights[0, 0, place].tolist(), strict=True):
            line.append_text(color_cell(text, value, limits))
        lines.append(line)
    return lines


def _word_matrix(item: AttentionMap, room: int, scale: AttentionMap | None) -> list[Text]:
    least = 5 + (item.values == "signed")
    labels = [row_label(token) for token in item.key_tokens]
    cap = _longest(item, room)
    widths = [max(least, min(cap, label.cell_len + 1)) for label in labels]
    rows = item.weights[0, 0].tolist()
    # What is hidden has weight 0 exactly: half of a causal matrix is empty, not .00.
    texts = [[two_digits(value) if value else "" for value in row] for row in rows]
    for row in texts:
        if not any(row):  # nothing is left of it without a sink
            row[0] = UNKNOWN
    longest = (max(map(len, column)) for column in zip(*texts, strict=True))
    widths = [max(width, length + 1) for width, length in zip(widths, longest, strict=True)]
    heads = []
    edges = {*kind_edges(item.key_tokens)}
    between = ["│ " if place in edges else "" for place in range(len(labels))]
    for token, label, width, line in zip(item.key_tokens, labels, widths, between, strict=True):
        # If a label does not fit, the token stands alone in the label's style.
        text = label.plain if label.cell_len < width else printable(token.text)
        style = "bold yellow" if token.label else "dim" if token.special else ""
        name = shorten(text, width - 1)
        room_before = Text(line + " " * (width - 1 - cell_len(name)))
        heads.append(room_before.append(name, style).append(" "))
    columns = [*zip(between, widths, strict=True)]
    numbers = [
        [f"{line}{text:>{width - 1}} " for text, (line, width) in zip(row, columns, strict=True)]
        for row in texts
    ]
    sides = [row_label(token) + Text(" ") for token in item.query_tokens]
    return _lines(heads, sides, numbers, item, scale)


def _position_matrix(item: AttentionMap, *, colored: bool) -> list[Text]:
    texts = [[one_digit(value) for value in row] for row in item.weights[0, 0].tolist()]
    width = max(2 + (item.values == "signed"), *(len(text) for row in texts for text in row))
    edges = {*kind_edges(item.key_tokens)}
    between = ["│ " if key in edges else "" for key in range(len(item.key_tokens))]
    heads = [Text(f"{line}{key:>{width}} ", style="dim") for key, line in enumerate(between)]
    numbers = [
        [f"{line}{text:>{width}} " for text, line in zip(row, between, strict=True)]
        for row in texts
    ]
    labels = list(_numbered_labels(item.query_tokens))
    return _lines(heads, labels, numbers, item, item if colored else None)


def _shade_matrix(item: AttentionMap, room: int, *, colored: bool) -> Table:
    keys = range(len(item.key_tokens))
    edges = {*kind_edges(item.key_tokens)}
    between = ["│" if key in edges else "" for key in keys]
    ruler = "".join(f"{between[key]}{key % 10}" for key in keys)
    if len(keys) > 10:
        tens = "".join(
            between[key] + (str(key // 10) if key and key % 10 == 0 else " ") for key in keys
        )
        ruler = f"{tens}\n{ruler}"
    table = _table(["", Text(ruler, style="dim"), ""])
    limits = scale_of(item)
    for label, row in zip(_numbered_labels(item.query_tokens), item.weights[0, 0], strict=True):
        shades = Text()
        for value, line in zip(row.tolist(), between, strict=True):
            shades.append(line)
            if colored:
                shades.append_text(color_cell(" ", value, limits))
            else:
                shades.append(shade_of(value, limits))
        table.add_row(label, shades, _strongest_key(item, row) if room >= LONGEST_LINK else "")
    return table


def _strongest_key(item: AttentionMap, row: NDArray[np.float32]) -> Text:
    if np.isnan(row).all():
        return Text()
    best = int(np.nanargmax(np.abs(row)))
    word = shorten(printable(item.key_tokens[best].text), LONGEST_LINK - 8)
    return Text(f" → {word} {two_digits(float(row[best]))}")


def shade_level(value: float, limits: Limits) -> int:
    """The number of a value's shade, 0 to 4."""
    return sum(abs(value) >= step * limits[1] for step in SHADE_STEPS)


def shade_of(value: float, limits: Limits) -> str:
    """The shade of a value as a character; – for NaN."""
    if math.isnan(value):
        return UNKNOWN
    return (NEGATIVE_SHADES if value < 0 else SHADES)[shade_level(value, limits)]


def _legend(item: AttentionMap, *, colored: bool) -> Text:
    limits = scale_of(item)
    steps = [step * limits[1] for step in SHADE_STEPS]
    legend = Text("shades: ", style="dim")
    for mark, step in zip(SHADES[1:], steps, strict=True):
        legend.append_text(color_cell("  ", step, limits) if colored else Text(mark))
        legend.append(f" from {two_digits(step)}  ")
        if item.values == "signed" and not colored:
            legend.append(f"{NEGATIVE_SHADES[SHADES.index(mark)]} the same below 0  ")
    notes = beyond_note(item, limits), no_value_note(item, "grey" if colored else UNKNOWN)
    return legend.append("".join(f"\n{note}" for note in notes if note))


def _strongest_keys(item: AttentionMap, width: int) -> list[RenderableType]:
    """A line for each row: its three strongest keys, as many as fit.

    Weights have two digits of the largest.
    """
    names = name_tokens(item.key_tokens)
    labels = [row_label(token) for token in item.query_tokens]
    largest = float(np.nan_to_num(np.abs(item.weights)).max())
    decimals = 2 if largest >= 0.1 or not largest else 1 - math.floor(math.log10(largest))
    least = LEAST_SHOWN * 10.0 ** (2 - decimals)
    room = max(label.cell_len for label in labels)
    lines: list[RenderableType] = []
    for label, row in zip(labels, item.weights[0, 0], strict=True):
        label.pad_right(room - label.cell_len)
        there = np.flatnonzero(~np.isnan(row))
        order = there[np.argsort(-np.abs(row[there]), kind="stable")][:STRONGEST]
        links = [
            f"{shorten(names[key], LONGEST_LABEL)} {_number(float(row[key]), decimals)}"
            for key in order
            if abs(row[key]) >= least or key == order[0]
        ]
        line = Text(no_wrap=True, overflow="crop").append_text(label).append(" → ")
        for number, link in enumerate(links):
            text = f" · {link}" if number else link
            if number and line.cell_len + cell_len(text) > width:
                break
            line.append(text)
        lines.append(line if links else label.append(f" {UNKNOWN}"))
    note = f"the {STRONGEST} strongest keys of each row; --max-rows 0 prints all {len(names)}"
    return [*lines, *wrap_text(note, width, "dim")]


def _number(weight: float, decimals: int) -> str:
    if decimals == 2:
        return two_digits(weight)
    return f"{weight:.{decimals}f}".replace("0.", ".", 1).replace("-", "−")


def _numbered_labels(tokens: tuple[Token, ...]) -> Iterator[Text]:
    """Each row's position and label; patches have their position as text already."""
    are_positions = all(token.text == str(place) for place, token in enumerate(tokens))
    digits = 0 if are_positions else len(str(len(tokens) - 1))
    for place, token in enumerate(tokens):
        number = Text(f"{place:>{digits}} ", style="dim") if digits else Text()
        yield Text.assemble(number, row_label(token), " ")


BARS = "▁▂▃▄▅▆▇█"
PROFILE_WIDTH = 16


class TableRenderer(TextRenderer):
    """Tables as text, with colour where the display has it."""

    def parts(self, attention: Attention, views: Views) -> Iterator[list[RenderableType]]:
        overviews = () if self.display.pieces else views.overviews
        for first in overviews:
            yield _overview_lines(first, self.display)
        for view in () if overviews else views():
            yield _view_lines(view, self.display)
        for name, title in LINK_LISTS.items():
            if links := getattr(attention, name)[:LISTED]:
                yield [Text(title, style="dim"), _effect_table(attention, links)]


def _effect_table(attention: Attention, links: Sequence[MeasuredLink]) -> Table:
    """Links with their places, weights and effects."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    columns = ["link", "", "weight", "estimated"]
    some_measured = any(one.measured is not None for one in links)
    if some_measured:
        columns.append("measured")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number > 1 else "left", no_wrap=True)
    for one in links:
        ends = (shorten(end, LONGEST_LABEL) for end in _ends(attention, one))
        where = place_of(one.link)
        if len(attention.maps) > 1:
            where = f"{printable(one.stream)} {where}"
        numbers = [two_digits(one.link.weight), nats(one.estimated)]
        if some_measured:
            numbers.append(UNKNOWN if one.measured is None else nats(one.measured))
        table.add_row(Text(" → ".join(ends)), Text(where), *numbers)
    return table


def _ends(attention: Attention, one: MeasuredLink) -> tuple[str, str]:
    """The names of a link's tokens in their map; their texts if the map has no such tokens."""
    link, streams = one.link, [item.stream for item in attention.maps]
    item = attention.maps[streams.index(one.stream)] if one.stream in streams else attention.main
    rows, columns = name_tokens(item.query_tokens), name_tokens(item.key_tokens)
    if link.query_position < len(rows) and link.key_position < len(columns):
        return rows[link.query_position], columns[link.key_position]
    return printable(link.query), printable(link.key)


def _view_lines(view: View, display: Display) -> list[RenderableType]:
    """The caption, the matrix, a line for each head and the strongest link."""
    width = display.width
    lines: list[RenderableType] = [
        *wrap_text(printable(view.caption), width, "bold", between=" · ")
    ]
    if view.orientation:
        lines.append(Text(printable(view.orientation), style="dim"))
    lines += [*_kinds_line(view.map, width), Text(), *_matrix_lines(view.map, display)]
    if view.heads:
        layer = view.map.layers[0]
        place = axis_name("layer", layer)
        place = f"heads of {place}" if place.startswith("layer") else f"heads, {place}"
        entropy = "; entropy: of rows scaled to 1" if _shows_row_sums(view.heads) else ""
        signed = view.map.values == "signed"
        bars = "mean size of each key's values" if signed else f"what each key receives{entropy}"
        title = Text(f"{printable(place)} (bars: {bars})", style="dim")
        lines += [Text(), title, head_table(view.heads, width, signed=signed)]
    if view.strongest:
        lines.append(strongest_line(view.strongest))
    return lines


def _kinds_line(item: AttentionMap, width: int) -> list[Text]:
    """What the columns are, where they are of several kinds: a line stands between these."""
    counts = count_kinds(item.key_tokens)
    if len(counts) < 2:
        return []
    parts = (kinds_in_words({kind: count}) for kind, count in counts.items())
    return wrap_text(f"keys: {' │ '.join(parts)}", width, "dim")


def _matrix_lines(
    item: AttentionMap, display: Display, order: Sequence[int] = (), numbers: Sequence[int] = ()
) -> list[RenderableType]:
    """A matrix with its rows, or the first in `order` of many, in the order of the text.

    Rows of a part of a text have their `numbers`, those of their tokens unless given.
    """
    rows = len(item.query_tokens)
    if item.starts[0]:
        numbers = [item.position(0, row) for row in range(rows)]
    if numbers:
        pairs = zip(numbers, item.query_tokens, strict=True)
        tokens = tuple(replace(token, text=f"{number} {token.text}") for number, token in pairs)
        item = replace(item, query_tokens=tokens)
    most = display.rows or rows
    if display.short and item.key_side != "columns":
        most = min(most, FIRST_ROWS)
    note = ""
    if rows > most:
        # The rows that say most, unless all are asked for; a name alone would not find them.
        names, best = name_tokens(item.query_tokens), order and not display.whole
        places = sorted(order[:most]) if best else range(most)
        item = item.with_weights(
            item.weights[:, :, list(places)],
            query_tokens=tuple(replace(item.query_tokens[row], text=names[row]) for row in places),
        )
        note = (
            f"{most} of {rows:,} rows that say most" if best else f"first {most} of {rows:,} rows"
        )
        note = f"the {note}: --max-rows {0 if display.short else rows} shows all"
    lines = matrix(item, display.width, colored=display.colors is not None, whole=display.whole)
    return [*lines, *(wrap_text(note, display.width, "dim") if note else [])]


def _overview_lines(view: Overview, display: Display) -> list[RenderableType]:
    """What heads say, what the others do, and the matrix of the first."""
    width = display.width
    lines: list[RenderableType] = [
        *wrap_text(printable(view.run), width, "bold", between=" · "),
        *wrap_text(printable(view.shares), width, "dim"),
    ]
    if view.heads:
        alone = len(view.heads) == 1 and not view.others
        what = "picture" if view.map.key_side == "columns" else "text"
        lines += [Text(), Text("what it says" if alone else f"heads that say most of this {what}")]
        names = [_head_name(one) for one in view.heads]
        room = max(map(cell_len, names)) + 4
        for name, one in zip(names, view.heads, strict=True):
            phrases = " · ".join(_said(one.links, view.map))
            for number, line in enumerate(wrap_text(phrases, max(width - room, 8), between=" · ")):
                start = Text("  ").append("" if number else name, "bold")
                start.pad_right(room - start.cell_len)
                lines.append(start.append_text(line))
    if view.note:
        lines += [Text(), *wrap_text(view.note, width)]
    lines += wrap_text(printable(view.others), width, "dim") if view.others else []
    lines += wrap_text(printable(view.groups), width, "dim") if view.groups else []
    title = Text(f"{printable(view.which)}", style="bold").append(
        f" · {printable(view.orientation)}", style="dim not bold"
    )
    lines += [Text(), title, *_matrix_lines(view.map, display, view.order, view.numbers)]
    if view.resting:
        lines += _resting_lines(view.resting, width)
    if display.hints and view.heads:
        others = (one for one in view.heads[1:2] if one.layer.isdecimal())
        hints = [f"another head: --head {_head_name(one)}" for one in others]
        hints += ["a page: --open", "a picture: --heatmap FILE", "why it looks there: attnviz why"]
        lines += wrap_text(" · ".join(hints), width, "dim", between=" · ")
    return lines


def _head_name(one: HeadLinks) -> str:
    """The address of a head, or a name in words of what several were reduced to."""
    if one.layer.isdecimal() and one.head.isdecimal():
        return f"{one.layer}.{one.head}"
    parts = (("layer", one.layer), ("head", one.head))
    return printable(" ".join(axis_name(*part) for part in parts))


def _said(links: Sequence[Link], item: AttentionMap) -> list[str]:
    """Links between words of a matrix, a word that comes twice with its position.

    In a text shown in blocks each token has its position; one query of all is named once.
    """
    if item.key_side == "columns":
        ends = [(printable(link.query), printable(link.key)) for link in links]
    elif item.is_pooled:
        ends = [
            (
                f"{printable(one.query)}[{one.query_position}]",
                f"{printable(one.key)}[{one.key_position}]",
            )
            for one in links
        ]
    else:
        rows, keys = name_tokens(item.query_tokens), name_tokens(item.key_tokens)
        ends = [(rows[link.query_position], keys[link.key_position]) for link in links]
    phrases = []
    for number, ((query, key), link) in enumerate(zip(ends, links, strict=True)):
        again = number and item.key_side == "columns"
        start = "" if again else f"{shorten(query, LONGEST_LABEL)} → "
        phrases.append(f"{start}{shorten(key, LONGEST_LABEL)} {two_digits(link.weight)}")
    return phrases


def _resting_lines(links: Sequence[Link], width: int) -> list[Text]:
    """The words that give more than half to special tokens, for each of these tokens."""
    lines = []
    for key in dict.fromkeys(link.key for link in links):
        own = [link for link in links if link.key == key]
        words = [
            f"{shorten(printable(one.query), LONGEST_LABEL)} {two_digits(one.weight)}"
            for one in own
        ]
        more = f" and {len(words) - FEW} more" if len(words) > FEW else ""
        text = f"words that rest on {printable(key)}: {' · '.join(words[:FEW])}{more}"
        lines += wrap_text(text, width, "dim", between=" · ")
    return lines


def strongest_line(link: Link) -> Text:
    """The strongest link, and the option that shows its head."""
    sentence = f"{printable(link.query)} → {printable(link.key)}  {two_digits(link.weight)}"
    places = [
        f"{what} {name}"
        for what, name in (("layer", link.layer), ("head", link.head))
        if name.isdecimal()
    ]
    text = Text.assemble((sentence, "bold"), f" in {' '.join(places)}" if places else "")
    if len(places) == 2:
        text.append(f"  (--head {link.layer}.{link.head} shows it)", style="dim")
    return text


def head_table(heads: Sequence[HeadLine], width: int, *, signed: bool = False) -> Table:
    """A line for each head: bars of what keys receive or of signed sizes, pattern, and entropy."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    bars = min(len(heads[0].profile), PROFILE_WIDTH, max(width // 5, 4))
    numbers = max(len(line.head) for line in heads)
    table.add_column("", no_wrap=True, min_width=numbers)
    table.add_column("keys", no_wrap=True, min_width=bars)
    names = ("strongest", "value", "sizes") if signed else ("does most", "share", "entropy")
    table.add_column(names[0], no_wrap=True)
    columns = [(names[1], 5), (names[2], 7)]
    room = width - numbers - max(bars, 4) - 12 - 8
    with_sums = _shows_row_sums(heads)
    if with_sums:
        columns.append(("row sum", 7))
        room -= 9
    for name, least in columns:
        table.add_column(name, justify="right", no_wrap=True, min_width=least)
    top = max(float(line.profile.max()) for line in heads)
    for line in heads:
        cells: list[Text | str] = [
            Text(printable(line.head)),
            sparkline(line.profile, bars, top),
            Text(shorten(printable(line.pattern), max(room, 4))),
            two_digits(line.weight),
            two_digits(line.mass) if signed else decimals(line.entropy),
        ]
        table.add_row(*cells, *([two_digits(line.mass)] if with_sums else []))
    return table


def _shows_row_sums(heads: Sequence[HeadLine]) -> bool:
    """True where rows do not sum to 1, so that their entropy is that of scaled rows."""
    return any(abs(line.mass - 1) > 0.01 and not np.isnan(line.entropy) for line in heads)


def sparkline(profile: NDArray[np.float64], width: int, top: float) -> str:
    """The profile as bars; a bar of several keys shows the largest."""
    edges = [round(place * len(profile) / width) for place in range(width + 1)]
    peaks = [float(profile[low:high].max()) for low, high in pairwise(edges)]
    levels = (int(max(peak, 0.0) / (top or 1.0) * len(BARS)) for peak in peaks)
    return "".join(BARS[min(level, len(BARS) - 1)] for level in levels)
