"""Texts one at a time, and which of them are computed together.

Only their number and lengths decide that, so that results are reproducible.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attnviz.core.errors import InputError
from attnviz.core.query import Message, Messages
from attnviz.core.records import dataclass
from attnviz.core.values import is_utf8

CHUNK_SIZE = 1024
"""Records in a chunk; results depend on nothing else. Batched by length, 2,000 sentences have
7 % padding in chunks of 1024, and 25 % in chunks of 256."""
CHUNK_LENGTHS = 1 << 25
"""The sum of squared lengths, in characters, at which a chunk is full: a worker returns all maps of
a chunk at once, and long texts have large maps."""
MEMORY_BUDGET = 2**29  # bytes of maps that are held at once

THINKING = ("reasoning_content", "reasoning", "thinking")
"""The fields in which a message holds what a model has thought before it answered."""

Lengths = tuple[int, ...]  # tokens of each of a record's texts: one, or source and target


@dataclass(frozen=True, slots=True)
class Text:
    """One text, or one pair of texts, to attend to."""

    id: str  # its own name, or its number in the input counted from 0
    text: str  # the text; of a pair, the source
    target: str | None = None  # of a pair, the target; None where the model writes it
    labels: tuple[str, ...] | None = None  # a label for each token, if given
    messages: Messages = ()  # of a conversation; `text` is what they say
    tools: str = ""  # that a conversation may call, as JSON
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


def read_message(value: Any, where: str) -> Message:
    """A message; the texts of content in parts are joined by lines.

    A message that calls tools, or holds thinking, needs no content.

    Raises:
        InputError: it is none, or has content that is no text.
    """
    message = value if isinstance(value, Mapping) else {}
    role, content = message.get("role"), message.get("content")
    if content is None and any(message.get(name) for name in ("tool_calls", *THINKING)):
        content = ""
    parts = content if isinstance(content, list | tuple) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    words = [one for one in texts if isinstance(one, str)]
    if not isinstance(role, str) or len(words) < len(texts):
        raise InputError(f'{where} is no message such as {{"role": "user", "content": "…"}}')
    more = isinstance(content, list | tuple) or message.keys() - {"role", "content"}
    whole = json.dumps(dict(message), ensure_ascii=False, default=str) if more else ""
    return Message(role, "\n".join(words), whole)


def read_conversation(value: Any, where: str, places: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a `Text` that is a list of messages, or an object with them and with tools.

    `places` are the names of the messages in an error, where these stand by themselves.

    Raises:
        InputError: it is none, or none of its messages says something.
    """
    tools = value.get("tools") if isinstance(value, Mapping) else None
    values = value.get("messages") if isinstance(value, Mapping) else value
    if not isinstance(values, list | tuple):
        raise InputError(f"{where} holds no list of messages")
    places = places or [f"{where}: message {n}" for n in range(1, len(values) + 1)]
    messages = tuple(map(read_message, values, places))
    said = "\n".join(one.content or one.given for one in messages)
    more = {"tools": json.dumps(tools, ensure_ascii=False, default=str)} if tools else {}
    return {"text": check_text(said, f"conversation in {where}"), "messages": messages, **more}


def is_message(value: Any) -> bool:
    """Whether a value is written as one message, not as a list of them or an object with one."""
    return isinstance(value, Mapping) and "role" in value


def holds_messages(data: str) -> bool:
    """Whether the first value of a file is a message or a conversation."""
    start = data.lstrip()
    if start[:1] not in ("{", "["):
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        return False
    first = first[0] if isinstance(first, list) and first else first
    return is_message(first) or (isinstance(first, Mapping) and "messages" in first)


def read_conversations(data: str, where: str) -> list[Text]:
    """The conversations of a file: JSON, or JSON Lines, whose lines may be single messages.

    Raises:
        InputError: it holds something else.
    """
    from attnviz.storage.documents import parse_json

    places = list[str]()
    try:
        values = [json.loads(data)]
    except (ValueError, RecursionError):
        lines = [(n, line) for n, line in enumerate(data.splitlines(), 1) if line.strip()]
        places = [f"line {n} of {where}" for n, _ in lines]
        values = [*map(parse_json, (line for _, line in lines), places)]
    if any(map(is_message, values)):
        return [Text("0", where=where, **read_conversation(values, where, places))]
    if len(values) == 1 and isinstance(values[0], list) and not any(map(is_message, values[0])):
        (values,) = values
        places = [f"conversation {number} of {where}" for number in range(len(values))]
    if not values:
        raise InputError(f"{where} holds no message")
    texts = list[Text]()
    for number, (one, name) in enumerate(zip(values, places or [where], strict=True)):
        mine = isinstance(one, Mapping) and one.get("id")
        texts.append(Text(str(mine or number), where=name, **read_conversation(one, name)))
    return texts


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
