"""What each key does: it makes another state of one, or names work for which a model is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, TypeAlias

from attnviz.core import attention_map, errors, registry, tokens
from attnviz.core.effects import HeadAt, Intervention, LinkAt, TokenAt
from attnviz.features.browse.ask import Subject
from attnviz.features.browse.state import MOST_AT_ONCE, NOTHING, State

Changes = dict[str, Any]  # fields of a state
Work = Callable[[], Changes]  # what is done in a thread of its own, and what it changes
Step: TypeAlias = State | Work | str  # another state, work, or the name of what the app does
Act: TypeAlias = str | dict[str, Any]  # of a click: its key, or the places that it chooses

NO_MODEL = "maps that are saved have no model, attnviz browse TEXT --model NAME has one"
NO_LINK = "no strong link is known between these blocks, z shows the tokens of one"
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


def press(state: State, act: Act) -> Step:
    if isinstance(act, str):
        return STEPS[act](state) if act in STEPS else _move(state, act)
    if "head" in act:  # a second click leads into its matrix
        again = (act["layer"], act["head"]) == (state.layer, state.head)
        act = {**act, "matrix": again}
    return replace(state, **{"key": None, **act})


def _move(state: State, key: str) -> State:
    """An arrow, tab, home or end: another head, token or link."""
    item, last = state.item, len(state.item.query_tokens) - 1
    turns = {"tab": 1, "shift+tab": -1, "pageup": -10, "pagedown": 10, "home": -last, "end": last}
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    down, across = steps.get(key, (0, 0))
    if key in turns:
        query = state.query + turns[key]
        query = query % (last + 1) if "tab" in key else within(query, last + 1)
        return replace(state, query=query, key=None)
    if not state.matrix:
        layer = within(state.layer + down, len(item.layers))
        head = within(state.head + across, len(item.heads))
        return replace(state, layer=layer, head=head, key=None) if key in steps else state
    if state.over_picture and item.query_side == item.key_side:
        rows, columns = tokens.patch_grid(item.key_tokens)
        first = last + 1 - rows * columns
        row, column = divmod(max(state.query - first, 0), columns)
        patch = within(row + down, rows) * columns + within(column + across, columns)
        return replace(state, query=first + patch, key=None)
    key_place = within(state.aim + across, len(item.key_tokens)) if across else state.key
    return replace(state, query=within(state.query + down, last + 1), key=key_place)


def within(place: int, count: int) -> int:
    return min(max(place, 0), count - 1)


def perform(state: State, work: Work) -> tuple[State, Changes]:
    """What work makes of the state, and what it changes; where it fails, a message."""
    try:
        changes = work()
        return state.see(**changes), changes
    except errors.AttnvizError as error:
        message = str(error)
    except MemoryError:
        message = "not enough memory for that"
    except OSError as error:
        message = f"cannot do that: {error.strerror or error}"
    return state.say(message), {"message": message}


def _soon(state: State, work: Work) -> Step:
    """What is done at once with maps that are small."""
    return perform(state, work)[0] if state.base.main.weights.size <= MOST_AT_ONCE else work


def _next(state: State, *, first: bool = False) -> Step:
    return _soon(state, lambda: state.next_head(first=first))


def read(subject: Subject, **more: Any) -> Changes:
    """What changes as the model answers about a text."""
    subject, attention = subject.attend()
    return _see(attention) | {"subject": subject, "pictures": subject.pixels(attention), **more}


def _see(attention: attention_map.Attention, **more: Any) -> Changes:
    """What changes where a model answered otherwise."""
    whole = {"raw": attention, "base": attention, "off": NOTHING, "effect": "", "key": None}
    return {**whole, "lens": "raw", "window": False, **more}


def _text(state: State, *, step: int) -> Step:
    number = state.number + step

    def work() -> Changes:
        subject = state.subjects.at(number)
        if subject is None:
            return {"message": f"there is no text {'behind' if step > 0 else 'before'} this one"}
        try:
            return read(subject, number=number, message=f"text {number}")
        except errors.AttnvizError as error:
            return {"number": number, "message": str(error)}  # the next key goes past it

    return work


def lens(state: State, name: str = "") -> Work:
    """Work that looks through a lens, or the next; or else the first behind it that can be used."""
    can = {one for one, row in registry.LENSES.items() if state.live or row.needs == "weights"}
    names = ["raw", *(one for one in registry.LENSES if one in {*can, name})]
    first = names.index(name or state.lens) + (not name)

    def work() -> Changes:
        refusals: list[str] = []
        for one in [*names[first:], *names]:
            if one == state.lens:
                break
            try:
                attention = state.subject.through(state.raw, one)
            except errors.AttnvizError as error:
                refusals.append(f"{one}: {error}")
                continue
            said = f"left out {'; '.join(refusals)}" if refusals else ""
            return _see(attention, raw=state.raw, window=state.window, lens=one, message=said)
        return {"message": [*refusals, "there is no other lens"][0]}

    return work


def _raw_head(state: State) -> HeadAt | None:
    """The chosen head of the model; None where a lens has combined heads."""
    (layer, head), raw = state.place, state.raw_map
    is_head = layer in raw.layers and head in raw.heads
    return HeadAt(raw.stream, layer, raw.heads.index(head)) if is_head else None


def _raw_links(state: State) -> list[LinkAt]:
    """The links between tokens that the chosen one stands for, in its head.

    Of a text in blocks they are the strongest ones, which are known one by one.
    """
    at, raw = _raw_head(state), state.raw_map
    if at is None:
        return []
    cells = [*product(state.positions(0, state.query), state.positions(1, state.aim))]
    strong = {
        (one.query_position, one.key_position)
        for one in raw.links
        if (one.layer, one.head) == state.place
    }
    cells = [cell for cell in cells if not raw.is_pooled or cell in strong]
    return [LinkAt(raw.stream, *cell, at.layer, at.head) for cell in cells]


def _switch(state: State, *, token: bool = False) -> Step:
    """Ask what happens with a head, a link or a token off too, or on again where it was off."""
    at, raw, name = _raw_head(state), state.raw_map, "heads"
    parts: list[Any] = [at] if at else []
    if token:
        here = raw.query_side == raw.key_side and not state.matrix
        places = state.positions(1, state.query if here else state.aim)
        name, parts = "tokens", [TokenAt(raw.key_side, one) for one in places]
    elif state.matrix:
        name, parts = "links", _raw_links(state)
    if not state.live or not parts:
        return state.say(f"nothing is switched off: {_lack(state)}")
    old = getattr(state.off, name)
    parts = [one for one in (*old, *parts) if (one in old) != (one in parts)]
    return _off(state, replace(state.off, **{name: tuple(parts)}))


def _lack(state: State) -> str:
    """Why there is nothing to ask about a link or a head."""
    return NO_MODEL if not state.live else NO_LINK if _raw_head(state) else NO_HEAD


def _off(state: State, off: Intervention) -> Work:
    def work() -> Changes:
        attention, effect = None, ""
        if off != NOTHING:
            # Maps of a text in blocks would be too large: only the effect is told.
            whole = not state.raw.main.is_pooled and not state.window
            attention, effect = state.subject.change(off, maps=whole)
        base = attention or state.raw
        return {"off": off, "effect": effect, "base": base, "lens": "raw"}

    return work


def _why(state: State) -> Step:
    links = _raw_links(state)

    if not links or not state.live:
        return state.say(f"why it looks there is not known: {_lack(state)}")
    return lambda: {"page": state.subject.why(links[-1], max(state.size[0] - 4, 40))}


def _map(state: State) -> Step:
    if len(state.seen.maps) == 1:
        return state.say("there is one stream")
    stream = (state.stream + 1) % len(state.seen.maps)
    places, shape = ("layer", "head", "query"), state.seen.maps[stream].weights.shape
    new: Changes = {"stream": stream, "key": None}
    for name, count in zip(places, shape, strict=False):
        new[name] = within(getattr(state, name), count)
    return replace(state, **new)


def _zoom(state: State) -> Step:
    item = state.item
    if not state.live or not (state.window or item.is_pooled):
        return replace(state, blocks=not state.in_blocks)
    first = item.position(0, state.query)
    window = None if state.window else (first, first + item.blocks[0] - 1)
    return lambda: _see(state.subject.attend(window=window)[1], window=window is not None)


STEPS: dict[str, Callable[[State], Step]] = {
    "escape": lambda state: replace(state, matrix=False, key=None),
    "enter": lambda state: replace(state, matrix=not state.matrix),
    "n": _next,
    "N": partial(_next, first=True),
    "]": partial(_text, step=1),
    "[": partial(_text, step=-1),
    "/": lambda state: "edit" if state.live else state.say(f"no text is edited: {NO_MODEL}"),
    "x": _switch,
    "t": partial(_switch, token=True),
    "X": lambda state: state if state.off == NOTHING else _off(state, NOTHING),
    "w": _why,
    "l": lens,
    "m": _map,
    "s": lambda state: _soon(state, lambda: {"special": not state.special}),
    "p": lambda state: _soon(state, lambda: {"words": not state.words}),
    "z": _zoom,
    "o": lambda _: "save",
    "y": lambda _: "copy",
    "?": lambda _: "keys",
    "q": lambda _: "leave",
}
"""What each key does that has one meaning."""
