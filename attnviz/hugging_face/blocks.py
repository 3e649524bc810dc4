"""An axis of tokens in blocks, so that a map of bounded size stands for a text of any length."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.attention_map import Token


@dataclass(frozen=True, slots=True)
class Axis:
    """The tokens from `start` up to `stop`, in blocks of `length`; the last may be shorter."""

    start: int
    stop: int
    length: int = 1

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-(self.stop - self.start) // self.length)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first token of each block, and one past its last."""
        return [
            (first, min(first + self.length, self.stop))
            for first in range(self.start, self.stop, self.length)
        ]

    def tokens(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        """A token for each block: itself where it stands alone ("12–15 the … of" where not)."""
        if self.length == 1:
            return tokens[self.start : self.stop]
        return tuple(_joined(tokens[first:stop], first) for first, stop in self.spans)


def whole(length: int) -> Axis:
    """Every token by itself."""
    return Axis(0, length)


def in_blocks(start: int, stop: int, most: int) -> Axis:
    """The tokens in blocks of equal length, as short as `most` blocks allow."""
    return Axis(start, stop, -(-(stop - start) // most))


def _joined(tokens: tuple[Token, ...], first: int) -> Token:
    last = first + len(tokens) - 1
    words = tokens[0].text if len(tokens) == 1 else f"{tokens[0].text} … {tokens[-1].text}"
    place = f"{first}" if len(tokens) == 1 else f"{first}–{last}"
    # Marks of no text ([CLS]) cover nothing at 0; what the block covers is what its words cover.
    covering = [token for token in tokens if token.end > token.start] or list(tokens)
    return Token(
        f"{place} {words}",
        min(token.start for token in covering),
        max(token.end for token in covering),
        all(token.special for token in tokens),
    )
