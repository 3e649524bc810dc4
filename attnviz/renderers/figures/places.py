"""Names for the places of a long text, where an axis has no room to name every token.

A place is named by its number and its first words, so that a reader can find it in the text and
give the number to --rows or --window.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.records import dataclass, field
from attnviz.core.tokens import split_sentences
from attnviz.renderers.printable import printable, shorten

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*|\n(?=#{1,6} )")
PARAGRAPH = "¶"
_FEWEST = 3  # beginnings of sentences below which tokens at equal steps tell more
_MOST_WORDS = 60  # characters of a text from which the first words are taken


@dataclass(frozen=True, slots=True)
class TextPlaces:
    """The places of an axis that are worth a name, the best first, and their names.

    Attributes:
        begins: tokens where paragraphs begin, then sentences, and at which character; empty: none.
        first: the number of the first token in its text.
        block: how many tokens of the text each token of the axis stands for.
    """

    tokens: tuple[Token, ...]
    text: str = ""
    first: int = 0
    block: int = 1
    begins: Mapping[int, int] = field(default_factory=dict)
    paragraphs: frozenset[int] = frozenset()

    @property
    def is_part(self) -> bool:
        """Whether numbers tell where the axis begins in its text."""
        return self.first > 0

    def number(self, place: int) -> int:
        """The number in the text of a place's first token."""
        return self.first + place * self.block

    def name(self, place: int, cells: int) -> str:
        """A place's number and its first words, cut to so many cells."""
        token = self.tokens[place]
        start = self.begins.get(place, token.start)
        ahead = self.text[start : start + _MOST_WORDS] if token.end > token.start else ""
        line = ahead.strip().partition("\n")[0].lstrip("# ") or token.text
        words = printable(" ".join(line.split()))
        mark = f"{PARAGRAPH} " if place in self.paragraphs else ""
        return f"{self.number(place)} {mark}{_whole_words(words, cells)}"

    @property
    def note(self) -> str:
        """What is named, in words; empty where tokens at equal steps are."""
        if not self.begins:
            return ""
        paragraphs = f"paragraphs ({PARAGRAPH}) and " if self.paragraphs else ""
        return f"named by number and first words: where {paragraphs}sentences begin, as far as fits"


def places_of(item: AttentionMap, axis: int, text: str) -> TextPlaces:
    """The places of a map's rows (axis 0) or columns (axis 1) in their text."""
    tokens = (item.query_tokens, item.key_tokens)[axis]
    where = item.starts[axis], item.blocks[axis]
    sentences = dict(_beginnings(tokens, [one.start for one in split_sentences(text)]))
    if len(sentences) < _FEWEST:
        return TextPlaces(tokens, text, *where)
    starts = [0, *(match.end() for match in _PARAGRAPH.finditer(text.rstrip()))]
    paragraphs = dict(_beginnings(tokens, starts)) if len(starts) > 1 else {}
    return TextPlaces(tokens, text, *where, {**paragraphs, **sentences}, frozenset(paragraphs))


def _beginnings(tokens: tuple[Token, ...], starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The token in which each of these characters lies, once, and the character."""
    own = [place for place, token in enumerate(tokens) if token.end > token.start]
    if not own:
        return
    ends = np.maximum.accumulate([tokens[place].end for place in own])
    places = set[int]()
    for start in starts:
        number = int(np.searchsorted(ends, start, side="right"))
        if number == len(own) or own[number] in places:
            continue
        token = tokens[own[number]]
        # A part of a text leaves others out: their beginnings belong to none of its tokens. A
        # piece may begin behind the space that stands before it.
        if token.start - 2 <= start < token.end:
            places.add(own[number])
            yield own[number], start


def _whole_words(words: str, cells: int) -> str:
    from rich.cells import cell_len

    first, *rest = words.split(" ")
    line = shorten(first, cells)
    for word in rest:
        if cell_len(line) + 1 + cell_len(word) > cells:
            break
        line += f" {word}"
    return line
