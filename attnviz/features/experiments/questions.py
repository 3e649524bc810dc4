"""Questions: what changes without a part, or between two texts or models."""

from pathlib import Path
from typing import Any

from attnviz.analyses.view import is_pair
from attnviz.commands import arguments
from attnviz.commands.command import Run, read_options
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError
from attnviz.core.registry import Command, SourceKind
from attnviz.models.open import check_origin
from attnviz.runs.inputs import TextInput, given_texts, texts_of, texts_or_pairs
from attnviz.runs.pipeline import Result
from attnviz.runs.readers import read_file_argument

Names = str | list[str] | tuple[str, ...] | None
"""One or several: rules, files."""
QUESTION = "a text, the source of a pair, a list of texts or pairs, or a result of `attend`."
OF_ORIGIN = [
    "model",
    "tokenizer",
    "adapter",
    "device",
    "dtype",
    "allow",
    "from_",
    "to",
    "causal",
    "chat",
]
"""What a question takes from the result that it is about."""


def read_question(
    run: Run, text: Any, target: str | None, file: str | None
) -> tuple[TextInput, Command]:
    """The texts, and the command that reads them; a result brings its own model."""
    if run.in_shell:
        return texts_or_pairs(text, target, file, run.options)
    record, options = None, run.keywords
    if isinstance(text, Attention):
        if not isinstance(text, Result) or text.again is None:
            raise UsageError("only what attend() gave can be run again: give its text and model")
        # What the caller gives wins over what the result was made with.
        own = {name: getattr(text.again.origin, name) for name in (*OF_ORIGIN, "chat")}
        record = text.again.text if is_pair(text) or text.again.text.messages else None
        text, target, options = text.source or text.text, text.target, {**own, **options}
    elif arguments.is_conversation(text) and target is file is None:
        record, options = arguments.conversation_of(text), {"chat": True, **options}
    how = run.options = read_options(options)
    if record is not None:
        return given_texts(record), "self"
    single = isinstance(text, str) and target is None and file is None
    command: Command = "self" if single else "cross"  # files and lists may hold pairs
    texts = arguments.read_texts(run.name, text, file, how.many, target=target, pairs=not single)
    check_origin(how.origin, command)
    return texts, command


def read_written(
    run: Run, text: Any, target: str | None, file: str | None
) -> tuple[TextInput, SourceKind]:
    """The texts, or the file of a picture or a recording, and what reads them."""
    if file is None and (inputs := read_file_argument(text, target)):
        run.options = run.without_files()
        return inputs
    return read_question(run, text, target, file)


def read_reference(run: Run, reference: Any) -> TextInput | None:
    """The texts, or a file of them, that replacements come from."""
    if reference is None:
        return None
    many = run.options.many
    if isinstance(reference, str | Path):
        return texts_of([], str(reference), many, pairs=True)
    return arguments.read_texts(run.name, reference, None, many, pairs=True)
