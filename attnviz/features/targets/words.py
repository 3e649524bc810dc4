"""A word, a position or a likely next token as the output to explain."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Token
from attnviz.core.effects import PredictedToken
from attnviz.core.errors import UnfitTextError, in_words, is_number

NEXT = "next:"  # prefix of a word that means a possible next token, even if the text has it
_NUMBERED = re.compile(r"(.+)\[(\d{1,9})\]", re.DOTALL)


def find_token(tokens: Sequence[Token], word: str, first: int = 0, also: str = "") -> int | None:
    """The place of a token by its text, text and position ("red[3]") or position; None: no token.

    `first` is 1 for next-token prediction: such a model predicts the token after the last one
    instead of the first. `also` names another meaning of the word.

    Raises:
        UnfitTextError: the word has several meanings in this text.
    """
    places = [
        place
        for place, token in enumerate(tokens)
        if word in (token.text, token.text.removeprefix("##")) and place >= first
    ]
    if len(places) + bool(places and also) > 1:
        stands = f"stands {len(places)} times" if len(places) > 1 else "stands"
        names = [f"{word}[{place}]" for place in places]
        if also:
            names.append(also)
        more = ", and something else may be meant by it" if also else ""
        more = ", and it may be what comes next" if also.startswith(NEXT) else more
        raise UnfitTextError(
            f"--target '{word}' {stands} in the text{more}: write "
            + in_words(f"--target '{name}'" for name in names)
        )
    if places:
        return places[0]
    match = _NUMBERED.fullmatch(word)
    if match and find_token(tokens[int(match[2]) :][:1], match[1]) is not None:
        return int(match[2]) if int(match[2]) >= first else None
    if is_number(word) and first <= int(word) < len(tokens) + first:
        return int(word)
    return None


def place_to_explain(
    tokens: Sequence[Token],
    output: str,
    first: int,
    number_of: Callable[[str], int | None],
    open_place: tuple[str, int],
    *,
    is_target: bool = False,
) -> tuple[int, int | None, str] | None:
    """The place and the piece of the vocabulary to explain, with a note; None: no such place.

    Piece None means the token at that place, or else the likeliest. `number_of` gives the piece
    that a word is, if any. `open_place` is the place for words outside the text with its prefix:
    ("next:", 7); the prefix is "" if a word in the text always means the text's token. In the
    target of a pair it does too, and the note says that it could also come next.
    """
    name, end = open_place
    if name and output.startswith(name):
        word = output.removeprefix(name)
        number = number_of(word) if word else None
        return (end, number, "") if number is not None or not word else None
    number = None if is_number(output) else number_of(output)
    also = f"{name}{output}" if name and number is not None else ""
    place = find_token(tokens, output, first, "" if is_target else also)
    if place is not None:
        is_plain = also and is_target and not _NUMBERED.fullmatch(output)
        other = f"--target '{also}' explains it as the token after the target"
        return place, None, f"'{output}' is the word of the target: {other}" if is_plain else ""
    return None if number is None else (end, number, "")


def next_word(
    position: int,
    logits: NDArray[np.floating],
    marks: Sequence[int],
    spell: Callable[[int], str],
    note: str = "",
) -> PredictedToken:
    """The likeliest token at a position; a word, where a mark such as the text's end is likelier.

    The p of the word is then that among the words, as in writing that may not end yet.
    """
    number = int(logits.argmax())
    if number not in marks:
        return PredictedToken(position - 1, number, spell(number), position, note=note)
    chance = 1 / float(np.exp(logits.astype(np.float64) - float(logits[number])).sum())
    logits = logits.copy()
    logits[[*marks]] = -np.inf
    mark, word = spell(number), int(logits.argmax())
    ends = (
        f"the model says '{mark}' here (p {chance:.2f}), which is no word: the likeliest word is "
        f"explained, as if one had to follow; --target '{NEXT}{mark}' explains '{mark}'"
    )
    notes = "; ".join([note, ends] if note else [ends])
    return PredictedToken(position - 1, word, spell(word), position, (*marks,), notes)


def last_word(tokens: Sequence[Token]) -> int:
    """The last token with a letter or digit; else the last that stands for text, or the last."""
    plain = [place for place, token in enumerate(tokens) if not token.special]
    words = [place for place in plain if any(map(str.isalnum, tokens[place].text))]
    return (words or plain or [len(tokens) - 1])[-1]
