"""Where each message stands in the prompt that a chat template makes of them.

A template is a program: it trims contents, merges a system prompt into the first user's turn,
invents one, drops the thinking of earlier turns, prints calls of tools anew. So each content is
replaced by a mark of its length, and the places of the marks are those of the contents where
everything around them is the same in the true prompt. A content without such a place is missing;
no place is guessed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from attnviz.core.errors import InputError, ModelError
from attnviz.core.query import Message, Messages
from attnviz.core.records import dataclass
from attnviz.storage.texts import THINKING

Span = tuple[int, int]
Render = Callable[[Sequence[Mapping[str, Any]], Any], str]
FIRST, LAST = 0xF0000, 0xFFFFD  # characters that mean nothing
_MARKS = re.compile(f"([{chr(FIRST)}-{chr(LAST)}])\\1*")
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
TEMPLATE, TOOLS, NUMBERED = "template", "tools", ("user", "assistant", "tool")


@dataclass(slots=True)
class Piece:
    """A text that a message gives to the template, and where the prompt has it."""

    message: int
    what: str  # "the content", "the thinking", …
    text: str  # without spaces around it
    spans: tuple[Span, ...] = ()
    dropped: bool = False  # whether the template leaves it out; else its place is unknown


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as the model reads it.

    Attributes:
        names: of each message, "user 1"; spans: the characters of each.
        tools: the characters that describe tools.
        missing: what of the messages was not found in the text, in words.
    """

    text: str
    names: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...]
    tools: tuple[Span, ...] = ()
    missing: tuple[str, ...] = ()


def read_prompt(messages: Messages, tools: str, render: Render) -> Prompt:
    """The prompt of a conversation, with the place of each message.

    Contents go to the template as texts, and in parts where it loses them so.
    """
    about = json.loads(tools) if tools else None
    prompts = list[tuple[int, Prompt]]()
    problem: ModelError | None = None
    for in_parts in (False, True):
        try:
            prompts.append(_place(messages, about, render, in_parts=in_parts))
        except ModelError as error:
            problem = problem or error
            continue
        if not prompts[-1][0]:
            break
    if not prompts:
        assert problem is not None
        raise problem
    return min(prompts, key=lambda one: one[0])[1]


def _place(messages: Messages, tools: Any, render: Render, *, in_parts: bool) -> tuple[int, Prompt]:
    """The prompt, and how many contents were not found in it."""
    turns = [_turn_of(one, in_parts=in_parts) for one in messages]
    pieces = list[Piece]()

    def note(number: int, what: str, text: str) -> str:
        pieces.append(Piece(number, what, text.strip()))
        return text

    _change(turns, note)
    if len(pieces) > LAST - FIRST:
        raise InputError(f"a conversation of {len(pieces):,} contents is too long")
    text = render(turns, tools)
    _find(pieces, text, render(_with_marks(turns, pieces, None), tools))
    for number, one in enumerate(pieces):
        if not one.spans:  # the template looks into contents: change one alone
            _find(pieces, text, render(_with_marks(turns, pieces, number), tools), number)
    names = names_of([one.role for one in messages])
    spans = [[span for one in pieces if one.message == n for span in one.spans]
             for n in range(len(turns))]  # fmt: skip
    missing = [
        f"{one.what} of {names[one.message]} "
        + ("is left out by the template" if one.dropped else "is changed by the template")
        for one in pieces
        if not one.spans
    ]
    elsewhere = sorted(span for own in spans for span in own)
    for number, turn in enumerate(turns):
        before = max((end for own in spans[:number] for _, end in own), default=0)
        for call in turn.get("tool_calls") or ():
            place = _find_json(text, before, elsewhere, partial(_is_call, call))
            if place is None:
                missing.append(f"a call of a tool by {names[number]} is written in another way")
                continue
            spans[number].append(place)
            elsewhere.append(place)
            before = place[1]
    of_tools = list[Span]()
    for tool in tools if isinstance(tools, list) else ():
        same = [tool, tool.get("function")] if isinstance(tool, Mapping) else [tool]
        if (place := _find_json(text, 0, elsewhere, same.__contains__)) is None:
            missing.append("a tool's description is written in another way")
        else:
            of_tools.append(place)
            elsewhere.append(place)
    without_place = sum(not one.spans for one in pieces)
    every = tuple(tuple(sorted(own)) for own in spans)
    unique = tuple(dict.fromkeys(missing))
    return without_place, Prompt(text, names, every, tuple(of_tools), unique)


def names_of(roles: Sequence[str]) -> tuple[str, ...]:
    """Each message by its role and number; a role that can only come once has none."""
    counts, so_far = Counter(roles), Counter[str]()
    names = []
    for role in roles:
        so_far[role] += 1
        alone = counts[role] == 1 and role not in NUMBERED
        names.append(role if alone else f"{role} {so_far[role]}")
    return tuple(names)


def _turn_of(message: Message, *, in_parts: bool) -> dict[str, Any]:
    """What the template reads of a message, its content as a text or in parts."""
    turn = message.turn
    if in_parts and message.content:
        content = json.loads(message.given or "{}").get("content")
        parts = content if isinstance(content, list) else [message.content]
        turn["content"] = [{"type": "text", "text": one} if isinstance(one, str) else one
                           for one in parts]  # fmt: skip
    return turn


def _change(turns: Sequence[dict[str, Any]], change: Callable[[int, str, str], str]) -> None:
    """Replace each text of the turns by what `change` makes of it, in order."""
    for number, turn in enumerate(turns):
        for name in THINKING:
            if isinstance(turn.get(name), str) and turn[name].strip():
                turn[name] = change(number, "the thinking", turn[name])
        content = turn["content"]
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            text = part.get("text")
            if isinstance(text, str):
                part["text"] = _change_text(number, turn["role"], text, change)
        if not isinstance(content, list):
            turn["content"] = parts[0]["text"]


def _change_text(number: int, role: str, text: str, change: Callable[[int, str, str], str]) -> str:
    """A content whose texts were changed; a model's thinking in it is a text of its own."""
    thoughts = _THOUGHT.finditer(text) if role == "assistant" else ()
    new, at = "", 0
    for thinking in thoughts:
        for first, last, what in (
            (at, thinking.start(), "the content"),
            (thinking.start(1), thinking.end(1), "the thinking"),
        ):
            new += text[at:first] + _new_part(number, what, text[first:last], change)
            at = last
        new += text[at : thinking.end()]
        at = thinking.end()
    return new + _new_part(number, "the content", text[at:], change)


def _new_part(number: int, what: str, text: str, change: Callable[[int, str, str], str]) -> str:
    return change(number, what, text) if text.strip() else text


def _with_marks(
    turns: Sequence[dict[str, Any]], pieces: Sequence[Piece], only: int | None
) -> list[dict[str, Any]]:
    """The turns with marks in place of every text, or of one alone."""
    counter = iter(range(len(pieces)))
    own = deepcopy([*turns])

    def mark(_: int, __: str, text: str) -> str:
        number = next(counter)
        if only not in (None, number):
            return text
        start = len(text) - len(text.lstrip())
        end = start + len(pieces[number].text)
        return text[:start] + chr(FIRST + number) * (end - start) + text[end:]

    _change(own, mark)
    return own


def _find(pieces: Sequence[Piece], text: str, with_marks: str, only: int | None = None) -> None:
    """Give pieces their places, if the prompt is the one with marks but for these."""
    spans: dict[int, list[Span]] = {}
    at, place = 0, 0  # in the prompt, and in the prompt with marks
    marks = [*_MARKS.finditer(with_marks)]
    for number, mark in enumerate(marks):
        literal = with_marks[place : mark.start()]
        if not text.startswith(literal, at):
            return
        at, place = at + len(literal), mark.end()
        piece = ord(mark[1]) - FIRST
        if piece >= len(pieces) or len(mark[0]) != len(pieces[piece].text):
            return
        stop = marks[number + 1].start() if number + 1 < len(marks) else len(with_marks)
        after = with_marks[place:stop]
        ends = [at + len(one) for one in _spellings(pieces[piece].text) if text.startswith(one, at)]
        ends = [end for end in ends if text.startswith(after, end)]
        if not ends:
            return
        spans.setdefault(piece, []).append((at, ends[0]))
        at = ends[0]
    if text[at:] != with_marks[place:]:
        return
    for number in range(len(pieces)) if only is None else [only]:
        pieces[number].spans = tuple(spans.get(number, ()))
        pieces[number].dropped = number not in spans


def _spellings(text: str) -> list[str]:
    """A text as it is, and within quotes of JSON."""
    in_quotes = [json.dumps(text, ensure_ascii=plain)[1:-1] for plain in (False, True)]
    return [*dict.fromkeys((text, *in_quotes))]


def _find_json(
    text: str, start: int, elsewhere: Sequence[Span], fits: Callable[[Any], bool]
) -> Span | None:
    """The first JSON object in what no message holds that fits; None: there is none."""
    decoder = json.JSONDecoder()
    while (start := text.find("{", start)) >= 0:
        inside = next((end for first, end in elsewhere if first <= start < end), None)
        if inside is not None:
            start = inside
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start += 1
            continue
        if fits(value):
            return start, end
        start += 1
    return None


def _is_call(call: Any, value: Any) -> bool:
    """Whether a JSON object is a call of a tool, or its arguments alone."""
    about = call.get("function", call) if isinstance(call, dict) else {}
    name, arguments = about.get("name"), about.get("arguments")
    if value in (call, about):
        return True
    if not isinstance(value, dict) or not isinstance(arguments, dict):
        return False
    has_name = value.get("name") == name and arguments in value.values()
    return has_name or (bool(arguments) and value == arguments)
