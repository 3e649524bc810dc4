"""A reasoning and its sentences, as thought anchors cut them (Bogdan et al. 2025, appendix A).

A transcript is what a model reads: a prompt, its reasoning, and an answer behind that. The
reasoning stands between <think> and </think>, or is all that the model wrote.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.records import dataclass
from attnviz.storage.matrices import read_text
from attnviz.storage.texts import check_text, read_conversations

START, STOP = "<think>", "</think>"
SHORT = 10  # characters; what is shorter joins its neighbour
LONGEST_NAME = 256
ONLY_WORDS = 2  # fields of a message of a role and its content
THOUGHTS = ("reasoning_content", "thinking", "reasoning")
"""Fields of a message in which servers put what a model has thought."""
_END = re.compile(r"[.?!](?=[ \n])|\n(?=\n)|\r\n(?=\r\n)")

Render = Callable[[Sequence[Mapping[str, Any]], Any], str]


@dataclass(frozen=True, slots=True)
class Transcript:
    """A text that a model reads, and where its reasoning stands in it."""

    name: str  # the file's, or ""
    text: str
    prompt: int  # characters before the model's own words
    rendered: bool = False  # whether it holds the marks of a chat template

    @property
    def reasoning(self) -> tuple[int, int]:
        """The characters of the reasoning: between the marks, or all that the model wrote."""
        start, stop = self.prompt, len(self.text)
        if (place := self.text.find(START, start)) >= 0:
            start = place + len(START)
        if (place := self.text.find(STOP, start)) >= 0:
            stop = place
        return start, stop

    @property
    def answer(self) -> tuple[int, int] | None:
        """The characters behind the reasoning; None: there are none."""
        start, stop = self.reasoning[1] + len(STOP), len(self.text)
        return (start, stop) if self.text[start:].strip() else None

    def sentences(self) -> tuple[Token, ...]:
        """The sentences of the reasoning, each with its place in the whole text."""
        start, stop = self.reasoning
        return cut_sentences(self.text[:stop], start)


def cut_sentences(text: str, start: int = 0) -> tuple[Token, ...]:
    """The sentences of a text from a character on.

    One ends after . ? or ! before a space or a line's end, and at a blank line. What is shorter
    than ten characters joins the next one, and at the end the one before.
    """
    spans = list[tuple[int, int]]()
    for end in (*(match.end() for match in _END.finditer(text, start)), len(text)):
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            if spans and spans[-1][1] - spans[-1][0] < SHORT:
                first = spans.pop()[0]
            spans.append((first, first + len(text[first:end].rstrip())))
            start = end
    if len(spans) > 1 and spans[-1][1] - spans[-1][0] < SHORT:
        spans[-2:] = [(spans[-2][0], spans[-1][1])]
    return tuple(Token(text[first:end], first, end) for first, end in spans)


def read_transcript(
    what: str | Path, context: str, render: Render | None, *, own: bool
) -> Transcript:
    """The transcript in a file or text, or with `own` the prompt behind which a model will write.

    Args:
        what: a file, or the text itself.
        context: what the model has read before it.
        render: writes a prompt, or the messages of a .json or .jsonl, by a chat template; None: a
            prompt stays as it is.
        own: whether the model is to write the rest.

    Raises:
        InputError: there is no such file, or it holds no transcript.
    """
    path = find_file(what)
    name, text = ("", str(what)) if path is None else (path.name, read_text(path))
    check_text(text)
    words, tools = "", None
    if name.endswith((".json", ".jsonl")):
        if render is None:
            raise UsageError(f"'{name}' holds messages: add --chat")
        turns, tools = _read_chat(text, name)
        if not own:
            last = turns.pop()
            if last["role"] != "assistant" or not turns:
                raise InputError(f"'{name}' does not end with the assistant's turn behind another")
            thoughts = next(
                (last[name] for name in THOUGHTS if isinstance(last.get(name), str)), ""
            )
            content = str(last["content"])
            words = f"{START}\n{thoughts}\n{STOP}\n\n{content}" if thoughts.strip() else content
    else:
        before, mark, rest = (text, "", "") if own else text.partition(START)
        words = "" if own else mark + rest or text
        turns = [{"role": "user", "content": before.strip()}] if own or mark else []
    if context:
        turns.insert(0, {"role": "user", "content": context})
    turns = [one for one in turns if one["content"].strip() or len(one) > ONLY_WORDS]
    if render is None or not turns:
        prompt = "\n\n".join(str(one["content"]) for one in turns)
        prompt += "\n\n" if prompt and words else ""
    else:
        prompt = render(turns, tools)
        if words.lstrip().startswith(START):  # the templates of some models open the reasoning
            prompt = (
                prompt.rstrip().removesuffix(START) if prompt.rstrip().endswith(START) else prompt
            )
    return Transcript(
        name, prompt + words, len(prompt), rendered=render is not None and bool(turns)
    )


def _read_chat(text: str, name: str) -> tuple[list[dict[str, Any]], Any]:
    """The messages of a file's conversation as a template reads them, and its tools."""
    conversations = read_conversations(text, f"'{name}'")
    if len(conversations) > 1:
        raise InputError(f"'{name}' holds {len(conversations)} conversations: give a FILE for each")
    (chat,) = conversations
    return [one.turn for one in chat.messages], json.loads(chat.tools) if chat.tools else None


def find_file(what: str | Path) -> Path | None:
    """The file that a transcript is in; None: it is the text itself.

    Raises:
        InputError: a name of one word, and no such file.
    """
    if isinstance(what, Path) or (len(what) < LONGEST_NAME and Path(what).is_file()):
        return Path(what)
    if not any(one.isspace() for one in what):
        raise InputError(f"there is no file '{what}': name a transcript's, or give its text")
    return None
