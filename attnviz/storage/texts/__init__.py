"""Texts as they come in, one at a time: from arguments, or from files of several formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from attnviz.core.errors import InputError

CHUNK_SIZE = 1024
"""Records that are worked through together; what may depend on company stays inside a window. Read
with others of their length, 2,000 sentences carry 7 % of padding; in windows of 256 it is 25 %."""
CHUNK_LENGTHS = 1 << 25
"""The sum of squared lengths, in characters, at which a window is full: long texts have large maps,
and a worker hands over those of a whole window at once."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text, or one pair of texts, to attend to.

    Attributes:
        id: its own name, or its number in the input counted from 0.
        text: the text; of a pair, the source.
        target: of a pair, the target; None where it is to be made by the model.
        labels: a label for each token, if given.
        where: how to name it in a message ("line 3 of 'a.jsonl'"); empty for an argument.
        line: where it begins in its file, from 1; 0 for an argument.
        raw: what stands there, without the line's end, so that it can be handed back.
    """

    id: str
    text: str
    target: str | None = None
    labels: tuple[str, ...] | None = None
    where: str = ""
    line: int = 0
    raw: str = ""


@dataclass(frozen=True, slots=True)
class BadText:
    """A line that could not be used, and why.

    Attributes:
        where: how to name it in a message.
        error: what is wrong with it.
        line: where it begins in its file, from 1.
        raw: what stands there; bytes that are no UTF-8 are lone surrogates (PEP 383).
    """

    where: str
    error: InputError
    line: int = 0
    raw: str = ""


def check_text(text: str, what: str = "text") -> str:
    """The text where it can be attended to.

    Raises:
        InputError: it is blank, or held bytes that are no UTF-8.
    """
    if not text or text.isspace():
        raise InputError(f"the {what} is empty")
    if not is_utf8(text):
        raise InputError(f"the {what} is not valid UTF-8")
    return text


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: it holds no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def chunks(
    texts: Iterable[Text | BadText],
    size: int = CHUNK_SIZE,
    ready: Callable[[], bool] | None = None,
) -> Iterator[list[Text | BadText]]:
    """Consecutive records, so many at a time, fewer where they are long, and at the end.

    Args:
        texts: good and bad records in the order of the input.
        size: how many make a window.
        ready: asked after each record; False where nothing more is waiting, so that what is there
            goes on at once. None: every window is full.
    """
    window, lengths = list[Text | BadText](), 0
    for text in texts:
        window.append(text)
        if isinstance(text, Text):
            lengths += (len(text.text) + len(text.target or "")) ** 2
        full = len(window) == size or lengths >= CHUNK_LENGTHS
        if full or (ready is not None and not ready()):
            yield window
            window, lengths = [], 0
    if window:
        yield window
