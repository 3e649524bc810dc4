"""Questions: what changes without a part, or between two texts or models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.analyses.view import is_pair
from attnviz.api import arguments
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError
from attnviz.core.options import Options
from attnviz.core.registry import Command, SourceKind
from attnviz.models.open import check_origin
from attnviz.runs.inputs import TextInput, given_texts
from attnviz.runs.pipeline import Result
from attnviz.runs.readers import read_file_argument


def read_question(
    function: str, text: Any, target: str | None, file: str | None, options: Mapping[str, Any]
) -> tuple[Options, TextInput, Command]:
    """The options, the texts, and the command that reads them; a result brings its own model."""
    record = None
    if isinstance(text, Attention):
        if not isinstance(text, Result) or text.again is None:
            raise UsageError("only what attend() gave can be run again: give its text and model")
        # What the caller gives wins over what the result was made with.
        names, origin = arguments.ExperimentOptions.__optional_keys__, text.again.origin
        own = {name: getattr(origin, name) for name in names if hasattr(origin, name)}
        record = text.again.text if is_pair(text) or text.again.text.messages else None
        text, target, options = text.source or text.text, text.target, {**own, **options}
    elif arguments.is_conversation(text) and target is file is None:
        record, options = arguments.conversation_of(text), {"chat": True, **options}
    how = arguments.read_options(options)
    if record is not None:
        return how, given_texts(record), "self"
    single = isinstance(text, str) and target is None and file is None
    command: Command = "self" if single else "cross"  # files and lists may hold pairs
    texts = arguments.read_texts(function, text, file, how.many, target=target, pairs=not single)
    check_origin(how.origin, command)
    return how, texts, command


Names = str | list[str] | tuple[str, ...] | None
"""One or several: rules, files."""


def read_reference(function: str, reference: Any, how: Options) -> TextInput | None:
    if reference is None:
        return None
    name = str(reference) if isinstance(reference, str | Path) else None
    return arguments.read_texts(function, None if name else reference, name, how.many, pairs=True)


def read_written(
    function: str, text: Any, target: str | None, file: str | None, options: Mapping[str, Any]
) -> tuple[Options, TextInput, SourceKind]:
    """The options, texts or a file, and what reads them."""
    if (inputs := read_file_argument(text, target)) and file is None:
        return arguments.read_options(options), *inputs
    return read_question(function, text, target, file, options)
