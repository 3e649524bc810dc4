"""The way in: what arguments name, or a result that other outputs have shown already."""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from attnviz.analyses.select import named_heads
from attnviz.cli.destinations import display_of_stdout
from attnviz.cli.terminal import ask_terminal
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.options import Options
from attnviz.features.browse import keys
from attnviz.features.browse.ask import Subject, Subjects, saved_subjects, text_subject
from attnviz.features.browse.state import State, begin
from attnviz.models.open import brings_tokens, check_origin
from attnviz.renderers.reports import Item
from attnviz.runs import inputs, readers
from attnviz.storage.texts import Text


def check_terminal() -> None:
    """Refuse where there is no terminal to draw in and to read keys from, and without textual."""
    streams = {"stdout": sys.__stdout__, "stderr": sys.__stderr__}
    for name, stream in streams.items():
        if stream is None or not stream.isatty():
            raise UsageError(f"browse needs a terminal, and {name} is none: 'attnviz self' prints")
    if os.name != "posix" or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("browse needs a terminal that moves its cursor: 'attnviz self' prints")
    if find_spec("textual") is None:
        raise ModelError("browse needs the package textual: pip install 'attnviz[browse]'")


def subjects_of(
    text: str | None, target: str | None, file: str | None, options: Options
) -> Subjects:
    """What the arguments name: saved maps, a picture, a recording, or texts."""
    origin, kind = options.origin, None if text is None else readers.kind_of_file(text)
    if text is not None and kind is not None:
        both = "picture-text" if kind == "picture" and target is not None else kind
        return Subjects([Subject(origin, both, Text("0", text, target))])
    is_saved = text is not None and os.path.isfile(text)  # noqa: PTH113
    if file is None and (text == "-" or (text is None and not sys.stdin.isatty())):
        content = sys.stdin.buffer.read()
        sys.stdin, text = io.TextIOWrapper(io.BytesIO(content)), "-"
        is_saved = content.startswith((b"PAR1", b"PK", b"{", b"["))
    if is_saved:
        return Subjects(saved_subjects(str(text)))
    if brings_tokens(origin) and text is None and file is None:
        return Subjects([text_subject(origin, Text("0", ""))])
    second = None if text == "-" else target  # every line of stdin has the same target
    arguments = [one for one in (text, second) if one is not None]
    pairs = second is not None or file is not None
    texts = inputs.texts_of(arguments, file, options.many, pairs=pairs).open()
    if "-" in (text, file):  # stdin will be the terminal
        texts = iter([*texts])
    return Subjects(text_subject(origin, one, target) for one in texts)


def open_first(subjects: Subjects, record: str | None) -> State:
    """The state that shows the first of several, or the one of an id or a number."""
    where = subjects.find(record)
    subject: Subject = where["subject"]
    if subject.origin is not None and (subject.kind == "self" or subject.kind == "cross"):
        check_origin(subject.origin, subject.kind)
    try:
        with Console(stderr=True, force_jupyter=False).status("opening the model and reading"):
            subject, attention = subject.attend()
    finally:
        os.write(2, b"\x1b[?25h")  # a signal may come between hiding the cursor and all else
    where |= {"subject": subject, "pictures": subject.pixels(attention)}
    return begin(attention, **where)


class BrowsedResult:
    """The output of --browse: the first result, once all others are complete."""

    def __init__(self, options: Options, command: str) -> None:
        check_terminal()
        self.options, self.command = options, command
        self.first: Any = None
        self.texts: list[Text] = []

    def add(self, item: Item) -> None:
        data: Any = item.data
        self.first, again = self.first or data, getattr(data, "again", None)
        both = data.source or data.text or "", data.target
        self.texts.append(again.text if again else Text(data.id, *both))

    def finish(self) -> None:
        kind: Any = self.command
        names, texts = dict(self.options.given), self.texts
        file, where = names.get("file", ""), dict[str, Any]()
        kind_of = readers.kind_of_file(file)
        if self.first is None:
            return
        if kind_of == "picture" and "more" not in names:
            kind = "picture-text" if "text" in names else "picture"
            texts = [Text("0", file, names.get("text"))]
        if kind:  # the model answers again: what it was may be a part of its maps
            subjects = (Subject(self.options.origin, kind, one) for one in texts)
            state = open_first(Subjects(subjects), None)
        else:
            if file not in ("", "-") and kind_of is None:
                where = Subjects(saved_subjects(file)).find(names.get("record"))
            state = begin(self.first, **where)
        show(state, self.options)


def show(state: State, options: Options) -> int:
    """Browse in this terminal; return the status."""
    keys_from_terminal()
    from attnviz.features.browse.app import run

    return run(as_chosen(state, options))


def as_chosen(state: State, options: Options) -> State:
    """The state as options choose, in the colours of this terminal."""
    colors: Any = display_of_stdout(many=False).colors
    choice = options.choice
    state = replace(state, colors=colors, dark=is_dark())
    if choice.lens != "raw":
        state, _ = keys.perform(state, keys.lens(state, choice.lens))
    if choice.words or choice.special != "keep":
        words = state.words or choice.words
        state = state.see(words=words, special=choice.special == "keep")
    if choice.head is not None:
        item = state.item
        first = item.layers[state.layer], choice.head  # head 3 of every layer: of the one seen
        layer, head = (named_heads(choice.head) or [first])[0]
        if layer not in item.layers or head not in item.heads:
            raise UsageError(f"--head {choice.head} does not exist in stream '{item.stream}'")
        state = replace(state, layer=item.layers.index(layer), head=item.heads.index(head))
    return state


def keys_from_terminal() -> None:
    """Read keys from the terminal where stdin was a pipe."""
    if sys.__stdin__ is not None and sys.__stdin__.isatty():
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise UsageError("browse reads keys, and stdin is no terminal") from error
    os.dup2(terminal, 0)
    os.close(terminal)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115


def is_dark() -> bool:
    """Whether the terminal's ground is dark: it is asked, unless COLORFGBG says; most are."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    if ground:
        return ground not in ("7", "15")
    # What every terminal answers comes last (DA1), as behind the questions of --show.
    answer = ask_terminal(b"\x1b]11;?\x1b\\\x1b[c").decode("ascii", "replace")
    match = re.search(r"]11;rgb:([\da-fA-F]+)/([\da-fA-F]+)/([\da-fA-F]+)", answer)
    parts = [int(one, 16) / (16 ** len(one) - 1) for one in match.groups()] if match else [0.0]
    return sum(parts) / len(parts) < 0.5
