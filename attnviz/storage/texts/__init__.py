"""Texts as they come in, one at a time: from arguments, or from files of several formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from attnviz.core.errors import InputError

CHUNK_SIZE = 1024
"""Records in a chunk, on which alone their numbers depend. Batched by length, 2,000 sentences carry
7 % of padding in chunks of 1024 and 25 % in chunks of 256."""
CHUNK_LENGTHS = 1 << 25
"""The sum of squared lengths, in characters, at which a chunk is full: long texts have large maps,
and a worker returns those of a whole chunk at once."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text, or one pair of texts, to attend to.

    Attributes:
        id: its own name, or its number in the input counted from 0.
        text: the text; of a pair, the source.
        target: of a pair, the target; None where the model writes it.
        labels: a label for each token, if given.
        where: its name in a message ("line 3 of 'a.jsonl'"); empty for an argument.
        line: where it begins in its file, from 1; 0 for an argument.
        raw: what stands there, without the line's end, for rejects.
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

    Its fields are those of a `Text`; in `raw`, bytes that are no UTF-8 are surrogates (PEP 383).
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
        size: how many make a chunk.
        ready: called after each record; False where none is waiting, so that the chunk ends there.
            None: every chunk is full.
    """
    chunk, lengths = list[Text | BadText](), 0
    for text in texts:
        chunk.append(text)
        if isinstance(text, Text):
            lengths += (len(text.text) + len(text.target or "")) ** 2
        full = len(chunk) == size or lengths >= CHUNK_LENGTHS
        if full or (ready is not None and not ready()):
            yield chunk
            chunk, lengths = [], 0
    if chunk:
        yield chunk
