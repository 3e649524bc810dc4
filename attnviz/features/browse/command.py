"""attnviz browse, `--browse` of other commands, and `Result.browse()`."""

from __future__ import annotations

import copy
import io
import os
import re
import signal
import sys
from dataclasses import replace
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING, Any

from attnviz.cli.stderr import interrupt
from attnviz.commands.command import INPUT, RECORD, Run, command
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.options import Options, arg

if TYPE_CHECKING:
    from attnviz.core.attention_map import Attention
    from attnviz.features.browse.ask import Asker
    from attnviz.features.browse.state import State
    from attnviz.renderers.reports import Item
    from attnviz.storage.texts import Text
EXTRA = "browse needs the package {}: pip install 'attnviz[browse]'"


@command(
    *("model", "compute", "mechanism", "weights", "generate", "long", "causal", "to", "chat"),
    *("range", "reading"),
    also=("from_", "lens", "head", "special", "words", "quiet", "verbose", "errors"),
    report=(),
)
def browse(
    text: str | None = arg("Text, or a file: saved maps, a picture, a recording; - is stdin."),
    target: str | None = arg("Target of a pair, or what a picture is asked."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    record: str | None = RECORD,
    **options: Any,
) -> int:
    """Browse attention by keys, in this terminal; ? lists them.

    attnviz browse "The professor who supervised the student published the paper"

    attnviz browse "The red car is fast" "La voiture rouge est rapide"

    attnviz self "The cat sat on the mat" -f npz | attnviz browse -

    attnviz browse shapes.png
    """
    how = Run("browse", options).options
    if how.choice.lens == "all":
        raise UsageError("--lens all is shown by a page: here l goes through the lenses one by one")
    check_terminal()
    signal.signal(signal.SIGHUP, interrupt)  # else it would leave the cursor hidden
    asker, attention = first_answer(text, target, input, record, how)
    return show(attention, asker, how)


def check_terminal() -> None:
    """Refuse where there is no terminal to draw in and to read keys from, and without textual."""
    import importlib.util

    streams = {"stdout": sys.__stdout__, "stderr": sys.__stderr__}
    for name, stream in streams.items():
        if stream is None or not stream.isatty():
            raise UsageError(f"browse needs a terminal, and {name} is none: 'attnviz self' prints")
    if os.name != "posix" or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("browse needs a terminal that moves its cursor: 'attnviz self' prints")
    if importlib.util.find_spec("textual") is None:
        raise ModelError(EXTRA.format("textual"))


def keys_from_terminal() -> None:
    """Read keys from the terminal where stdin was a pipe.

    Raises:
        UsageError: there is no terminal.
    """
    if sys.__stdin__ is not None and sys.__stdin__.isatty():
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise UsageError("browse reads keys, and stdin is no terminal") from error
    os.dup2(terminal, 0)
    os.close(terminal)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115


def first_answer(
    text: str | None, target: str | None, file: str | None, record: str | None, options: Options
) -> tuple[Asker, Attention]:
    """What is shown first, and what can be asked about it."""
    from rich.console import Console

    from attnviz.commands.render import files_of
    from attnviz.features.browse.ask import Asker, records_of
    from attnviz.models.open import brings_tokens, check_origin
    from attnviz.runs.inputs import texts_of
    from attnviz.runs.readers import kind_of_file
    from attnviz.storage.texts import Text

    every: Any
    origin = options.origin
    kind: Any = None if text is None else kind_of_file(text)
    is_saved = text is not None and kind is None and os.path.isfile(text)  # noqa: PTH113
    if file is None and (text == "-" or (text is None and not sys.stdin.isatty())):
        content = sys.stdin.buffer.read()
        sys.stdin, text = io.TextIOWrapper(io.BytesIO(content)), "-"
        is_saved = content.startswith((b"PAR1", b"PK", b"{", b"["))
    if is_saved:
        every = records_of(files_of(str(text)))
    elif kind is not None:
        kind = "picture-text" if kind == "picture" and target is not None else kind
        every = [Text("0", str(text), target)]
    elif brings_tokens(origin) and text is None and file is None:
        every = [Text("0", "")]
    else:
        second = None if text == "-" else target  # every line of stdin has the same target
        arguments = [one for one in (text, second) if one is not None]
        pairs = second is not None or file is not None
        source = texts_of(arguments, file, options.many, pairs=pairs).open()
        source = iter([*source]) if "-" in (text, file) else source  # stdin will be the terminal
        every = (replace(x, target=target) if target and isinstance(x, Text) else x for x in source)
    words = ("render", str(text)) if is_saved and text != "-" else ()
    # What was read is kept, and each copy begins with the first.
    asker = Asker(
        None if is_saved else origin, kind or "self", None, words, partial(copy.copy, tee(every)[0])
    )
    one = asker.find(record)
    if kind is None and isinstance(one, Text):
        asker.kind = "self" if one.target is None else "cross"
        check_origin(origin, asker.kind)
    try:
        with Console(stderr=True, force_jupyter=False).status("opening the model and reading"):
            return asker, asker.answer_to(one)
    finally:
        os.write(2, b"\x1b[?25h")  # a signal may come between hiding the cursor and all else


class BrowsedResult:
    """The output of --browse: the first result, once all others are complete."""

    def __init__(self, options: Options, command: str) -> None:
        check_terminal()
        self.options, self.command = options, command
        self.first: Any = None
        self.texts: list[Text] = []

    def add(self, item: Item) -> None:
        """Keep the first result, and the text of each."""
        from attnviz.storage.texts import Text

        data: Any = item.data
        self.first, again = self.first or data, getattr(data, "again", None)
        both = data.source or data.text or "", data.target
        self.texts.append(again.text if again else Text(data.id, *both))

    def finish(self) -> None:
        """Browse it."""
        from attnviz.commands.render import files_of
        from attnviz.features.browse.ask import Asker, records_of
        from attnviz.runs.readers import kind_of_file
        from attnviz.storage.texts import Text

        data, names = self.first, dict(self.options.given)
        if data is None:
            return
        kind: Any = self.command
        file, text = names.get("file", ""), self.texts[0]
        if kind_of_file(file) == "picture" and "more" not in names:
            kind = "picture-text" if "text" in names else "picture"
            text = Text("0", file, names.get("text"))
        asker = Asker(self.options.origin if kind else None, kind or "self", text)
        if kind:  # the model answers again: what it was may be a part of its maps
            data = asker.attend()
            asker.records = self.texts.__iter__
        elif file not in ("", "-") and not kind_of_file(file):
            asker.saved = ("render", file)
            asker.records = lambda: records_of(files_of(file))
        show(data, asker, self.options)


def show(attention: Attention, asker: Asker, options: Options) -> int:
    """Browse attention in this terminal; return the status."""
    keys_from_terminal()
    from attnviz.features.browse.app import run

    return run(first_state(attention, asker, options), asker)


def first_state(attention: Attention, asker: Asker, options: Options) -> State:
    """The state that a terminal of these colours opens on."""
    from attnviz.analyses.select import named_heads
    from attnviz.cli.destinations import display_of_stdout
    from attnviz.features.browse import keys
    from attnviz.features.browse.state import begin, see

    choice, live, pictures = options.choice, asker.origin is not None, asker.pixels(attention)
    colors = display_of_stdout(many=False).colors
    state = begin(attention, live=live, pictures=pictures, colors=colors, dark=is_dark())
    if choice.lens != "raw":
        state = keys.change_of(keys.lens(state, choice.lens), asker)(state)
    if choice.words or choice.special != "keep":
        words = state.words or choice.words
        state = see(state, words=words, special=choice.special == "keep")
    if choice.head is not None:
        item = state.item
        first = item.layers[state.layer], choice.head  # head 3 of every layer: of the one seen
        layer, head = (named_heads(choice.head) or [first])[0]
        if layer not in item.layers or head not in item.heads:
            raise UsageError(f"--head {choice.head} does not exist in stream '{item.stream}'")
        state = replace(state, layer=item.layers.index(layer), head=item.heads.index(head))
    return state


def is_dark() -> bool:
    """Whether the terminal's ground is dark: it is asked, unless COLORFGBG says; most are."""
    from attnviz.cli.terminal import ask_terminal

    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    if ground:
        return ground not in ("7", "15")
    # What every terminal answers comes last (DA1), as behind the questions of --show.
    answer = ask_terminal(b"\x1b]11;?\x1b\\\x1b[c").decode("ascii", "replace")
    match = re.search(r"]11;rgb:([\da-fA-F]+)/([\da-fA-F]+)/([\da-fA-F]+)", answer)
    parts = [int(one, 16) / (16 ** len(one) - 1) for one in match.groups()] if match else [0.0]
    return sum(parts) / len(parts) < 0.5
