"""What is seen, as a plain dataclass; and how it goes on to other maps, tokens and heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import masks, select, tokens
from attnviz.analyses.view import describe, first_focus
from attnviz.analyses.word_links import LEAST_WORDS, WordLinks
from attnviz.analyses.words import merge_words
from attnviz.core import effects, errors
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.records import dataclass, field, replace
from attnviz.core.tokens import patch_grid
from attnviz.features.browse.ask import Subject, Subjects
from attnviz.renderers.colors import block_peaks
from attnviz.renderers.printable import printable, two_digits

MOST_AT_ONCE = 2_000_000  # weights that are searched before the first screen
MOST_COPIED = 50_000_000  # weights of maps that are merged into words, or cut, at most: 200 MB
MOST_IN_NUMBERS = 64  # tokens beyond which a matrix is drawn in blocks unless asked otherwise
OVERVIEW = 512  # rows and columns of an overview, at most: more than any terminal has
NOTHING = effects.Intervention()
TOO_LARGE = "this map is too large for that: a shorter text would do"
NO_SUMS = "here are pieces and special tokens: these weights cannot be added"


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a screen is drawn from."""

    raw: Attention  # what the model answered, or the saved maps
    base: Attention  # the same through the lens, or with parts off
    seen: Attention  # the same with or without special tokens, in pieces or words
    subject: Subject = field(default_factory=Subject)
    subjects: Subjects = field(default_factory=Subjects)
    number: int = 0  # which of the subjects
    stream: int = 0  # this one and the next four are places in `seen`
    layer: int = 0
    head: int = 0
    query: int = 0
    key: int | None = None  # None: the strongest
    matrix: bool = False  # whether the arrows move over the matrix, not over the heads
    blocks: bool | None = None  # whether it is drawn in blocks; None: where it has no room
    window: bool = False  # whether the model read a part of the text alone
    lens: str = "raw"
    special: bool = True
    words: bool = False
    off: effects.Intervention = NOTHING  # the parts that are off, by the places of `raw`
    effect: str = ""  # what that changes of the output, in words
    message: str = ""
    page: str = ""  # a text that is shown once, over all else
    pictures: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)  # by stream
    size: tuple[int, int] = (80, 24)
    colors: Literal["truecolor", "256", "standard"] | None = "truecolor"
    dark: bool = True
    memo: dict[Any, Any] = field(default_factory=dict)  # what was worked out of `seen`

    @property
    def live(self) -> bool:
        return self.subject.origin is not None

    @property
    def item(self) -> AttentionMap:
        return self.seen.maps[self.stream]

    @property
    def raw_map(self) -> AttentionMap:
        """The map of the stream as the model answered it."""
        streams = (one for one in self.raw.maps if one.stream == self.item.stream)
        return next(streams, self.raw.main)

    @property
    def place(self) -> tuple[str, str]:
        return self.item.place(self.layer, self.head)

    @property
    def name(self) -> str:
        return ".".join(self.place)

    @property
    def part(self) -> AttentionMap:
        return self.item.part([self.item.layers[self.layer]], [self.item.heads[self.head]])

    @property
    def weights(self) -> NDArray[np.float32]:
        """The matrix of the head, (queries, keys)."""
        return np.asarray(self.item.weights[self.layer, self.head])

    @property
    def row(self) -> NDArray[np.float32]:
        return np.asarray(self.weights[self.query])

    @property
    def aim(self) -> int:
        """The key of the link that is looked at."""
        return int(np.nan_to_num(np.abs(self.row)).argmax()) if self.key is None else self.key

    @property
    def over_picture(self) -> bool:
        return self.item.key_side == "picture" or self.item.stream in self.pictures

    @property
    def in_blocks(self) -> bool:
        return max(self.weights.shape) > MOST_IN_NUMBERS if self.blocks is None else self.blocks

    @property
    def has_shades(self) -> bool:
        """Whether the terminal has colours enough to draw shades by them."""
        return self.colors in ("truecolor", "256")

    def note(self, name: str, make: Callable[[], Any], *place: int) -> Any:
        """What was worked out of the stream's maps under a name, or is now."""
        at = (self.stream, name, *place)
        if at not in self.memo:
            self.memo[at] = make()
        return self.memo[at]

    def say(self, text: str) -> State:
        return replace(self, message=text)

    def words_of_head(self) -> str:
        """What the head does most; of a head too large to look at every cell, nothing."""
        if self.weights.size > MOST_AT_ONCE:
            return ""
        if self.item.values == "signed":
            return f"sum of sizes {np.nan_to_num(np.abs(self.weights)).sum():.2f}"
        said, share = self.note("words", lambda: describe(self.part), self.layer, self.head)
        return f"{printable(said)} {two_digits(share)}" if said else ""

    def overview(self, layer: int, head: int) -> NDArray[np.float32]:
        """The matrix of a head, of a large one the largest weight of each block."""
        weights = np.asarray(self.item.weights[layer, head])
        if max(weights.shape) <= 2 * OVERVIEW:
            return weights
        sides = (-(-size // OVERVIEW) for size in weights.shape)
        small = self.note("overview", lambda: block_peaks(weights, *sides), layer, head)
        return np.asarray(small)

    def looks(self, layer: int, head: int, query: int | slice = slice(None)) -> NDArray[np.float32]:
        """The weights of the patches (rows, columns) from a query, or the mean over queries."""
        rows, columns = patch_grid(self.item.key_tokens)
        row = np.atleast_2d(self.item.weights[layer, head, query]).mean(axis=0)
        return np.asarray(row[-rows * columns :].reshape(rows, columns), dtype=np.float32)

    def word_links(self) -> WordLinks | None:
        """What each head says of the text; None where words are too few, or hidden in blocks."""
        item = self.item
        if item.values != "share" or item.is_pooled or item.key_side == "picture":
            return None
        texts = self.seen.texts_of(item)
        links: WordLinks = self.note("links", lambda: WordLinks(masks.MeasuredMap(item, texts)))
        return links if links.count >= LEAST_WORDS else None

    def rank(self) -> list[tuple[int, int]]:
        """Layers and heads by the measure `informative`, or else by their strongest link."""

        def make() -> list[tuple[int, int]]:
            item, links = self.item, self.word_links()
            if links is not None:
                sizes = links.says(links.item.weights) - links.says(links.uniform)
            else:  # head by head: a copy of all would take their memory again
                cells: Any = select.cells_between_words(item)
                heads = item.weights.reshape(-1, *item.weights.shape[2:])
                where: Any = {} if cells is None else {"where": cells}
                sizes = np.array([np.nan_to_num(abs(x)).max(initial=0, **where) for x in heads])
            order = np.argsort(-sizes, axis=None, kind="stable").tolist()
            return [divmod(at, len(item.heads)) for at in order]

        rank: list[tuple[int, int]] = self.note("rank", make)
        return rank

    def next_head(self, *, first: bool = False) -> dict[str, Any]:
        """The places of the next head by what it says of the text, or of the first."""
        rank, at = self.rank(), (self.layer, self.head)
        number = 0 if first or at not in rank else (rank.index(at) + 1) % len(rank)
        said = f"head {number + 1} of {len(rank)} by the measure informative"
        return {**self.at_head(*rank[number]), "message": said}

    def at_head(self, layer: int, head: int) -> dict[str, Any]:
        """The places of a head and of the query of the link that says most in it."""
        new = replace(self, layer=layer, head=head)
        item, query, links = self.item, self.query, self.word_links()
        if links is not None and not self.over_picture:
            place, _ = links.place(layer, head)
            query = same_place(links.item.query_tokens, place, item.query_tokens)
        elif not self.over_picture and (link := select.sharpest(new.part)) is not None:
            query = link.query_position
            if item.is_pooled and item.links:  # exact links, by the tokens of the text
                query = (query - item.starts[0]) // item.blocks[0]
        return {"layer": layer, "head": head, "query": query, "key": None}

    def see(self, **changes: Any) -> State:
        """The state with other fields; with other maps, places stay at their tokens.

        Raises:
            AttnvizError: these maps have no words, or no special tokens, to tell apart.
        """
        new = replace(self, **changes)
        if not {"base", "words", "special"} & {*changes}:
            return new
        view = new.base
        if view.main.is_pooled or sum(item.weights.size for item in view.maps) > MOST_COPIED:
            said = TOO_LARGE if new.words or not new.special else new.message
            new = replace(new, words=False, special=True, message=said)
        try:
            if new.words:
                maps = (merge_words(item, *view.texts_of(item)) for item in view.maps)
                view = view.with_maps(tuple(maps))
            if not new.special:
                view = tokens.treat_special(view, "drop")
        except errors.AttnvizError:  # weights of some lenses have no sums
            if "base" not in changes:
                raise
            return self.see(**{**changes, "words": False, "special": True, "message": NO_SUMS})
        old, streams = self.item, [item.stream for item in view.maps]
        stream = streams.index(old.stream) if old.stream in streams else 0
        item, key = view.maps[stream], new.key
        return replace(
            new,
            seen=view,
            memo={},
            stream=stream,
            layer=min(self.layer, len(item.layers) - 1),
            head=min(self.head, len(item.heads) - 1),
            query=same_place(old.query_tokens, self.query, item.query_tokens),
            key=None if key is None else same_place(old.key_tokens, key, item.key_tokens),
        )

    def positions(self, axis: int, place: int) -> list[int]:
        """The positions in the text that a row (axis 0) or column (axis 1) stands for."""
        raw = self.raw_map
        olds, news = ((one.query_tokens, one.key_tokens)[axis] for one in (raw, self.item))
        token, places = news[place], [place]
        if len(olds) != len(news):  # of a word, its pieces
            inside = (not one.special and token.start <= one.start < token.end for one in olds)
            places = [*np.flatnonzero([*inside])] or [same_place(news, place, olds)]
        firsts = [raw.position(axis, int(at)) for at in places]
        return [at for first in firsts for at in range(first, first + raw.blocks[axis])]


def same_place(old: Sequence[Token], place: int, new: Sequence[Token]) -> int:
    """The token of another division that covers the same characters, or is as far along."""
    token = old[min(place, len(old) - 1)]
    if token in new:
        return new.index(token)
    covers = (one.start <= token.start < one.end and not one.special for one in new)
    return next((n for n, one in enumerate(covers) if one), min(place, len(new) - 1))


def begin(attention: Attention, **fields: Any) -> State:
    """The first state: the head that says most, and the query of its clearest link."""
    state, main = State(attention, attention, attention, **fields), attention.main
    is_large = main.weights.size > MOST_AT_ONCE
    if not (main.is_pooled or is_large):
        state = state.see(words=True)
    item = state.item
    focus = None if is_large else first_focus(attention, item)
    if focus is None:
        first = next((n for n, one in enumerate(item.query_tokens) if not one.special), 0)
        return replace(state, layer=len(item.layers) - 1, query=first)
    layer, head = item.layers.index(focus.layer), item.heads.index(focus.head)
    return replace(state, **state.at_head(layer, head))
