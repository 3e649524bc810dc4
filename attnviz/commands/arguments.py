"""What functions of Python are given: texts, conversations, models in memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from attnviz.core.errors import InputError, UsageError, in_short
from attnviz.core.locks import evaluation_mode, model_lock
from attnviz.core.options import InMemoryModel, Many
from attnviz.core.values import Range
from attnviz.runs.inputs import TextInput, given_texts, texts_of
from attnviz.storage.texts import BadText, Text, check_text, read_conversation

Texts = Iterable[str | tuple[str, str | None] | Text]  # texts, or pairs of a source and its target


Sentence = Annotated[str, "checked by the function itself"]
InMemoryInput = Annotated[Any, "a file, or what it would hold: a picture, an array"]
Conversation = Annotated[
    Sequence[Mapping[str, Any]] | Mapping[str, Any], "checked by the function itself"
]
Positive = Annotated[int, Range(1)]


@contextmanager
def in_evaluation(model: str | InMemoryModel | None) -> Iterator[None]:
    """Keep other threads from a model; one from Python is in evaluation mode meanwhile."""
    own = model.model if isinstance(model, InMemoryModel) else None
    with model_lock(model if own is None else own), evaluation_mode(own):
        yield


def name_parts(name: str, value: Any, joint: str) -> tuple[str, ...]:
    """One or several names of heads, links or tokens; parts of a name may be a tuple: (3, 5)."""
    several = [] if value is None else [value] if isinstance(value, str) else value
    if joint and isinstance(several, list | tuple) and several and isinstance(several[-1], int):
        several = [several]  # a single head
    if not isinstance(several, list | tuple) or not all(
        isinstance(one, str) or (joint and isinstance(one, list | tuple) and one) for one in several
    ):
        raise UsageError(f"{name}={in_short(value)} is no list of names")
    return tuple(one if isinstance(one, str) else joint.join(map(str, one)) for one in several)


def is_conversation(value: Any) -> bool:
    """Whether it is a list of messages, not of texts or pairs, or an object with one."""
    if isinstance(value, Mapping):
        return "messages" in value
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def conversation_of(messages: Any, number: int = 0) -> Text:
    """A list of messages, or an object with them, as a record."""
    return Text(str(number), **read_conversation(messages, f"text {number}"))


def records_of(texts: Any) -> list[Text | BadText]:
    """Texts from Python as records; one that cannot be used keeps its place.

    Raises:
        UsageError: they are no list, or hold something that is neither a text nor a pair.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise UsageError(f"a list of texts is needed, and {in_short(texts)} is none")
    records = list[Text | BadText]()
    for number, one in enumerate(texts):
        where = f"text {number}"
        if isinstance(one, Text):
            records.append(one)
            continue
        if is_conversation(one):
            records.append(conversation_of(one, number))
            continue
        source, target = one if isinstance(one, list | tuple) and len(one) == 2 else (one, None)
        if not isinstance(source, str) or not isinstance(target, str | None):
            raise UsageError(f"{where} is {in_short(one)}: give a text, or a pair of two")
        try:
            check_text(source)
            if target is not None:
                check_text(target, "target")
            records.append(Text(str(number), source, target, where=where))
        except InputError as error:
            records.append(BadText(where, InputError(f"{where}: {error}"), number + 1))
    return records


def read_texts(
    function: str,
    texts: Any,
    file: str | Path | None,
    many: Many,
    *,
    target: str | None = None,
    pairs: bool = False,
    keep_blank: bool = False,
) -> TextInput:
    """A text, a pair, a list of texts or pairs, or those of a file.

    Raises:
        UsageError: nothing was given, or more than one of them.
    """
    if texts is None and file is None:
        raise UsageError(f"{function} needs texts: a list of them, or the name of a file")
    if texts is None or isinstance(texts, str):
        arguments: Sequence[str] = [one for one in (texts, target) if one is not None]
        name = None if file is None else str(file)
        return texts_of(arguments, name, many, pairs=pairs, keep_blank=keep_blank)
    if file is not None or target is not None:
        other = "a target" if file is None else "input="
        raise UsageError(f"both a list of texts and {other} were given: give one")
    records = records_of(texts)
    if not records:
        raise InputError("no text was given: the list is empty")
    return given_texts(*records, several=True)
