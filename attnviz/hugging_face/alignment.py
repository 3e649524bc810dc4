"""Where tokens lie in a text, for tokenizers that do not say."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
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
    waiting = list[int]()
    letter, end = 0, 0  # where to go on, in the folded text and in the text itself

    for index, surface in enumerate(surfaces):
        if surface is not None and not waiting and text.startswith(surface, end):
            spans[index] = (end, end + len(surface))
            end += len(surface)
            letter = bisect_left(origin, end)
            continue
        wanted, _ = fold(surface or "")
        if not wanted:
            spans[index] = (end, end)
            continue
        # Where nothing was left out since the last token, this one must follow at once.
        found = plain.find(wanted, letter)
        if found < 0 or (found > letter and not waiting):
            waiting.append(index)
            continue
        settle(spans, waiting, text, (end, origin[found]))
        letter = found + len(wanted)
        end = origin[letter - 1] + 1
        spans[index] = (origin[found], end)
    settle(spans, waiting, text, (end, len(text)))
    return spans


def settle(spans: list[Span], waiting: list[int], text: str, gap: Span) -> None:
    """Share the words of a gap out among the tokens that were not found.

    Each gets all of them where the numbers differ, and nothing where there are none.
    """
    words = [
        (gap[0] + match.start(), gap[0] + match.end())
        for match in re.finditer(r"\S+", text[gap[0] : gap[1]])
    ]
    whole = (words[0][0], words[-1][1]) if words else (gap[0], gap[0])
    shares = words if len(words) == len(waiting) else [whole] * len(waiting)
    for index, span in zip(waiting, shares, strict=True):
        spans[index] = span
    waiting.clear()


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
