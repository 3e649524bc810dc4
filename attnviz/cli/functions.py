"""The commands as functions: what the shell can do Python can, by the same names and options.

A command runs as in the shell, through the one report path; what it found comes back instead of
being printed. A model may be one that is loaded already, texts may be a list, maps may be results.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from attnviz.cli.app import COMMANDS
from attnviz.cli.findings import Findings
from attnviz.cli.options import DECLARED
from attnviz.core.attention_map import Attention
from attnviz.core.errors import AttnvizError, InputError, UsageError, choose, in_short, in_words
from attnviz.core.locks import evaluation_mode, model_lock
from attnviz.core.options import Choice, Given, Many, Origin, names_in, refuse_old_option
from attnviz.core.plugins import INTERRUPTIONS, PluginError, blamed, said
from attnviz.core.registry import Command
from attnviz.models.lens import needs_head
from attnviz.models.open import brings_tokens, check_origin
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AttendChunk, attend_all, close_sources, source_for
from attnviz.runs.pipeline import Result, as_result, attend_one, check_choice, check_kept
from attnviz.storage.texts import BadText, Text, check_text, chunks

Texts = Iterable[str | tuple[str, str | None] | Text]
"""Texts, or pairs of a source and its target."""
SHELL = {"self", "cross", "co", "watch", "live", "render", "serve", "models", "mechanisms"}
"""Commands that are no functions: `attend` is self, cross and co, and `load` reads for render."""
FUNCTIONS = tuple(sorted({*COMMANDS} - SHELL))
PRINTED = ("format", "quiet", "verbose", "open")
"""Options of the shell that mean nothing where nothing is printed."""
OPENERS = ("model", "tokenizer", "processor")


def _attend(text: str, target: str | None = None, **options: Any) -> Result:
    """The attention of a text over itself or, with a target, of the target over the text.

    Args:
        text: the text; with a target, the source whose tokens are the keys.
        target: the text whose tokens are the queries.
        options: those of the shell, by name; `model` may be a model of transformers with its
            `tokenizer` (it is left as it is), and `command` "cross", to let the model write the
            target itself, or "co".

    Returns:
        `.weights` (layers, heads, queries, keys), `.tokens`, `.maps`, `.heatmap()`, `.grid()`,
        `.page()`, `.save()`, `.select()`.

    Raises:
        AttnvizError: what the shell would say in one line.
    """
    for what, given in (("text", text), ("target", target)):
        if not isinstance(given, str) and (given is not None or what == "text"):
            raise UsageError(
                f"the {what} is of type {type(given).__name__}: of several, attend_many"
            )
    command, origin, choice = _asked(options, "self" if target is None else "cross")
    if not brings_tokens(origin):
        check_text(text)
        if target is not None:
            check_text(target, "target")
    return _attended(origin, command, Text("0", text, target), choice)


def _attended(origin: Origin, command: Command, text: Text, choice: Choice) -> Result:
    with in_evaluation(origin.model):
        source = source_for(origin, command, with_head=needs_head(choice.lens))
        found = attend_one(source, text, choice, command)
    return replace(found, again=partial(_attended, origin, command, text))


def _attend_many(
    texts: Texts, *, batch_size: int | None = None, workers: int | None = None, **options: Any
) -> Iterator[Result | AttnvizError]:
    """The attention of each text or pair in order, or in its place why there is none.

    Texts are read together, as the shell reads those of a file; options are those of `attend`.
    """
    many = {"batch_size": batch_size, "workers": workers}
    many = {name: checked(name, one, *DECLARED[Many][name]) for name, one in many.items()}
    records = records_of(texts)
    pairs = any(isinstance(record, Text) and record.target is not None for record in records)
    command, origin, choice = _asked(options, "cross" if pairs else "self")
    work = AttendChunk(origin, choice, command, many["batch_size"])

    def found() -> Iterator[Result | AttnvizError]:
        with open_engine("local", many["workers"], None) as engine:
            results = attend_all(work, chunks(iter(records)), engine)
            while True:
                with in_evaluation(origin.model):  # between two results the model is its owner's
                    record, outcome = next(results, (None, None))
                if outcome is None:
                    return
                if isinstance(outcome, Result) and isinstance(record, Text):
                    again = partial(_attended, origin, command, record)
                    outcome = replace(outcome, again=again)
                yield outcome

    return found()


def unload() -> None:
    """Let go of the models that stay loaded between calls: the last two at most."""
    close_sources()


def _asked(options: dict[str, Any], usual: Command) -> tuple[Command, Origin, Choice]:
    command: Command = usual if options.get("command") is None else options["command"]
    options = {name: value for name, value in options.items() if name != "command"}
    choose(command, ("self", "cross", "co"), "command")
    options = _with_model(options)
    for name in options:
        refuse_old_option(name, command)
        choose(name, sorted({*DECLARED[Origin], *DECLARED[Choice]}), "option")

    def half(kind: Any) -> Any:
        known = {name: one for name, one in DECLARED[kind].items() if name in options}
        return kind(**{name: checked(name, options[name], *one) for name, one in known.items()})

    origin: Origin = half(Origin)
    choice: Choice = half(Choice)
    check_choice(choice)
    check_origin(origin, command)
    check_kept(origin, choice)
    return command, origin, choice


def _with_model(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with a model's name in the place of the model, which brings it along."""
    model, *readers = (options.get(name) for name in OPENERS)
    reader = next((one for one in readers if one is not None), None)
    found = {name: value for name, value in options.items() if name not in OPENERS[1:]}
    if model is None or isinstance(model, str | Path):
        if reader is not None:
            raise UsageError("a tokenizer or processor is for a model from Python: model=…")
        return found if model is None else found | {"model": str(model)}
    return found | {"model": Given(type(model).__name__, model, reader)}


@contextmanager
def in_evaluation(name: str | None) -> Iterator[None]:
    """Have a model when no other thread does; one from Python in evaluation mode meanwhile."""
    model: Any = name.things[0] if isinstance(name, Given) else None
    with model_lock(name if model is None else model), evaluation_mode(model):
        yield


def records_of(texts: Texts) -> list[Text | BadText]:
    """Texts from Python as records; one that cannot be used keeps its place.

    Raises:
        UsageError: they are no list, or hold something that is neither a text nor a pair.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise UsageError(f"a list of texts is needed, and {in_short(texts)} is none")
    found = list[Text | BadText]()
    for number, one in enumerate(texts):
        where = f"text {number}"
        if isinstance(one, Text):
            found.append(one)
            continue
        source, target = one if isinstance(one, list | tuple) and len(one) == 2 else (one, None)
        if not isinstance(source, str) or not isinstance(target, str | None):
            raise UsageError(f"{where} is {in_short(one)}: give a text, or a pair of two")
        try:
            check_text(source)
            if target is not None:
                check_text(target, "target")
            found.append(Text(str(number), source, target, where=where))
        except InputError as error:
            found.append(BadText(where, InputError(f"{where}: {error}"), number + 1))
    return found


def call(name: str, /, *arguments: Any, **options: Any) -> Any:
    """Run a command of the shell with Python's values; answers what it found.

    Raises:
        AttnvizError: what the shell would say in one line; also where no record came to anything.
    """
    command = COMMANDS[name].load()
    parameters = inspect.signature(command).parameters
    positional = [item.name for item in parameters.values() if _is_argument(item)]
    if len(arguments) > len(positional):
        raise UsageError(f"{name} takes {in_words(positional) or 'no values'}, and then options")
    values = dict(zip(positional, arguments, strict=False)) | _with_model(options)
    known = {python_name(item): item.name for item in parameters.values()}
    for option in values:
        refuse_old_option(option, name)
        choose(option, [item for item in known if item not in PRINTED], "option")
    values = {
        known[option]: Given("texts", *records_of(value))
        if option == "reference" and not isinstance(value, str | Path)
        else value
        for option, value in values.items()
    }
    values |= _from_memory(values, parameters, positional)
    if _would_read_stdin(values, parameters, positional):
        raise UsageError(f"{name} needs texts: a list of them, or the name of a file")
    given = {item.name: item.default for item in parameters.values()} | {
        option: checked(option, value, parameters[option].annotation)
        for option, value in values.items()
    }
    found = Findings(name)
    with in_evaluation(given.get("model")):
        try:
            command(**given, collect=found)
        except typer.Exit:
            if not found.items and found.errors:
                raise found.errors[0] from None
    if found.kind == "maps":
        results = [as_result(item.data, Choice()) for item in found.items]  # type: ignore[arg-type]
        return results[0] if len(results) == 1 else results
    return found


REPEATED = list[str]
JOINTS = {"head": ".", "link": ">"}
"""What stands between the parts of a value that Python may give as a tuple: (3, 5), ("a", "b")."""


def python_name(parameter: inspect.Parameter) -> str:
    """What a command's parameter is called in Python: as its option is."""
    _, about = plain(parameter.annotation) or (None, None)
    # Without a default typer takes an option's first name for one.
    names = [str(getattr(about, "default", "")), *(getattr(about, "param_decls", None) or ())]
    long = [name for name in names if name.startswith("--")]
    name = long[0].removeprefix("--").replace("-", "_") if long else parameter.name
    if long and REPEATED in get_args(plain(parameter.annotation)[0]):  # type: ignore[index]
        name += "s"  # what the shell repeats is a list here
    return parameter.name if name == "target" else name  # which is the second text here


def _would_read_stdin(
    values: Mapping[str, Any], parameters: Mapping[str, Any], positional: Sequence[str]
) -> bool:
    """Whether the shell would read texts from stdin, since none were given."""
    files = ("input_file", "weights", "qk", "treebank")
    reads = "input_file" in parameters or any(parameters[one].default == "-" for one in positional)
    return reads and all(values.get(one) is None for one in (positional[0], *files))


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(one, typer.models.ArgumentInfo) for one in get_args(parameter.annotation))


def _from_memory(
    values: Mapping[str, Any], parameters: Mapping[str, Any], positional: Sequence[str]
) -> dict[str, Any]:
    """Lists of texts and results of `attend` as what the command takes for a file of them."""
    first = positional[0] if positional else ""
    value = values.get(first)
    if isinstance(value, Attention) and "weights" in parameters:
        value = [value]
    if isinstance(value, Attention) and "text" in parameters:
        if not isinstance(value, Result) or not isinstance(value.again, partial):
            raise UsageError("only what attend() gave can be run again: give its text and model")
        origin, *_ = value.again.args
        known = {name: getattr(origin, name) for name in DECLARED[Origin] if name in parameters}
        return {**known, **values, "text": value.source or value.text, "target": value.target}
    if isinstance(value, Findings):
        return {
            one: Given(one, values[one]._written("json")) for one in positional if one in values
        }
    if isinstance(value, Attention):
        return {one: Given(f"result {one}", values[one]) for one in positional if one in values}
    if value is None or isinstance(value, str | Path):
        return {}
    value = list(value) if isinstance(value, Iterable) else value
    if isinstance(value, list) and not value:
        raise InputError("no text was given: the list is empty")
    if isinstance(value, list) and all(isinstance(one, Attention) for one in value):
        texts = [Text(one.id, one.text or one.source or "", one.target) for one in value]
        return {
            first: None,
            "weights": Given("results", *value),
            "input_file": Given("results", *texts),
        }
    if "input_format" not in parameters:  # it reads no texts, or one of them
        raise UsageError(f"{first}={in_short(value)} is no text and no name of a file")
    given = Given("texts", *records_of(value))
    return {first: None, "input_file": given} if "input_file" in parameters else {first: given}


def checked(name: str, value: Any, annotation: Any, about: Any = None) -> Any:
    """A value from Python as an option takes it; `about` has its `min` and `max`.

    Raises:
        UsageError: it is of another kind, or out of its range; the message says what it may be.
    """
    kind, about = plain(annotation) or (annotation, about)
    allowed = get_args(kind) if get_origin(kind) not in (None, list, Literal) else (kind,)
    if (value is None and type(None) in allowed) or isinstance(value, Given):
        return value
    allowed = tuple(one for one in allowed if one is not type(None))
    for one in allowed:
        if (made := _made(one, value, name)) is not None:
            return _in_range(name, made, about) if one in (int, float) else made
    words = in_words(getattr(one, "__name__", str(one)) for one in allowed)
    raise UsageError(f"{name}={in_short(value)} is no {words}")


FITS: dict[Any, Any] = {
    bool: bool,
    int: int,
    float: (int, float),
    str: (str, int, Path),
    Path: (str, Path),
}
"""What may be given for an option of a type."""


def _made(kind: Any, value: Any, name: str) -> Any:
    """The value as one of the types that it may be; None: it is none of it."""
    if get_origin(kind) is Literal:
        return choose(value, get_args(kind), name) if isinstance(value, str) else None
    if get_origin(kind) is list:
        return _list_of_texts(value, JOINTS.get(name, ""))
    if kind is str and isinstance(value, list | tuple):
        return (" " if name == "labels" else ",").join(map(str, value))
    fits = isinstance(value, bool) is (kind is bool) and isinstance(value, FITS[kind])
    if not fits or (kind is Path and not _names_file(value)):
        return None
    return kind(value) if kind in (str, Path) else value


def _list_of_texts(value: Any, joint: str) -> list[str] | None:
    """A text, or several, as a list; what the joint joins may be a tuple: (3, 5)."""
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        return None
    if joint and several and isinstance(several[-1], int):  # a single head
        several = [several]
    if not all(isinstance(one, str) or (joint and _is_several(one)) for one in several):
        return None
    return [one if isinstance(one, str) else joint.join(map(str, one)) for one in several]


def _names_file(value: str | Path) -> bool:
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _is_several(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value)


def plain(annotation: Any) -> tuple[Any, Any] | None:
    """The type that an annotation made for the shell holds, and what it tells of it."""
    if not hasattr(annotation, "__metadata__"):
        return None
    return annotation.__origin__, annotation.__metadata__[0]


def _in_range(name: str, value: float, about: Any) -> float:
    least, most = getattr(about, "min", None), getattr(about, "max", None)
    if (least is not None and value < least) or (most is not None and value > most):
        ends = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{name}={value} is out of range: {ends}")
    return value


KEYWORD = inspect.Parameter.KEYWORD_ONLY
MODEL = {
    "model": "Model of transformers, its name or folder, or a shipped one ('pocket').",
    "tokenizer": "What reads the texts of a model that is given itself.",
    "processor": "What reads the pictures of a model that is given itself.",
}
"""The options that a model from Python adds, and what they are."""


def described(name: str) -> tuple[inspect.Signature, str]:
    """How a function is called, and its docstring, both from the one list of options."""
    if name in OWN:
        own = inspect.signature(OWN[name], eval_str=True).parameters.values()
        parameters = [item for item in own if item.name != "options"]
        told = {item.name: "" for item in parameters}
        parameters.append(_keyword("command", Literal["self", "cross", "co"] | None, None))
        for half in (Origin, Choice):
            for option, (annotation, option_of) in DECLARED[half].items():
                parameters.append(_keyword(option, annotation, getattr(half(), option)))
                told[option] = _helped(option_of.help, annotation, option_of.choices)
        summary = inspect.getdoc(OWN[name]) or ""
        returns: Any = Result if name == "attend" else Iterator[Result | AttnvizError]
    else:
        command = COMMANDS[name].load()
        parameters, told = [], {}
        for item in inspect.signature(command).parameters.values():
            kind, about = plain(item.annotation) or (item.annotation, None)
            if python_name(item) in PRINTED or getattr(about, "hidden", False):
                continue
            first = not parameters and _is_argument(item)
            kind = Any if first else kind
            default = item.default if not callable(item.default) else None
            parameters.append(
                item.replace(annotation=kind, default=default)
                if _is_argument(item)
                else _keyword(python_name(item), kind, default)
            )
            told[parameters[-1].name] = getattr(about, "help", "") or ""
        summary = COMMANDS[name].summary
        returns = {"image": Result, "audio": Result | Findings}.get(name, Findings)
    if "model" in told:
        place = next(n for n, item in enumerate(parameters) if item.name == "model") + 1
        parameters[place:place] = [_keyword(name, Any, None) for name in OPENERS[1:]]
        parameters[place - 1] = parameters[place - 1].replace(annotation=Any)
        told |= MODEL
    lines = [f"    {option}: {text}" for option, text in told.items() if text]
    positional = [item for item in parameters if item.kind is not KEYWORD]
    keyword = [item for item in parameters if item.kind is KEYWORD]
    signature = inspect.Signature([*positional, *keyword], return_annotation=returns)
    return signature, "\n".join([summary.rstrip(), "", "Options:", *lines])


WIDER = {"layer": int | Sequence[int], "head": int | Sequence[int], "labels": Sequence[str]}
"""What Python may give for some options besides the shell's text."""


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    if Path in (annotation, *get_args(annotation)):
        annotation |= str
    if REPEATED in get_args(annotation):
        annotation = Sequence[str | tuple[str | int, ...]] | None
    annotation = annotation | WIDER[name] if name in WIDER else annotation
    return inspect.Parameter(name, KEYWORD, default=default, annotation=annotation)


def _helped(text: str, annotation: Any, choices: Sequence[str]) -> str:
    return text.replace("{choices}", in_words(choices or names_in(annotation) or ("",)))


def function(name: str) -> Callable[..., Any]:
    """A command as a function of Python, with the command's options as its keywords."""

    def run(*arguments: Any, **options: Any) -> Any:
        try:
            if name in OWN:
                return OWN[name](*arguments, **options)
            return call(name, *arguments, **options)
        except (Exception, *INTERRUPTIONS):
            raise
        except BaseException as error:
            if (package := blamed(error)) is None:
                raise
            raise PluginError(f"the plug-in {package} failed: {said(error)}") from error

    run.__name__ = run.__qualname__ = name
    signature, run.__doc__ = described(name)
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


OWN: dict[str, Callable[..., Any]] = {"attend": _attend, "attend_many": _attend_many}
"""Functions that are no command's."""


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS or name in OWN:
        return globals().setdefault(name, function(name))
    raise AttributeError(f"module 'attnviz.cli.functions' has no attribute '{name}'")
