"""What is seen, as a plain dataclass; and how it goes on to other maps, tokens and heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.select import cells_between_words, sharpest
from attnviz.analyses.tokens import treat_special
from attnviz.analyses.view import describe, first_focus
from attnviz.analyses.word_links import LEAST_WORDS, WordLinks
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.effects import Intervention
from attnviz.core.errors import AttnvizError
from attnviz.core.tokens import patch_grid
from attnviz.renderers.colors import block_peaks
from attnviz.renderers.printable import printable, two_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_AT_ONCE = 2_000_000  # weights that are searched before the first screen
MOST_COPIED = 50_000_000  # weights of maps that are merged into words, or cut, at most: 200 MB
MOST_IN_NUMBERS = 64  # tokens beyond which a matrix is drawn in blocks unless asked otherwise
OVERVIEW = 512  # rows and columns of an overview, at most: more than any terminal has
NOTHING = Intervention()


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a screen is drawn from.

    Attributes:
        raw: what the model answered, or the saved maps.
        base: the same through the lens, or with parts off.
        seen: the same with or without special tokens, in pieces or words.
        live: whether there is a model to ask; window: whether it read a part of the text alone.
        stream, layer, head, query, key: places in `seen`; key None: the strongest.
        matrix: whether the arrows move over the matrix, not over the heads.
        blocks: whether the matrix is drawn in blocks; None: where it is too large for numbers.
        off: the parts that are off, by the places of `raw`; effect: what that changes, in words.
        page: lines that are shown above all else.
        pictures: for each stream over a picture, its pixels.
        memo: what was worked out of `seen`: thumbnails, words, ranks.
    """

    raw: Attention
    base: Attention
    seen: Attention
    live: bool = False
    window: bool = False
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
    off: Intervention = NOTHING
    effect: str = ""
    message: str = ""
    page: tuple[str, ...] = ()
    pictures: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    size: tuple[int, int] = (80, 24)
    colors: Literal["truecolor", "256", "standard"] | None = "truecolor"
    dark: bool = True
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def item(self) -> AttentionMap:
        """The map of the stream that is seen."""
        return self.seen.maps[self.stream]

    @property
    def raw_map(self) -> AttentionMap:
        """The map of the stream as the model answered it."""
        streams = (one for one in self.raw.maps if one.stream == self.item.stream)
        return next(streams, self.raw.main)

    @property
    def part(self) -> AttentionMap:
        """The map of the head alone."""
        return self.item.part([self.item.layers[self.layer]], [self.item.heads[self.head]])

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

    @property
    def in_blocks(self) -> bool:
        """Whether the matrix is drawn in blocks and not in numbers."""
        large = max(self.weights.shape) > MOST_IN_NUMBERS
        return large if self.blocks is None else self.blocks

    def note(self, name: Any, make: Callable[[], Any]) -> Any:
        """What was worked out of the stream's maps under that name, or is now."""
        name = (self.stream, name)
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]


def begin(attention: Attention, **fields: Any) -> State:
    """The first state: the head that says most, and the query of its clearest link."""
    state, main = State(attention, attention, attention, **fields), attention.main
    is_large = main.weights.size > MOST_AT_ONCE
    if not (main.is_pooled or is_large):
        state = see(state, words=True)
    item = state.item
    focus = None if is_large else first_focus(attention, item)
    if focus is None:
        first = next((n for n, one in enumerate(item.query_tokens) if not one.special), 0)
        return replace(state, layer=len(item.layers) - 1, query=first)
    layer, head = item.layers.index(focus.layer), item.heads.index(focus.head)
    return at_link(replace(state, layer=layer, head=head))


def say(state: State, text: str) -> State:
    """The state with a message."""
    return replace(state, message=text)


def at_link(state: State) -> State:
    """The state at the query of the link that says most in the head."""
    item, links = state.item, word_links(state)
    if state.over_picture:
        return state
    if links is not None:
        query, _ = links.place(state.layer, state.head)
        query = same_place(links.item.query_tokens, query, item.query_tokens)
    else:
        link = sharpest(state.part)
        query = state.query if link is None else link.query_position
        if item.is_pooled and item.links:  # exact links, by the tokens of the text
            query = (query - item.starts[0]) // item.blocks[0]
    return replace(state, query=query, key=None)


def head_words(state: State) -> str:
    """What the head does most, in words; of a head too large to look at every cell, nothing."""
    if state.weights.size > MOST_AT_ONCE:
        return ""
    if state.item.values == "signed":
        return f"sum of sizes {np.nan_to_num(np.abs(state.weights)).sum():.2f}"
    words, share = state.note(("words", state.layer, state.head), lambda: describe(state.part))
    return f"{printable(words)} {two_digits(share)}" if words else ""


def overview(state: State, layer: int, head: int) -> NDArray[np.float32]:
    """The matrix of a head, of a large one the largest weight of each block."""
    weights = np.asarray(state.item.weights[layer, head])
    if max(weights.shape) <= 2 * OVERVIEW:
        return weights
    down, across = (-(-size // OVERVIEW) for size in weights.shape)
    name = ("overview", layer, head)
    return np.asarray(state.note(name, lambda: block_peaks(weights, down, across)))


def looks_of(
    item: AttentionMap, layer: int, head: int, query: int | None = None
) -> NDArray[np.float32]:
    """The weights of the patches (rows, columns) from a query; None: the mean over queries."""
    rows, columns = patch_grid(item.key_tokens)
    weights = item.weights[layer, head]
    row = weights.mean(axis=0) if query is None else weights[query]
    return np.asarray(row[-rows * columns :].reshape(rows, columns), dtype=np.float32)


def word_links(state: State) -> WordLinks | None:
    """What each head says of the text; None where words are too few, or hidden in blocks."""

    def make() -> WordLinks | None:
        item = state.item
        if item.values != "share" or item.is_pooled or item.key_side == "picture":
            return None
        links = WordLinks(MeasuredMap(item, state.seen.texts_of(item)))
        return links if links.count >= LEAST_WORDS else None

    links: WordLinks | None = state.note("links", make)
    return links


def rank_heads(state: State) -> list[tuple[int, int]]:
    """Layers and heads by what they say of the text, most first.

    It is the measure `informative`, or else the strongest link.
    """
    item, links = state.item, word_links(state)
    if links is not None:
        sizes = links.says(links.item.weights) - links.says(links.uniform)
    else:  # head by head: a copy of all would take their memory again
        cells, heads = cells_between_words(item), item.weights.reshape(-1, *item.weights.shape[2:])
        where: Any = True if cells is None else cells
        sizes = np.array([np.nan_to_num(np.abs(one)).max(where=where, initial=0) for one in heads])
    order = np.argsort(-sizes, axis=None, kind="stable").tolist()
    return [divmod(at, len(item.heads)) for at in order]


def go_next(state: State, *, first: bool = False) -> State:
    """The next head in the order of what they say of the text, or the first."""
    order, at = state.note("rank", lambda: rank_heads(state)), (state.layer, state.head)
    number = 0 if first or at not in order else (order.index(at) + 1) % len(order)
    state = at_link(replace(state, layer=order[number][0], head=order[number][1], key=None))
    return say(state, f"head {number + 1} of {len(order)} by the measure informative")


def see(state: State, **changes: Any) -> State:
    """The state with other maps, special tokens or words; places stay at their tokens.

    Raises:
        AttnvizError: these maps have no words, or no special tokens, to tell apart.
    """
    new = replace(state, **changes)
    view = new.base
    if view.main.is_pooled or sum(item.weights.size for item in view.maps) > MOST_COPIED:
        new = replace(new, words=False, special=True)  # blocks of tokens have no words
    if new.words:
        maps = (merge_words(item, *view.texts_of(item)) for item in view.maps)
        view = view.with_maps(tuple(maps))
    if not new.special:
        view = treat_special(view, "drop")
    stream = next((n for n, one in enumerate(view.maps) if one.stream == state.item.stream), 0)
    item, old = view.maps[stream], state.item
    places: dict[str, Any] = {
        "stream": stream,
        "layer": min(state.layer, len(item.layers) - 1),
        "head": min(state.head, len(item.heads) - 1),
        "query": same_place(old.query_tokens, state.query, item.query_tokens),
    }
    if new.key is not None:
        places["key"] = same_place(old.key_tokens, new.key, item.key_tokens)
    return replace(new, seen=view, memo={}, **places)


def answer(state: State, attention: Attention, **changes: Any) -> State:
    """The state after the model answered about another text, window or lens."""
    changes = {"raw": attention, "base": attention, "off": NOTHING, "effect": "", **changes}
    changes = {"key": None, "lens": "raw", **changes}
    try:
        return see(state, **changes)
    except AttnvizError:  # weights of some lenses have no sums, and blocks no words
        message = "here are pieces and special tokens: these weights cannot be added"
        return see(state, **{**changes, "words": False, "special": True, "message": message})


def same_place(old: Sequence[Token], place: int, new: Sequence[Token]) -> int:
    """The token of another division that covers the same characters, or is as far along."""
    token = old[min(place, len(old) - 1)]
    same = [n for n, one in enumerate(new) if one == token]
    same += [
        n for n, one in enumerate(new) if not one.special and one.start <= token.start < one.end
    ]
    return (same or [min(place, len(new) - 1)])[0]


def positions(state: State, axis: int, place: int) -> list[int]:
    """The positions in the text of the tokens that a row (axis 0) or column (axis 1) stands for."""
    raw, item = state.raw_map, state.item
    olds, news = ((one.query_tokens, one.key_tokens)[axis] for one in (raw, item))
    token, places = news[place], [place]
    if len(olds) != len(news):  # of a word, its pieces
        words = [(n, one.start) for n, one in enumerate(olds) if not one.special]
        inside = [n for n, start in words if token.start <= start < token.end]
        places = inside or [same_place(news, place, olds)]
    firsts = [raw.position(axis, at) for at in places]
    return [at for first in firsts for at in range(first, first + raw.blocks[axis])]
