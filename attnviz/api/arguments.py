"""The keywords that functions share, and how their arguments are checked."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypedDict, TypeVar, get_args, get_type_hints

from attnviz.core.errors import InputError, UsageError, choose, in_short
from attnviz.core.locks import evaluation_mode, model_lock
from attnviz.core.options import (
    DECLARED,
    Choice,
    Device,
    Dtype,
    InMemory,
    InMemoryModel,
    InMemoryReader,
    Look,
    Many,
    Options,
    Origin,
    Reduction,
    Special,
)
from attnviz.core.plugins import INTERRUPTIONS, PluginError, error_line, plugin_at_fault
from attnviz.core.values import Range, check_option_text, check_value
from attnviz.runs.inputs import TextInput, given_texts, texts_of
from attnviz.storage.texts import BadText, Text, check_text, read_conversation

Which = int | str | Sequence[int] | None  # layers or heads: 3, "0-2", "2.3", [0, 2]


class ModelOptions(TypedDict, total=False):
    """A model by name or folder, or one of transformers in memory with what reads its inputs."""

    model: Any
    tokenizer: Any
    processor: Any
    adapter: str | None
    device: Device
    dtype: Dtype | None
    allow: str | None


class FileOptions(TypedDict, total=False):
    """Weights, or queries and keys, that a file holds."""

    weights: str | Path | None
    qk: str | Path | None


class SelectionOptions(TypedDict, total=False):
    """Which maps of a model are taken."""

    stream: str | None
    layer: Which
    head: Which


class ViewOptions(SelectionOptions, total=False):
    """What is made of the maps of a text."""

    token_groups: str | Path | None
    reduce: Reduction
    kv: bool
    special: Special
    group: str | None
    words: bool


class LensOptions(TypedDict, total=False):
    """A lens, and what it explains."""

    lens: str
    explain: str | None
    check: int


class ReadingOptions(TypedDict, total=False):
    """How files of texts are read."""

    columns: str | None
    on_error: str | Path


class SharingOptions(TypedDict, total=False):
    """Who does the work on many texts."""

    batch_size: int | None
    workers: int | None
    engine: str


class TranslationOptions(ModelOptions, total=False):
    """A model, and the languages of source and target."""

    from_: str | None
    to: str | None


class AttendOptions(TranslationOptions, FileOptions, LensOptions, ViewOptions, total=False):
    """What `attend` and `attend_many` take."""

    contacts: str | Path | None
    mechanism: str | None
    command: Literal["self", "cross"] | None
    causal: bool
    generate: int | None
    chat: bool
    keep_qk: bool
    scores: bool
    channels: str
    max_size: int | None
    rows: str | None
    window: str | None
    top: int
    labels: str | Sequence[str] | None


class HeadsOptions(
    TranslationOptions, SelectionOptions, ReadingOptions, SharingOptions, FileOptions, total=False
):
    """What `heads` takes."""

    mechanism: str | None
    causal: bool
    generate: int | None
    max_size: int | None
    special: Special
    scores: bool
    token_groups: str | Path | None


class ChatOptions(TranslationOptions, total=False):
    """What `sources` takes."""

    chat: bool
    generate: int | None


class ExperimentOptions(TranslationOptions, ReadingOptions, total=False):
    """What `ablate`, `why` and `explain` take."""

    token_groups: str | Path | None
    causal: bool
    chat: bool
    explain: str | None


class CacheOptions(TranslationOptions, ReadingOptions, total=False):
    """What `cache` takes."""

    generate: int | None
    causal: bool
    chat: bool
    stream: str | None


class AlignOptions(TranslationOptions, ReadingOptions, SharingOptions, total=False):
    """What `align` takes."""

    max_size: int | None
    layer: Which
    head: Which


class CompareOptions(ModelOptions, LensOptions, ViewOptions, total=False):
    """What `compare` takes."""

    from_: str | None
    mechanism: str | None
    causal: bool
    generate: int | None
    chat: bool
    max_size: int | None


class ImageOptions(ModelOptions, total=False):
    """What `image` takes."""

    generate: int | None
    explain: str | None
    check: int
    layer: Which
    head: Which
    reduce: Reduction
    special: Special


class AudioOptions(ModelOptions, ViewOptions, total=False):
    """What `audio` takes."""

    max_size: int | None
    top: int


class StepsOptions(ModelOptions, SelectionOptions, total=False):
    """What `steps` takes."""


P = ParamSpec("P")
Answer = TypeVar("Answer")
Texts = Iterable[str | tuple[str, str | None] | Text]  # texts, or pairs of a source and its target


Sentence = Annotated[str, "checked by the function itself"]
InMemoryInput = Annotated[Any, "a file, or what it would hold: a picture, an array"]
Conversation = Annotated[
    Sequence[Mapping[str, Any]] | Mapping[str, Any], "checked by the function itself"
]
Positive = Annotated[int, Range(1)]
NotNegative = Annotated[int, Range(0)]
Nats = Annotated[float, Range(0)]
OPENERS = ("model", "tokenizer", "processor")
OPTIONS = {name: kind for half in (Origin, Choice, Many) for name, kind in DECLARED[half].items()}
IN_PYTHON = {
    **{name: f"call .picture('{name}', FILE) on what it returns" for name in ("heatmap", "grid")},
    "picture": "call .picture(NAME, FILE) on what it returns",
    **{name: f"call .picture({name}=…) on what it returns" for name in DECLARED[Look]},
    "output": "call .save(FILE) on what it returns",
    "html": "call .page(FILE) on what it returns",
    "resume": "give checkpoint=FILE",
}
"""Options of the shell about files and pictures, each with what Python has instead."""


def public(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """A function whose arguments are checked by its annotations before it runs.

    An exception of a plug-in that is no Exception becomes an error of attnviz.
    """

    @functools.wraps(function)
    def run(*arguments: P.args, **keywords: P.kwargs) -> Answer:
        signature = inspect.signature(function)
        by_name = signature.bind(*arguments, **keywords).arguments
        options = by_name.pop("options", {})
        for name, value in (by_name | options).items():
            if name in options or signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
                check_option_text(name, value)
        kinds, kinds_of_options = _kinds_of(function)
        for name in options:
            if name in IN_PYTHON and name not in kinds_of_options:
                raise UsageError(f"{name}= is an option of the shell: {IN_PYTHON[name]}")
            choose(name, [*kinds, *kinds_of_options], "option")
        values = {name: check_value(name, value, kinds[name]) for name, value in by_name.items()}
        checked_options = {
            name: check_value(name, value, *OPTIONS.get(name, (kinds_of_options[name], None)))
            for name, value in _with_model(options).items()
        }
        try:
            return function(**values, **checked_options)  # type: ignore[call-arg]
        except (Exception, *INTERRUPTIONS):
            raise
        except BaseException as error:
            if (package := plugin_at_fault(error)) is None:
                raise
            raise PluginError(f"the plug-in {package} failed: {error_line(error)}") from error

    return run


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of a function's own parameters, and those of its shared options."""
    kinds = get_type_hints(function, include_extras=True)
    kinds.pop("return", None)
    (type_of_options,) = get_args(kinds.pop("options", None)) or (None,)
    return kinds, {} if type_of_options is None else get_type_hints(type_of_options)


def _with_model(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with a model from Python and the reader of its inputs as one value."""
    model, *readers = (options.get(name) for name in OPENERS)
    reader = next((one for one in readers if one is not None), None)
    others = {name: value for name, value in options.items() if name not in OPENERS}
    if model is not None and not isinstance(model, str | Path | InMemoryModel):
        return others | {"model": InMemoryModel(model, reader)}
    if reader is not None and not isinstance(reader, str | Path | InMemory):
        reader = InMemoryReader(reader)
    values = {"model": model, "tokenizer": reader}
    paths = {name: str(one) if isinstance(one, Path) else one for name, one in values.items()}
    return others | {name: one for name, one in paths.items() if one is not None}


def read_options(options: Mapping[str, Any], *, top: int = 0) -> Options:
    """The shared options of a run; links of a text in blocks are looked for only where listed."""
    origin, choice, many = (
        {name: options[name] for name in DECLARED[half] if name in options}
        for half in (Origin, Choice, Many)
    )
    return Options(Origin(**{"top": top, **origin}), Choice(**choice), many=Many(**many))


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
