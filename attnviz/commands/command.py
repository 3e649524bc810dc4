"""One command is one function; the shell and Python are made of it.

Its parameters say by `arg` and `opt` what the shell shows of them, `@command` which shared options
it takes. Typer reads that in `attnviz.cli.options`; from Python the same function is called with
its arguments checked, and its signature lists every option.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from attnviz.core.errors import UsageError, choose, in_words
from attnviz.core.options import (
    DECLARED,
    Choice,
    InMemory,
    InMemoryModel,
    InMemoryReader,
    Many,
    Options,
    Origin,
    Output,
)
from attnviz.core.options.look import Look
from attnviz.core.options.option import Option, names_in, opt
from attnviz.core.plugins import INTERRUPTIONS, PluginError, error_line, plugin_at_fault
from attnviz.core.records import dataclass, fields, replace
from attnviz.core.registry import PICTURES, DataKind
from attnviz.core.values import check_option_text, check_value

if TYPE_CHECKING:
    from attnviz.commands.findings import Findings
    from attnviz.runs.pipeline import Result

ORIGIN = "Where attention comes from"
CHOICE = "Which part of it"
OUTPUT = "Where it goes"
MANY = "Many texts"
LOOK = "How pictures look"
HALVES = {Origin: ORIGIN, Choice: CHOICE, Output: OUTPUT, Look: LOOK, Many: MANY}
"""The parts of the shared options, each with the panel of the help that it stands in."""
REPORT = ("stdout", "data", "cut", "said")
"""Options of every command that writes data."""
MODELS = ("model", "compute", "mechanism", "weights", "generate", "projections", "long")
"""Options that say where the attention of a text comes from."""
VIEW = ("lens", "stream", "heads", "reduce", "kv", "labels", "special", "group")
"""Options that choose and change maps."""
PLACES = ("matrix", "pictures", "show", "look", "page", "browse", "top", "digits")
"""Options of pictures, pages, lists of links and weights as data."""
MAPS = ("heatmap", "grid")
"""The pictures of a map that have options of their own."""
MAP_PICTURES = {"lines": "tokens joined by lines, up to eight heads in colours"} | {
    name: row.summary[:1].lower() + row.summary[1:].rstrip(".")
    for name, row in PICTURES.items()
    if row.package
}
"""What --picture draws of a map."""
MANY_TEXTS = ("reading", "sharing", "files")

INPUT = opt(
    "Options",
    "--input -i FILE",
    "Read texts from a file: .txt (one a line), .jsonl, .csv, .tsv, each also .gz; - is stdin.",
)
BY_HELP = "What replaces the output of a head that is off: zero, mean or, in ablate, resample."
RECORD = opt(
    ORIGIN, "--record ID_OR_NUMBER", "Which of several texts: its id, or else its number from 0."
)
SEED = "Seed of what is drawn by chance."
OPTIONS = {name: option for of_half in DECLARED.values() for name, (_, option) in of_half.items()}
"""The declaration of every shared option."""
KINDS = {name: kind for half in (Origin, Choice, Many) for name, kind in DECLARED[half].items()}
"""The type and the declaration of what functions of Python share."""
OPENERS = ("model", "tokenizer", "processor")
IN_PYTHON = {
    **{name: f"call .picture('{name}', FILE) on what it returns" for name in ("heatmap", "grid")},
    "picture": "call .picture(NAME, FILE) on what it returns",
    **{name: f"call .picture({name}=…) on what it returns" for name in DECLARED[Look]},
    "output": "call .save(FILE) on what it returns",
    "html": "call .page(FILE) on what it returns",
    "resume": "give checkpoint=FILE",
}
"""Options of the shell about files and pictures, each with what Python has instead."""
SECTIONS = r"\n\n(?=(?:Args|Returns|Raises):\n)"

P = ParamSpec("P")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Taken:
    """A parameter of a command's own."""

    name: str
    annotation: Any
    default: Any  # as of `inspect.Parameter`
    kind: Any
    option: Option | None  # None: the shell has no such option

    @property
    def parameter(self) -> inspect.Parameter:
        return inspect.Parameter(
            self.name, self.kind, default=self.default, annotation=self.annotation
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """A function, and what the shell and Python offer of it beside its own parameters."""

    function: Callable[..., Any]
    writes: tuple[DataKind, ...]
    offers: Mapping[Any, Collection[str]]  # the shared options, by their part
    rare: Collection[str]  # options that --help only names
    draws: Mapping[str, str]  # the kinds of its --picture in words, the usual one first

    @property
    def own(self) -> list[Taken]:
        return own_parameters(self.function)

    @property
    def picture_kinds(self) -> list[str]:
        """What it draws; --show draws the first: a heat map where there is one, else its own."""
        of_map = [name for name in MAPS if name in self.offers[Output]]
        return sorted([*self.draws, *of_map], key="heatmap".__ne__)

    @property
    def help(self) -> str:
        """The docstring without the sections that are about Python."""
        return re.split(SECTIONS, inspect.cleandoc(self.function.__doc__ or ""))[0]


def command(
    *groups: str,
    also: Iterable[str] = (),
    writes: DataKind | tuple[DataKind, ...] = "maps",
    report: tuple[str, ...] = REPORT,
    rare: Collection[str] = (),
    draws: Mapping[str, str] | None = None,
    python: Collection[str] = (),
) -> Callable[[Callable[P, Answer]], Callable[P, Answer]]:
    """A decorator that makes a function a command, with groups of shared options.

    `draws` are the kinds of its --picture, the usual one first, each in words; --help only names
    the options in `rare`; `python` are shared options that only Python has.
    """
    every = {*OPTIONS, *(option.group for option in OPTIONS.values())}
    assert every.issuperset((*groups, *also)), f"no such options: {groups}, {also}"
    all_groups = (*report, *groups, *(["picture"] if draws else []))
    offers = {
        half: [
            name
            for name, (_, option) in DECLARED[half].items()
            if option.group in all_groups or name in also
        ]
        for half in HALVES
    }
    names = [name for half in (Origin, Choice, Many) for name in offers[half]]
    names = [name for name in names if name not in IN_PYTHON]
    more = {"lens": "check", "workers": "batch_size", "labels": "token_groups"}
    names += [*(one for name, one in more.items() if name in names), *python]

    def decorate(function: Callable[P, Answer]) -> Callable[P, Answer]:
        kinds = (writes,) if isinstance(writes, str) else writes
        own = own_parameters(function)
        rarely = {name for name in (*rare, *OPTIONS) if name in rare or OPTIONS[name].rare}
        rarely |= {item.name for item in own if item.option and item.option.rare}
        rarely -= {item.name for item in own if item.option and not item.option.rare} - {*rare}
        api = in_python(names)(function)
        api.command = Usage(function, kinds, offers, rarely, draws or {})  # type: ignore[attr-defined]
        return api

    return decorate


def own_parameters(function: Callable[..., Any]) -> list[Taken]:
    """The parameters of a function without its shared options."""
    own = []
    for item in inspect.signature(function).parameters.values():
        if item.kind is item.VAR_KEYWORD:
            continue
        item_field = item.default if isinstance(item.default, Field) else None
        default = item.default if item_field is None else item_field.default
        if default is ...:
            default = item.empty
        annotation = item.annotation
        if isinstance(annotation, str):
            annotation = eval(annotation, function.__globals__)
        option = None if item_field is None else item_field.metadata["option"]
        own.append(Taken(item.name, annotation, default, item.kind, option))
    return own


def in_python(options: Collection[str]) -> Callable[[Callable[P, Answer]], Callable[P, Answer]]:
    """A decorator: arguments are checked by their annotations, the signature lists every option.

    An exception of a plug-in that is no Exception becomes an error of attnviz.
    """

    def decorate(function: Callable[P, Answer]) -> Callable[P, Answer]:
        own = own_parameters(function)
        public = [item for item in own if item.option is None or not item.option.hidden]
        signature = _signature_of(function, public, options)
        usual = {item.name: item.default for item in own}

        @functools.wraps(function)
        def run(*arguments: P.args, **keywords: P.kwargs) -> Answer:
            from attnviz.runs.engines.shards import ONE_THREAD

            values = usual | _values_of(signature, public, arguments, keywords)
            before = _shell.set(None)
            try:
                with ONE_THREAD:  # as the shell has, see attnviz/__main__.py
                    return function(**values)  # type: ignore[call-arg]
            except (Exception, *INTERRUPTIONS):
                raise
            except BaseException as error:
                if (package := plugin_at_fault(error)) is None:
                    raise
                raise PluginError(f"the plug-in {package} failed: {error_line(error)}") from error
            finally:
                _shell.reset(before)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__doc__ = _docstring(function, public)
        return run

    return decorate


def _signature_of(
    function: Callable[..., Any], own: Sequence[Taken], options: Collection[str]
) -> inspect.Signature:
    """The signature of a function of Python, with each shared option."""
    names = [name for name in options if name not in {item.name for item in own}]
    if "model" in names:
        names.insert(names.index("tokenizer") + 1, "processor")
    parts = Origin(), Choice(), Many()
    defaults = {one.name: getattr(part, one.name) for part in parts for one in fields(part)}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name),
            annotation=Any if name in OPENERS else KINDS[name][0],
        )
        for name in names
    ]
    answer = inspect.signature(function).return_annotation
    return inspect.Signature(
        [*(item.parameter for item in own), *parameters], return_annotation=answer
    )


def _values_of(
    signature: inspect.Signature,
    own: Sequence[Taken],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> dict[str, Any]:
    """The arguments of a call by name, as the shell would give them."""
    for name, value in keywords.items():
        check_option_text(name, value)
    kinds = {item.name: item for item in own}
    for name in keywords:
        if name in IN_PYTHON and name not in signature.parameters:
            raise UsageError(f"{name}= is an option of the shell: {IN_PYTHON[name]}")
        choose(name, signature.parameters, "option")
    by_name = signature.bind(*arguments, **keywords).arguments
    options = {name: value for name, value in by_name.items() if name not in kinds}
    values = {
        name: check_value(name, value, kinds[name].annotation, kinds[name].option)
        for name, value in by_name.items()
        if name in kinds
    }
    for name, value in _with_model(options).items():
        values[name] = check_value(name, value, *KINDS[name])
    return values


def _docstring(function: Callable[..., Any], own: Iterable[Taken]) -> str:
    """The docstring of Python: without examples of the shell, with every parameter of its own."""
    text, *sections = re.split(SECTIONS, inspect.cleandoc(function.__doc__ or ""))
    example = re.compile(r"(.* )?attnviz \w+( |$)", re.MULTILINE)
    about = [part for part in text.split("\n\n") if not example.match(part)]
    args = [f"    {item.name}: {help_of(item)}" for item in own if item.option is not None]
    for part in [*sections]:
        if part.startswith("Args:\n"):
            args += part.splitlines()[1:]
            sections.remove(part)
    return "\n\n".join([*about, "\n".join(["Args:", *args]), *sections])


def help_of(item: Taken) -> str:
    """What Python says of a parameter."""
    assert item.option is not None
    choices = item.option.choices or names_in(item.annotation)
    return item.option.python or item.option.help.replace("{choices}", in_words(choices or ("",)))


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


@dataclass(frozen=True, slots=True)
class Shell:
    """The command line that calls a function: its options, and what opens its report."""

    options: Options
    report: Callable[..., AbstractContextManager[Any]]


_shell: ContextVar[Shell | None] = ContextVar("_shell", default=None)


@contextmanager
def called_by(shell: Shell) -> Iterator[None]:
    """The function that is called in the block writes where this command line says."""
    before = _shell.set(shell)
    try:
        yield
    finally:
        _shell.reset(before)


class Run:
    """One call of a command: its shared options, and the report that takes what it finds.

    Attributes:
        options: the shared options.
        keywords: those that Python gives by name.
        in_shell: whether the command line calls.
    """

    def __init__(self, name: str, keywords: Mapping[str, Any], *, top: int = 0) -> None:
        self.name, self.keywords, self._shell = name, keywords, _shell.get()
        self.in_shell = self._shell is not None
        shell = self._shell
        self.options = read_options(keywords, top=top) if shell is None else shell.options
        self._found: Any = 0

    @property
    def result(self) -> Findings:
        """What Python gets; in the shell the exit status."""
        answers: Findings = self._found
        return answers

    def spell(self, name: str) -> str:
        """An option as the caller writes it."""
        return f"--{name.replace('_', '-')}" if self.in_shell else name

    @property
    def attention(self) -> Result:
        """The attention that was reported alone, for Python; in the shell the exit status."""
        from attnviz.commands.findings import only_result

        status: Any = self._found
        answers: Result = status if self.in_shell else only_result(self._found)
        return answers

    def without_files(self) -> Options:
        """The options, where no argument is to be told from a file that is written."""
        return replace(self.options, given=())

    @contextmanager
    def report(self, kind: DataKind = "maps", **more: Any) -> Iterator[Any]:
        """The report of the block: the outputs of the shell, or what collects for Python."""
        if self._shell is not None:
            with self._shell.report(self.options, kind, **more) as report:
                yield report
            self._found = report.status
            return
        from attnviz.commands.findings import collect

        with collect(self.name, kind, self.options) as answers:
            yield answers
        self._found = answers.findings

    def write(self, data: Any, kind: DataKind = "listing", summary: str = "listed") -> Findings:
        """Report a single result; the answer is `result`."""
        with self.report(kind) as report:
            report.add(data)
            report.finish(summary)
        return self.result
