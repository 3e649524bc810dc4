"""Texts one at a time, and which of them are computed together.

Only their number and lengths decide that, so that results are reproducible.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnviz.core.errors import InputError
from attnviz.core.query import Messages
from attnviz.core.values import is_utf8

CHUNK_SIZE = 1024
"""Records in a chunk; results depend on nothing else. Batched by length, 2,000 sentences have
7 % padding in chunks of 1024, and 25 % in chunks of 256."""
CHUNK_LENGTHS = 1 << 25
"""The sum of squared lengths, in characters, at which a chunk is full: a worker returns all maps of
a chunk at once, and long texts have large maps."""
MEMORY_BUDGET = 2**29  # bytes of maps that are held at once

Lengths = tuple[int, ...]  # tokens of each of a record's texts: one, or source and target


@dataclass(frozen=True, slots=True)
class Text:
    """One text, or one pair of texts, to attend to."""

    id: str  # its own name, or its number in the input counted from 0
    text: str  # the text; of a pair, the source
    target: str | None = None  # of a pair, the target; None where the model writes it
    labels: tuple[str, ...] | None = None  # a label for each token, if given
    messages: Messages = ()  # of a conversation; `text` is what they say
    where: str = ""  # its name in an error ("line 3 of 'a.jsonl'"); empty for an argument
    line: int = 0  # where it begins in its file, from 1; 0 for an argument
    raw: str = ""  # what stands there, without the line's end, for rejects


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
    """The text where it can be attended to; an InputError where it is blank or no UTF-8."""
    if not text or text.isspace():
        raise InputError(f"the {what} is empty")
    if not is_utf8(text):
        raise InputError(f"the {what} is not valid UTF-8")
    return text


def read_message(value: Any, where: str) -> tuple[str, str]:
    """The role and the content of a message; the texts of content in parts are joined by lines.

    Raises:
        InputError: it is none, or has content that is no text.
    """
    message = value if isinstance(value, Mapping) else {}
    role, content = message.get("role"), message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    words = [one for one in texts if isinstance(one, str)]
    if not isinstance(role, str) or len(words) < len(texts):
        raise InputError(f'{where} is no message such as {{"role": "user", "content": "…"}}')
    return role, "\n".join(words)


def read_conversation(values: Sequence[Any], where: str) -> dict[str, Any]:
    """The fields of a `Text` that is a list of messages, at least one of which says something."""
    messages = tuple(read_message(one, f"{where}: message {n}") for n, one in enumerate(values, 1))
    said = "\n".join(content for _, content in messages)
    return {"text": check_text(said, f"conversation in {where}"), "messages": messages}


def chunks(
    texts: Iterable[Text | BadText], size: int = CHUNK_SIZE, ready: Callable[[], bool] | None = None
) -> Iterator[list[Text | BadText]]:
    """Runs of at most `size` records, fewer if they are long or `ready` says none is waiting."""
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


def chunks_by_memory(sizes: Sequence[int], budget: int) -> Iterator[range]:
    """Consecutive records, as many at a time as fit into the budget of bytes, at least one."""
    first, total = 0, 0
    for number, size in enumerate(sizes):
        if number > first and total + size > budget:
            yield range(first, number)
            first, total = number, 0
        total += size
    if first < len(sizes):
        yield range(first, len(sizes))


def batches(
    numbers: Sequence[int],
    lengths: Callable[[int], Lengths],
    *,
    tokens: int,
    most: int | None,
    even: bool,
) -> Iterator[list[int]]:
    """Records of similar length together, shortest first.

    A batch has at most that many `tokens`, padding included, and at most `most` records. With
    `even` all its records have equal lengths.
    """
    batch, widest = list[int](), Lengths()
    for own, number in sorted((lengths(number), number) for number in numbers):
        wider = tuple(map(max, widest, own)) if batch else own
        full = (len(batch) + 1) * sum(wider) > tokens or len(batch) == most
        if batch and (full or (even and own != widest)):
            yield batch
            batch, wider = [], own
        batch.append(number)
        widest = wider
    if batch:
        yield batch
