"""Where tokens lie in a text, for tokenizers that do not say."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

Span = tuple[int, int]


def align(surfaces: Sequence[str | None], text: str) -> list[Span]:
    """The characters of the text that each token covers, found from left to right.

    Case, accents, compatibility forms and spaces are ignored, as tokenizers change them. What
    cannot be found (an unknown token) gets the characters that its neighbours leave over.

    Args:
        surfaces: what each token reads as; None for a mark that stands for no text.
        text: what was tokenized.

    Returns:
        a start and an end for each token; equal where it covers nothing.
    """
    plain, origin = fold(text)
    spans: list[Span] = [(0, 0)] * len(surfaces)
    position, waiting = 0, list[int]()

    def settle(until: int) -> None:
        """Share what lies between the last token found and the next among those not found."""
        gap = (origin[position], origin[until - 1] + 1) if until > position else None
        for index, span in zip(waiting, share(gap, text, len(waiting)), strict=True):
            spans[index] = span
        waiting.clear()

    for index, surface in enumerate(surfaces):
        if surface is None:
            spans[index] = (origin[position], origin[position])
            continue
        wanted, _ = fold(surface)
        if not wanted:
            spans[index] = (origin[position], origin[position])
            continue
        # Where nothing was left out since the last token, this one must follow at once.
        found = plain.find(wanted, position)
        if found < 0 or (found > position and not waiting):
            waiting.append(index)
            continue
        settle(found)
        position = found + len(wanted)
        spans[index] = (origin[found], origin[position - 1] + 1)
    settle(len(plain))
    return spans


def fold(text: str) -> tuple[str, list[int]]:
    """A text without case, accents, compatibility forms and spaces, and where each letter was.

    The list has one entry more than there are letters: the text's end.
    """
    letters, origin = [], []
    for position, character in enumerate(text):
        for letter in unicodedata.normalize("NFKD", character).casefold():
            if not letter.isspace() and not unicodedata.combining(letter):
                letters.append(letter)
                origin.append(position)
    return "".join(letters), [*origin, len(text)]


def share(gap: Span | None, text: str, count: int) -> list[Span]:
    """A gap's words shared out among tokens; all of it to each where the numbers differ."""
    if gap is None or not count:
        return [(0, 0)] * count
    words, end = list[Span](), gap[0]
    for word in text[gap[0] : gap[1]].split():
        start = text.index(word, end)
        end = start + len(word)
        words.append((start, end))
    return words if len(words) == count else [gap] * count
