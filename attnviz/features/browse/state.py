"""What is seen, and what a key makes of it: a plain dataclass and functions from state to state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.measures.distance import LEAST_WORDS, WordLinks
from attnviz.analyses.select import cells_between_words, sharpest
from attnviz.analyses.tokens import treat_special
from attnviz.analyses.view import describe, first_focus
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.effects import HeadAt, Intervention, LinkAt, TokenAt
from attnviz.core.errors import AttnvizError
from attnviz.core.registry import LENSES
from attnviz.renderers.colors import block_peaks
from attnviz.renderers.printable import printable, two_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Mode = Literal["", "edit", "save", "page"]
Job = (
    Literal["attend", "type", "lens", "off", "why", "rank"]
    | Literal["see", "save", "copy", "window", "record", "suspend", "quit"]
)
Colors = Literal["truecolor", "256", "standard"] | None


NOTHING = Intervention()


class Request(NamedTuple):
    """What a key asks of the world around the state."""

    job: Job
    value: Any = None


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a screen is drawn from.

    Attributes:
        raw: what the model answered, or the saved maps.
        base: the same through the lens, or with parts off.
        seen: the same with or without special tokens, in pieces or words.
        texts: what was read: a text, a source and its target, or none of saved maps.
        stream, layer, head, query: places in `seen`; so is `key`, None for the strongest.
        matrix: whether the arrows move over the matrix, not over the heads.
        blocks: whether the matrix is drawn in blocks; None: where it is too large for numbers.
        mode: what keys do besides: write in `lines` ("edit", "save") or scroll a `page`.
        off: the parts that are off, by the places of `raw`.
        effect: what they change of the output, in words.
        message: what the line above the keys says; busy: what a model is doing now.
        pictures: for each stream over a picture, its pixels.
        memo: what was worked out of `seen`: thumbnails, words, ranks.
    """

    raw: Attention
    base: Attention
    seen: Attention
    texts: tuple[str, ...] = ()
    live: bool = False
    place: tuple[int, int] = (0, 0)
    stream: int = 0
    layer: int = 0
    head: int = 0
    query: int = 0
    key: int | None = None
    matrix: bool = False
    blocks: bool | None = None
    lens: str = "raw"
    special: bool = True
    words: bool = False
    mode: Mode = ""
    lines: tuple[str, ...] = ()
    line: int = 0
    caret: int = 0
    page: tuple[str, ...] = ()
    scroll: int = 0
    off: Intervention = NOTHING
    effect: str = ""
    message: str = ""
    busy: str = ""
    window: bool = False
    pictures: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    size: tuple[int, int] = (80, 24)
    colors: Colors = "truecolor"
    dark: bool = True
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def item(self) -> AttentionMap:
        """The map of the stream that is seen."""
        return self.seen.maps[self.stream]

    @property
    def weights(self) -> NDArray[np.float32]:
        """The matrix of the head, (queries, keys)."""
        return np.asarray(self.item.weights[self.layer, self.head])

    @property
    def name(self) -> str:
        """The head as options name it: 2.3 is head 3 of layer 2."""
        return ".".join(self.item.place(self.layer, self.head))

    @property
    def row(self) -> NDArray[np.float32]:
        """Where the query looks."""
        return np.asarray(self.weights[self.query])

    @property
    def aim(self) -> int:
        """The key of the link that is looked at: the chosen one, else the strongest."""
        return int(np.nan_to_num(np.abs(self.row)).argmax()) if self.key is None else self.key

    @property
    def over_picture(self) -> bool:
        """Whether keys are patches of a picture."""
        return self.item.key_side == "picture" or self.item.stream in self.pictures

    def note(self, name: Any, make: Callable[[], Any]) -> Any:
        """What was worked out of the maps under that name, or is now."""
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]


def begin(attention: Attention, **fields: Any) -> State:
    """The first state: the head that says most, and the query of its clearest link."""
    state = State(attention, attention, attention, **fields)
    if not attention.main.is_pooled and attention.main.weights.size <= MOST_AT_ONCE:
        state = see(state, words=True)
    item = state.item
    focus = None if item.weights.size > MOST_AT_ONCE else first_focus(attention, item)
    if focus is not None:
        layer, head = item.layers.index(focus.layer), item.heads.index(focus.head)
        state.memo["rank", 0] = rank_heads(state)
        return _at_link(replace(state, layer=layer, head=head))
    first = next((n for n, one in enumerate(item.query_tokens) if not one.special), 0)
    return replace(state, layer=len(item.layers) - 1, query=first)


MOST_AT_ONCE = 2_000_000  # weights that are searched while a reader waits; a worker searches more


def _at_link(state: State) -> State:
    """The state at the query of the link that says most."""
    item = state.item
    if state.over_picture:
        return state
    if ("links", state.stream) in state.memo:
        links = state.memo["links", state.stream]
        query, _ = links.place(state.layer, state.head)
        query = same_place(links.item.query_tokens, query, item.query_tokens)
    else:
        one = item.part([item.layers[state.layer]], [item.heads[state.head]])
        link = sharpest(one)
        query = state.query if link is None else link.query_position
        if one.is_pooled and one.links:  # exact links, by the tokens of the text
            query = (query - one.starts[0]) // one.blocks[0]
    return replace(state, query=query, key=None)


def head_words(state: State) -> str:
    """What the head does most, in words."""

    def make() -> str:
        item = state.item
        if state.weights.size > MOST_AT_ONCE:  # a look at every cell would take seconds
            by_key = overview(state, state.layer, state.head).mean(axis=0)
            place = int(by_key.argmax()) * len(item.key_tokens) // len(by_key)
            return f"most at {printable(item.key_tokens[place].text)}"
        if state.item.values == "signed":
            total = float(np.nan_to_num(np.abs(state.weights)).sum())
            return f"sum of sizes {total:.2f}"
        one = state.item.part([state.item.layers[state.layer]], [state.item.heads[state.head]])
        words, share = describe(one)
        return f"{printable(words)} {two_digits(share)}" if words else ""

    return str(state.note(("words", state.stream, state.layer, state.head), make))


def overview(state: State, layer: int, head: int) -> NDArray[np.float32]:
    """The matrix of a head, of a large one the largest weight of each block."""
    weights = state.item.weights[layer, head]
    if max(weights.shape) <= 2 * OVERVIEW:
        return np.asarray(weights)
    down, across = (-(-size // OVERVIEW) for size in weights.shape)
    name = ("overview", state.stream, layer, head)
    return np.asarray(state.note(name, lambda: block_peaks(weights, down, across)))


OVERVIEW = 512  # rows and columns of an overview, at most: more than any terminal has


def strongest(row: NDArray[np.floating], count: int) -> list[int]:
    """The places of the largest sizes of a row, largest first; those of 0 are left out."""
    sizes = np.nan_to_num(np.abs(row))
    places = np.argsort(-sizes, kind="stable")[:count]
    return [int(place) for place in places if sizes[place] > 0]


def rank_heads(state: State) -> list[tuple[int, int]]:
    """Layers and heads by what they say of the text, most first.

    It is the measure `informative`; of signed values, and where words are too few for it or are
    hidden in blocks, the strongest link.
    """
    item, links = state.item, None
    if item.values == "share" and not item.is_pooled and item.key_side != "picture":
        links = WordLinks(MeasuredMap(item, state.seen.texts_of(item)))
    if links is not None and links.count >= LEAST_WORDS:
        state.memo["links", state.stream] = links
        sizes = links.says(links.item.weights) - links.says(links.uniform)
    else:  # head by head: a copy of all would take their memory again
        cells, heads = cells_between_words(item), item.weights.reshape(-1, *item.weights.shape[2:])
        where: Any = True if cells is None else cells
        sizes = np.array([np.nan_to_num(np.abs(one)).max(where=where, initial=0) for one in heads])
    order = np.argsort(-sizes, axis=None, kind="stable").tolist()
    return [divmod(at, len(item.heads)) for at in order]


# What happens to a state without a key.


def see(state: State, **changes: Any) -> State:
    """The state with other maps, special tokens or words; places stay at their tokens.

    Raises:
        AttnvizError: these maps have no words, or no special tokens, to tell apart.
    """
    new = replace(state, **changes)
    view = new.base
    if is_too_large(view):  # and blocks of tokens have no words
        new = replace(new, words=False, special=True)
    if new.words:
        maps = (merge_words(item, *view.texts_of(item)) for item in view.maps)
        view = view.with_maps(tuple(maps))
    if not new.special:
        view = treat_special(view, "drop")
    stream = next((n for n, one in enumerate(view.maps) if one.stream == state.item.stream), 0)
    item, old = view.maps[stream], state.item
    query = same_place(old.query_tokens, state.query, item.query_tokens)
    key = None if new.key is None else same_place(old.key_tokens, new.key, item.key_tokens)
    layer = min(state.layer, len(item.layers) - 1)
    head = min(state.head, len(item.heads) - 1)
    places: dict[str, Any] = {"stream": stream, "layer": layer, "head": head, "query": query}
    return replace(new, seen=view, memo={}, key=key, **places)


MOST_COPIED = 50_000_000  # weights of maps that are merged into words, or cut, at most: 200 MB


def is_too_large(attention: Attention) -> bool:
    """Whether maps are shown as they are only."""
    size = sum(item.weights.size for item in attention.maps)
    return attention.main.is_pooled or size > MOST_COPIED


def same_place(old: Sequence[Token], place: int, new: Sequence[Token]) -> int:
    """The token of another division that covers the same characters, or is as far along."""
    token = old[min(place, len(old) - 1)]
    for at, one in enumerate(new):
        if one.special == token.special and one.text == token.text and one.start == token.start:
            return at
    for at, one in enumerate(new):
        if not one.special and one.start <= token.start < one.end:
            return at
    return min(place, len(new) - 1)


def places_of(raw: Sequence[Token], tokens: Sequence[Token], place: int) -> list[int]:
    """The raw tokens that one of those that are seen stands for."""
    token = tokens[place]
    if len(raw) == len(tokens):
        return [place]
    inside = [
        at
        for at, one in enumerate(raw)
        if one.special == token.special
        and (one.text == token.text if token.special else token.start <= one.start < token.end)
    ]
    return inside or [same_place(tokens, place, raw)]


def answer(state: State, attention: Attention, **changes: Any) -> State:
    """The state after the model answered about another text, window or lens."""
    raw = changes.pop("raw", attention)
    fields = {"raw": raw, "base": attention, "off": NOTHING, "effect": "", "key": None, **changes}
    try:
        return see(state, **fields)
    except AttnvizError:  # weights of some lenses have no sums, and blocks no words
        message = "here are pieces and special tokens: these weights cannot be added"
        return see(state, **{**fields, "words": False, "special": True, "message": message})


def go_next(state: State) -> State:
    """The next head in the order of what they say of the text."""
    order = state.memo[("rank", state.stream)]
    at = (state.layer, state.head)
    number = (order.index(at) + 1) % len(order) if at in order else 0
    layer, head = order[number]
    state = _at_link(replace(state, layer=layer, head=head, key=None))
    return replace(state, message=f"head {number + 1} of {len(order)} by the measure informative")


# Keys. Each row: its names, its words in the footer, what it does.

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
    ("s", "special", "leave special tokens out, or show them"),
    ("p", "pieces", "pieces or whole words"),
    ("z", "zoom", "blocks or numbers; of a text in blocks, the tokens of this one"),
    ("]", "text", "the next of several texts; [ the one before"),
    ("o", "save", "save what is seen, as a picture and as data"),
    ("y", "copy", "copy the command that prints this view"),
    ("?", "keys", "this list"),
    ("q", "quit", "leave; ctrl+z stops the program, esc ends slow work"),
)


def press(state: State, key: str, character: str | None = None) -> tuple[State, Request | None]:
    """What a key makes of the state, and what it asks for, if anything."""
    if key == "ctrl+c":
        return state, Request("quit", 130)
    if key == "ctrl+z":
        return state, Request("suspend")
    state = replace(state, message="")
    if state.mode == "page":
        return _press_page(state, key)
    if state.mode:
        return _press_line(state, key, character)
    name = character if character is not None and character in COMMANDS else key
    step = COMMANDS[name](state) if name in COMMANDS else _move(state, key)
    return (state, step) if isinstance(step, Request) else (step, None)


def _press_page(state: State, key: str) -> tuple[State, Request | None]:
    steps = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -(10**6)}
    if key in steps:
        last = max(len(state.page) - 1, 0)
        return replace(state, scroll=min(max(state.scroll + steps[key], 0), last)), None
    return replace(state, mode="", page=(), scroll=0), None


def _press_line(
    state: State, key: str, character: str | None = None
) -> tuple[State, Request | None]:
    """A key while a line is written."""
    text, caret = state.lines[state.line], state.caret
    if key in ("escape", "enter"):
        lines = tuple(" ".join(line.split()) for line in state.lines)
        job: Job = "attend" if state.mode == "edit" else "save"
        asks = key == "enter" and lines[0]
        return replace(state, mode="", lines=()), Request(job, lines) if asks else None
    if key in ("tab", "shift+tab"):
        line = (state.line + 1) % len(state.lines)
        return replace(state, line=line, caret=len(state.lines[line])), None
    places = {"left": caret - 1, "right": caret + 1, "home": 0, "end": len(text)}
    if key in places:
        return replace(state, caret=min(max(places[key], 0), len(text))), None
    word = len(text[:caret].rstrip().rpartition(" ")[0])
    cuts = {"backspace": (max(caret - 1, 0), caret), "delete": (caret, caret + 1)}
    cuts |= {"ctrl+u": (0, caret), "ctrl+w": (word, caret)}
    if key in cuts:
        first, last = cuts[key]
        return _write(state, text[:first] + text[last:], first)
    return insert(state, character) if character and character.isprintable() else (state, None)


MOST_WRITTEN = 8_000  # characters of a line that is written


def insert(state: State, text: str) -> tuple[State, Request | None]:
    """The state with text written, or pasted, where the caret is."""
    if state.mode not in ("edit", "save"):
        return state, None
    text = "".join(one if one.isprintable() else " " for one in text)[:MOST_WRITTEN]
    line, caret = state.lines[state.line], state.caret
    return _write(state, (line[:caret] + text + line[caret:])[:MOST_WRITTEN], caret + len(text))


def _write(state: State, text: str, caret: int) -> tuple[State, Request | None]:
    lines = (*state.lines[: state.line], text, *state.lines[state.line + 1 :])
    state = replace(state, lines=lines, caret=min(caret, len(text)))
    # What stands behind the last space is still being written.
    asks = state.mode == "edit" and all(line.strip() for line in lines)
    return state, Request("type", lines) if asks else None


def _move(state: State, key: str) -> State:
    """An arrow, tab, home or end: another head, token or link."""
    item = state.item
    queries, keys = len(item.query_tokens), len(item.key_tokens)
    turns = {"tab": 1, "shift+tab": -1, "pageup": -10, "pagedown": 10}
    if key in turns:
        place = state.query + turns[key]
        place = place % queries if "tab" in key else min(max(place, 0), queries - 1)
        return replace(state, query=place, key=None)
    if key in ("home", "end"):
        return replace(state, query=0 if key == "home" else queries - 1, key=None)
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    if key not in steps:
        return state
    down, across = steps[key]
    if not state.matrix:
        layer = min(max(state.layer + down, 0), len(item.layers) - 1)
        head = min(max(state.head + across, 0), len(item.heads) - 1)
        return replace(state, layer=layer, head=head, key=None)
    if state.over_picture and item.query_side == item.key_side:
        rows, columns, first = patch_sides(item)
        at = max(state.query - first, 0)
        row = min(max(at // columns + down, 0), rows - 1)
        column = min(max(at % columns + across, 0), columns - 1)
        return replace(state, query=first + row * columns + column, key=None)
    query = min(max(state.query + down, 0), queries - 1)
    key_place = min(max(state.aim + across, 0), keys - 1) if across else state.key
    return replace(state, query=query, key=key_place)


def patch_sides(item: AttentionMap) -> tuple[int, int, int]:
    """Rows and columns of a picture's patches, and the place of the first one."""
    from attnviz.core.tokens import patch_grid

    rows, columns = patch_grid(item.key_tokens)
    return rows, columns, len(item.key_tokens) - rows * columns


def looks_of(
    item: AttentionMap, layer: int, head: int, query: int | None = None
) -> NDArray[np.float32]:
    """The weights of the patches (rows, columns) from a query; None: the mean over queries."""
    rows, columns, first = patch_sides(item)
    weights = item.weights[layer, head]
    row = weights.mean(axis=0) if query is None else weights[query]
    return np.asarray(row[first:].reshape(rows, columns), dtype=np.float32)


def touch(state: State, act: tuple[Any, ...], shift: int) -> tuple[State, Request | None]:
    """What a click does on a part of a line that stands for `act`, so many cells into it."""
    if state.mode in ("edit", "save") or not act:
        return state, None
    kind, *at = act
    if kind == "press":
        return press(state, at[0])
    places: dict[str, Any] = {"key": None, "message": ""}
    if kind == "head":  # a second click leads into its matrix
        places |= {"layer": at[0], "head": at[1], "matrix": at == [state.layer, state.head]}
    elif kind == "query":
        places |= {"query": at[0]}
    elif kind == "key":
        places |= {"key": at[0], "matrix": True}
    elif kind == "cell":
        places |= {"query": at[0], "key": at[1], "matrix": True}
    else:  # a matrix in blocks, or a picture: the line and the first cell, and how many there are
        line, start, high, wide = at
        places["matrix"] = True
        if kind == "block":
            queries, keys = state.weights.shape
            places |= {"query": line * queries // high, "key": (start + shift) * keys // wide}
        else:
            rows, columns, first = patch_sides(state.item)
            patch = first + line * rows // high * columns + (start + shift) * columns // wide
            places["query" if state.item.query_side == "picture" else "key"] = patch
    return replace(state, **places), None


Step = State | Request  # what a key makes of a state: another one, or a request


def say(state: State, text: str) -> State:
    """The state with a message."""
    return replace(state, message=text)


def _next(state: State, *, first: bool = False) -> Step:
    if ("rank", state.stream) not in state.memo:
        if state.item.weights.size > MOST_AT_ONCE:
            return Request("rank", first)
        state.memo["rank", state.stream] = rank_heads(state)
    return go_next(replace(state, layer=-1) if first else state)


def _edit(state: State) -> Step:
    if not state.live:
        return say(state, f"the text cannot be edited: {NO_MODEL}")
    return _write_in(state, "edit", state.texts) if state.texts else say(state, "there is no text")


def _write_in(state: State, mode: Mode, lines: tuple[str, ...]) -> State:
    return replace(state, mode=mode, lines=lines, line=0, caret=len(lines[0]))


NO_MODEL = "maps that are saved have no model, attnviz browse TEXT --model NAME has one"
NO_LINK = "no strong link is known between these blocks, z shows the tokens of one"
NO_HEAD = "this is no head of the model: l leads back to raw weights"


def raw_map(state: State) -> AttentionMap:
    """The map of the stream as the model answered it."""
    stream = state.item.stream
    return next((one for one in state.raw.maps if one.stream == stream), state.raw.main)


def positions(state: State, axis: int, place: int) -> list[int]:
    """The positions in the text of the tokens that a row (axis 0) or column (axis 1) stands for."""
    raw, item = raw_map(state), state.item
    sides = (raw.query_tokens, item.query_tokens), (raw.key_tokens, item.key_tokens)
    firsts = [raw.position(axis, at) for at in places_of(*sides[axis], place)]
    return [at for first in firsts for at in range(first, first + raw.blocks[axis])]


def raw_links(state: State) -> list[LinkAt]:
    """The links between tokens that the chosen one stands for, in its head; none of a lens.

    Of a text in blocks they are the strongest ones, which are known one by one.
    """
    (layer, head), raw = state.item.place(state.layer, state.head), raw_map(state)
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
    raw, item = raw_map(state), state.item
    layer, head = item.place(state.layer, state.head)
    links = raw_links(state) if state.matrix and not token else []
    if not state.live:
        return say(state, f"nothing is switched off: {NO_MODEL}")
    if not token and (layer not in raw.layers or head not in raw.heads):
        return say(state, f"nothing is switched off: {NO_HEAD}")
    if state.matrix and not token and not links:
        return say(state, f"nothing is switched off: {NO_LINK}")
    off = state.off
    if token:
        here = item.query_side == item.key_side and not state.matrix
        place = state.query if here else state.aim
        places = positions(state, 1, place)
        more = Intervention(tokens=tuple(TokenAt(raw.key_side, at) for at in places))
    elif state.matrix:
        more = Intervention(links=tuple(links))
    else:
        more = Intervention((HeadAt(raw.stream, layer, raw.heads.index(head)),))
    pairs = (off.heads, more.heads), (off.links, more.links), (off.tokens, more.tokens)
    parts: Any = (
        tuple(one for one in (*old, *new) if (one in old) != (one in new)) for old, new in pairs
    )
    return Request("off", Intervention(*parts))


def _why(state: State) -> Step:
    links = raw_links(state)
    if links and state.live:
        return Request("why", links[-1])
    why = NO_LINK if raw_map(state).is_pooled else NO_HEAD
    return say(state, f"why it looks there is not known: {why if state.live else NO_MODEL}")


def next_lens(lens: str, *, live: bool) -> str:
    """The lens behind this one; without a model only those of weights."""
    names = ["raw", *(name for name, row in LENSES.items() if live or row.needs == "weights")]
    return names[(names.index(lens) + 1) % len(names)]


def _map(state: State) -> Step:
    if len(state.seen.maps) == 1:
        return say(state, "there is one stream")
    stream = (state.stream + 1) % len(state.seen.maps)
    item = state.seen.maps[stream]
    ends = (*item.weights.shape[:2], len(item.query_tokens))
    places = (state.layer, state.head, state.query)
    layer, head, query = (min(at, end - 1) for at, end in zip(places, ends, strict=True))
    return replace(state, stream=stream, layer=layer, head=head, query=query, key=None)


def _see(state: State, **changes: bool) -> Step:
    if is_too_large(state.base):
        return say(state, "this map is too large for that: a shorter text would do")
    if state.base.main.weights.size > MOST_AT_ONCE:
        return Request("see", changes)
    try:
        return see(state, **changes)
    except AttnvizError as error:
        return say(state, str(error))


def _zoom(state: State) -> Step:
    item = state.item
    if state.live and (state.window or item.is_pooled):
        first = item.position(0, state.query)
        return Request("window", None if state.window else (first, first + item.blocks[0] - 1))
    return replace(state, blocks=not draws_blocks(state))


MOST_IN_NUMBERS = 64  # tokens beyond which a matrix is drawn in blocks unless asked otherwise


def draws_blocks(state: State) -> bool:
    """Whether the matrix is drawn in blocks and not in numbers."""
    return max(state.weights.shape) > MOST_IN_NUMBERS if state.blocks is None else state.blocks


def _save(state: State) -> Step:
    return _write_in(state, "save", (f"attention-{state.name}" if state.matrix else "attention",))


def _help(state: State) -> Step:
    page = tuple(f"{key:<6} {does}" for key, _, does in KEYS)
    return replace(state, mode="page", page=page, scroll=0)


COMMANDS: dict[str, Callable[[State], Step]] = {
    "escape": lambda state: replace(state, matrix=False, key=None),
    "enter": lambda state: replace(state, matrix=not state.matrix),
    "n": _next,
    "N": lambda state: _next(state, first=True),
    "/": _edit,
    "x": _switch,
    "t": lambda state: _switch(state, token=True),
    "X": lambda state: state if state.off == NOTHING else Request("off", NOTHING),
    "w": _why,
    "l": lambda state: Request("lens", next_lens(state.lens, live=state.live)),
    "m": _map,
    "]": lambda _: Request("record", 1),
    "[": lambda _: Request("record", -1),
    "s": lambda state: _see(state, special=not state.special),
    "p": lambda state: _see(state, words=not state.words),
    "z": _zoom,
    "o": _save,
    "y": lambda _: Request("copy"),
    "?": _help,
    "q": lambda _: Request("quit", 0),
}
"""What each key does that has one meaning."""
