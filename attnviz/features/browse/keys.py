"""What each key does: it makes another state of one, or names work for which a model is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, TypeAlias

from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt, Intervention, LinkAt, TokenAt
from attnviz.core.errors import AttnvizError
from attnviz.core.registry import LENSES
from attnviz.core.tokens import patch_grid
from attnviz.features.browse.ask import Asker
from attnviz.features.browse.state import (
    MOST_AT_ONCE,
    NOTHING,
    State,
    answer,
    go_next,
    positions,
    rank_heads,
    say,
    see,
)

Change = Callable[[State], State]
Work = Callable[[Asker], Change]
"""What is done in a thread of its own, and what it makes of the state by then."""
Act: TypeAlias = "str | dict[str, Any]"
"""What a click does: the key that it stands for, or the places that it chooses."""
Step: TypeAlias = State | Work | str
"""What a key makes of a state: another one, work, or the name of what the app does."""

NO_MODEL = "maps that are saved have no model, attnviz browse TEXT --model NAME has one"
NO_LINK = "no strong link is known between these blocks, z shows the tokens of one"
TOO_LARGE = "this map is too large for that: a shorter text would do"
NO_HEAD = "this is no head of the model: l leads back to raw weights"

# Each row: a key, its word in the footer, and what it does.
KEYS: tuple[tuple[str, str, str], ...] = (
    ("tab", "token", "the next token; shift+tab the one before, home and end the first and last"),
    ("↑↓", "layer", "another layer; in the matrix another row"),
    ("←→", "head", "another head; in the matrix another column"),
    ("enter", "matrix", "let the arrows move over the matrix; esc lets them move over heads"),
    ("n", "next", "the next head by what it says of this text; N the one that says most"),
    ("/", "edit", "edit the text, and let the model answer again; tab goes to the target"),
    ("x", "off", "switch the head off or on; in the matrix the link"),
    ("t", "hide", "hide the token from all others, or show it again; X switches all on"),
    ("w", "why", "why the token looks there"),
    ("l", "lens", "the next lens"),
    ("m", "map", "the next stream: encoder, decoder, cross, …"),
    ("]", "text", "the next of several texts; [ the one before"),
    ("s", "special", "leave special tokens out, or show them"),
    ("p", "pieces", "pieces or whole words"),
    ("z", "zoom", "blocks or numbers; of a text in blocks, the tokens of this one"),
    ("o", "save", "save what is seen, as a picture and as data"),
    ("y", "copy", "copy the command that prints this view"),
    ("?", "keys", "this list"),
    ("q", "quit", "leave; ctrl+z stops the program, esc ends slow work"),
)


def press(state: State, key: str, character: str | None = None) -> tuple[State, Work | str | None]:
    """What a key makes of the state, and what it asks for, if anything."""
    state = replace(state, message="")
    name = character if character is not None and character in STEPS else key
    step = STEPS[name](state) if name in STEPS else _move(state, name)
    return (step, None) if isinstance(step, State) else (state, step)


def touch(state: State, act: Act, shift: int) -> tuple[State, Work | str | None]:
    """What a click does on a part of a line that stands for `act`, so many cells into it."""
    if isinstance(act, str):
        return press(state, act) if act else (state, None)
    places: dict[str, Any] = {"key": None, "message": "", **act}
    if "head" in act:  # a second click leads into its matrix
        places["matrix"] = (act["layer"], act["head"]) == (state.layer, state.head)
    elif "cells" in act:  # of a picture or a matrix: the line, the first cell, how many there are
        (line, start, high, wide), keys = places.pop("cells"), state.item.key_tokens
        rows, columns = patch_grid(keys) if state.over_picture else state.weights.shape
        row, column = line * rows // high, (start + shift) * columns // wide
        places |= {"query": row, "key": column, "matrix": True}
        if state.over_picture:
            patch = len(keys) - rows * columns + row * columns + column
            of_query = state.item.query_side == "picture"
            places["query"] = patch if of_query else state.query
            places["key"] = None if of_query else patch
    return replace(state, **places), None


def _move(state: State, key: str) -> State:
    """An arrow, tab, home or end: another head, token or link."""
    item, last = state.item, len(state.item.query_tokens) - 1

    def within(place: int, count: int) -> int:
        return min(max(place, 0), count - 1)

    turns = {"tab": 1, "shift+tab": -1, "pageup": -10, "pagedown": 10, "home": -last, "end": last}
    if key in turns:
        place = state.query + turns[key]
        place = place % (last + 1) if "tab" in key else within(place, last + 1)
        return replace(state, query=place, key=None)
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    if key not in steps:
        return state
    down, across = steps[key]
    if not state.matrix:
        layer = within(state.layer + down, len(item.layers))
        head = within(state.head + across, len(item.heads))
        return replace(state, layer=layer, head=head, key=None)
    if state.over_picture and item.query_side == item.key_side:
        rows, columns = patch_grid(item.key_tokens)
        first = last + 1 - rows * columns
        row, column = divmod(max(state.query - first, 0), columns)
        patch = within(row + down, rows) * columns + within(column + across, columns)
        return replace(state, query=first + patch, key=None)
    aim = within(state.aim + across, len(item.key_tokens)) if across else state.key
    return replace(state, query=within(state.query + down, last + 1), key=aim)


def change_of(work: Work, asker: Asker) -> Change:
    """What work makes of the state; where it fails, a message."""
    try:
        return work(asker)
    except AttnvizError as error:
        message = str(error)
    except MemoryError:
        message = "not enough memory for that"
    except OSError as error:
        message = f"cannot do that: {error.strerror or error}"
    return partial(say, text=message)


def _soon(state: State, work: Work) -> Step:
    """What is done at once with maps that are small."""
    small = state.base.main.weights.size <= MOST_AT_ONCE
    return change_of(work, Asker())(state) if small else work


def _next(state: State, *, first: bool = False) -> Step:
    def work(_: Asker) -> Change:
        state.note("rank", lambda: rank_heads(state))
        # Other maps may be seen by then.
        return lambda now: go_next(now, first=first) if now.memo is state.memo else now

    return _soon(state, work)


def _see(state: State, **changes: bool) -> Step:
    def work(_: Asker) -> Change:
        new = see(state, **changes)
        refusal = "" if all(getattr(new, name) == on for name, on in changes.items()) else TOO_LARGE
        new = replace(new, message=refusal)
        return lambda now: replace(new, size=now.size) if now.base is state.base else now

    return _soon(state, work)


def write(texts: tuple[str, ...], to: str | None = None) -> Work:
    """Work that reads other texts; to: the language of the target where it is known."""

    def work(asker: Asker) -> Change:
        return _read(asker, asker.attend(asker.with_texts(texts), to=to))

    return work


def _read(asker: Asker, attention: Attention, **more: Any) -> Change:
    pictures = asker.pixels(attention)
    return lambda now: answer(now, attention, window=False, pictures=pictures, **more)


def _record(step: int, asker: Asker) -> Change:
    return _read(asker, asker.move(step), message=f"text {asker.number}")


def save(state: State, names: tuple[str, ...]) -> Work:
    """Work that writes what is seen."""
    return lambda asker: partial(say, text=asker.save(state, names[0]))


def lens(state: State, name: str) -> Work:
    """Work that looks through a lens, or the first behind it that can be used."""
    names = ["raw", *(one for one, row in LENSES.items() if state.live or row.needs == "weights")]

    def work(asker: Asker) -> Change:
        refusals: list[str] = []
        for one in [*names[names.index(name) :], *names]:
            if one == state.lens:
                break
            try:
                attention = asker.through(state.raw, one)
            except AttnvizError as error:
                refusals.append(f"{one}: {error}")
                continue
            text = f"left out {'; '.join(refusals)}" if refusals else ""
            return lambda now: answer(now, attention, raw=now.raw, lens=one, message=text)
        return partial(say, text=refusals[0] if refusals else "there is no other lens")

    return work


def _lens(state: State) -> Step:
    names = [*LENSES, "raw"]
    return lens(state, names[(names.index(state.lens) + 1) % len(names)])


def _raw_links(state: State) -> list[LinkAt]:
    """The links between tokens that the chosen one stands for, in its head; none of a lens.

    Of a text in blocks they are the strongest ones, which are known one by one.
    """
    (layer, head), raw = state.item.place(state.layer, state.head), state.raw_map
    if layer not in raw.layers or head not in raw.heads:
        return []
    cells = [*product(positions(state, 0, state.query), positions(state, 1, state.aim))]
    if raw.is_pooled:
        own = [at for at in raw.links if (at.layer, at.head) == (layer, head)]
        strong = {(at.query_position, at.key_position) for at in own}
        cells = [cell for cell in cells if cell in strong]
    return [LinkAt(raw.stream, *cell, layer, raw.heads.index(head)) for cell in cells]


def _switch(state: State, *, token: bool = False) -> Step:
    """Ask what happens with a head, a link or a token off too, or on again where it was off."""
    raw, (layer, head) = state.raw_map, state.item.place(state.layer, state.head)
    is_head = layer in raw.layers and head in raw.heads
    if token:
        here = raw.query_side == raw.key_side and not state.matrix
        places = positions(state, 1, state.query if here else state.aim)
        more = Intervention(tokens=tuple(TokenAt(raw.key_side, at) for at in places))
    elif state.matrix:
        more = Intervention(links=tuple(_raw_links(state)))
    else:
        more = Intervention((HeadAt(raw.stream, layer, raw.heads.index(head)),) if is_head else ())
    if not state.live or more == NOTHING:
        why = NO_MODEL if not state.live else NO_LINK if is_head else NO_HEAD
        return say(state, f"nothing is switched off: {why}")
    off: dict[str, Any] = {}
    for name in ("heads", "links", "tokens"):
        old, new = getattr(state.off, name), getattr(more, name)
        off[name] = tuple(one for one in (*old, *new) if (one in old) != (one in new))
    return _off(state, Intervention(**off))


def _off(state: State, off: Intervention) -> Work:
    def work(asker: Asker) -> Change:
        changes: dict[str, Any] = {"off": off, "effect": "", "base": state.raw, "lens": "raw"}
        if off != NOTHING:
            # Maps of a text in blocks would be too large: only the effect is told.
            whole = not state.raw.main.is_pooled and not state.window
            attention, changes["effect"] = asker.change(off, maps=whole)
            changes["base"] = attention or state.raw
        return lambda now: see(now, **changes)

    return work


def _why(state: State) -> Step:
    links = _raw_links(state)

    def work(asker: Asker) -> Change:
        lines = asker.why(links[-1], max(state.size[0] - 4, 40))
        return lambda now: replace(now, page=lines)

    if links and state.live:
        return work
    why = NO_MODEL if not state.live else NO_LINK if state.raw_map.is_pooled else NO_HEAD
    return say(state, f"why it looks there is not known: {why}")


def _map(state: State) -> Step:
    if len(state.seen.maps) == 1:
        return say(state, "there is one stream")
    stream = (state.stream + 1) % len(state.seen.maps)
    item, places = state.seen.maps[stream], (state.layer, state.head, state.query)
    ends = (*item.weights.shape[:2], len(item.query_tokens))
    layer, head, query = (min(at, end - 1) for at, end in zip(places, ends, strict=True))
    return replace(state, stream=stream, layer=layer, head=head, query=query, key=None)


def _zoom(state: State) -> Step:
    item = state.item
    if not state.live or not (state.window or item.is_pooled):
        return replace(state, blocks=not state.in_blocks)
    first = item.position(0, state.query)
    window = None if state.window else (first, first + item.blocks[0] - 1)

    def work(asker: Asker) -> Change:
        attention = asker.attend(window=window)
        return lambda now: answer(now, attention, window=window is not None)

    return work


STEPS: dict[str, Callable[[State], Step]] = {
    "escape": lambda state: replace(state, matrix=False, key=None),
    "enter": lambda state: replace(state, matrix=not state.matrix),
    "n": _next,
    "N": lambda state: _next(state, first=True),
    "]": lambda _: partial(_record, 1),
    "[": lambda _: partial(_record, -1),
    "/": lambda state: "edit" if state.live else say(state, f"no text is edited: {NO_MODEL}"),
    "x": _switch,
    "t": lambda state: _switch(state, token=True),
    "X": lambda state: state if state.off == NOTHING else _off(state, NOTHING),
    "w": _why,
    "l": _lens,
    "m": _map,
    "s": lambda state: _see(state, special=not state.special),
    "p": lambda state: _see(state, words=not state.words),
    "z": _zoom,
    "o": lambda _: "save",
    "y": lambda _: "copy",
    "?": lambda _: "keys",
    "q": lambda _: "quit",
}
"""What each key does that has one meaning."""
