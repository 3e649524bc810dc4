"""Sentences by a rule that anyone can follow."""

from __future__ import annotations

import re

from attnviz.attention_map import Token

_CLOSING = "[\"'”’»)\\]]*"
_END = re.compile(
    rf"(?<!\b(?:Mr|Ms|Dr|St|vs|cf))(?<!\bMrs)(?<!\bProf)(?<!\be\.g)(?<!\bi\.e)(?<!\b[A-Z])\.+"
    rf"{_CLOSING}(?=\s)(?!\s+[a-z])|[!?…]+{_CLOSING}(?=\s)(?!\s+[a-z])|[。！？]+[”’」』）]*|\n+"
)


def split_sentences(text: str) -> tuple[Token, ...]:
    """The sentences of a text, each with its place in it.

    A sentence ends after . ! ? or … (and the quotes and brackets that close behind it) where white
    space follows that no small letter follows, after 。！ or ？, and at a line break. A point ends
    nothing after a single capital letter or a common short form (Dr., Mr., e.g.).
    """
    found: list[Token] = []
    start = 0
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            found.append(Token(piece.strip(), first, first + len(piece.strip())))
        start = end
    return tuple(found)
