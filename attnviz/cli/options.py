"""The shared options of commands, in groups.

A command takes `options: Options` and says with `@with_options` which groups it offers; the
decorator gives typer the signature that it needs to see. An option is declared where its value is,
in `attnviz.core.options`.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import Field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from typer.models import OptionInfo

from attnviz.cli.app import stderr_form
from attnviz.core.errors import UsageError, in_words
from attnviz.core.options import (
    DECLARED,
    Choice,
    Look,
    Many,
    Option,
    Options,
    Origin,
    Output,
    names_in,
    opt,
    pictures_by_kind,
)
from attnviz.core.registry import LARGEST, DataKind
from attnviz.renderers.reports import formats_of

ORIGIN = "Where attention comes from"
CHOICE = "Which part of it"
OUTPUT = "Where it goes"
MANY = "Many texts"
LOOK = "How pictures look"
HALVES = {Origin: ORIGIN, Choice: CHOICE, Output: OUTPUT, Look: LOOK, Many: MANY}
"""The parts of the shared options, each with the panel of the help that it stands in."""
PANELS: dict[str, str] = {"long": CHOICE, "range": CHOICE, "top": OUTPUT}
"""Groups that stand in another panel than the rest of their part."""
REPORT: tuple[str, ...] = ("stdout", "data", "cut", "said")
"""Options of every command that writes data."""
MODELS: tuple[str, ...] = (
    *("model", "compute", "mechanism", "weights", "generate", "projections", "long"),
)
"""Options that say where the attention of a text comes from."""
VIEW: tuple[str, ...] = (
    "lens",
    "stream",
    "heads",
    "reduce",
    "kv",
    "labels",
    "special",
    "group",
)
"""Options that choose and change maps."""
PLACES: tuple[str, ...] = (
    *("matrix", "pictures", "show", "look", "page", "browse", "top", "digits"),
)
"""Options of pictures, pages, lists of links and weights as data."""
MAPS = ("heatmap", "grid")
"""The pictures of a map that have options of their own."""
MAP_PICTURES = {"lines": "tokens joined by lines, up to eight heads in colours"}
"""What --picture draws of a map."""
MANY_TEXTS: tuple[str, ...] = ("reading", "sharing", "files")
ONE_OF = Literal


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


def complete_from(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion over a fixed list."""
    choices = list(names)
    return lambda incomplete: [name for name in choices if name.startswith(incomplete)]


def option_of(
    annotation: Any,
    option: Option,
    panel: str,
    kinds: tuple[DataKind, ...] = ("maps",),
    draws: Mapping[str, str] | None = None,
) -> Any:
    """An option as typer reads it from an annotation."""
    choices = option.choices or names_in(annotation)
    suffixes: list[str] = []
    if option.group in ("stdout", "data"):
        formats = {name: entry for kind in kinds for name, entry in formats_of(kind).items()}
        suffixes = sorted({entry.suffix for entry in formats.values() if entry.suffix})
        choices = tuple(formats) if annotation == str | None else ()
    if choices:
        # typer completes these names and refuses others.
        names: Any = ONE_OF[tuple(choices)]
        annotation = names | None if type(None) in get_args(annotation) else names
    settings: dict[str, Any] = {
        "metavar": option.metavar,
        "min": option.min,
        "max": option.max,
        "readable": False,  # reading says so, in the words that are said of arguments
    }
    if option.suggestions:
        settings["autocompletion"] = complete_from(option.suggestions)
    words = {"choices": in_words(choices) if choices else "", "suffixes": ", ".join(suffixes)}
    words["pictures"] = _pictures_in_words(draws or {})
    text = option.help
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return Annotated[
        annotation, typer.Option(*option.names, help=text, rich_help_panel=panel, **settings)
    ]


def _pictures_in_words(draws: Mapping[str, str]) -> str:
    """What --picture draws: the first kind by itself, others by their names."""
    usual, *others = draws.items() or [("", "")]
    more = (
        f" {'FILE.gif' if name == 'gif' else f'{name}:FILE'} draws {what}." for name, what in others
    )
    return f"Draw {usual[1]}: .png, .svg or .pdf.{''.join(more)}"


def _own_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter of the command itself; its option may be declared with `opt`."""
    if isinstance(parameter.default, Field):
        option: Option = parameter.default.metadata["option"]
        annotation = option_of(parameter.annotation, option, option.group)
        # A keyword, since the panels of the help may put it behind shared options.
        return parameter.replace(
            kind=parameter.KEYWORD_ONLY, default=parameter.default.default, annotation=annotation
        )
    return parameter


def _place_in_help(parameter: inspect.Parameter) -> int:
    """Arguments first, then panels in one order in every command."""
    panels, about = [*HALVES.values()], parameter.annotation.__metadata__[0]
    panel = about.rich_help_panel if isinstance(about, OptionInfo) else None
    return panels.index(panel) if panel in panels else -1


def _files_named(values: dict[str, Any], outputs: Collection[str]) -> Iterator[tuple[str, str]]:
    """The values that may name a file to read: texts and paths that are no outputs."""
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str | Path) and name not in outputs:
                yield name, str(one)


def with_options(
    *groups: str,
    also: Iterable[str] = (),
    writes: DataKind | tuple[DataKind, ...] = "maps",
    report: tuple[str, ...] = REPORT,
    rare: Collection[str] = (),
    draws: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Any]:
    """A decorator that gives a command groups of shared options.

    `draws` are the kinds of its --picture, the usual one first, each in words; --help only names
    the options in `rare`.
    """
    kinds = (writes,) if isinstance(writes, str) else writes
    offers = {
        half: {
            name: option_of(annotation, option, PANELS.get(option.group, panel), kinds, draws)
            for name, (annotation, option) in DECLARED[half].items()
            if option.group in (*report, *groups, *(["picture"] if draws else [])) or name in also
        }
        for half, panel in HALVES.items()
    }
    names = {*OPTIONS, *(option.group for option in OPTIONS.values())}
    assert names.issuperset((*groups, *also)), f"no such options: {groups}, {also}"
    defaults: dict[Any, Any] = {half: half() for half in HALVES}
    of_map = [name for name in MAPS if name in offers[Output]]
    # --show draws the first: a heat map where there is one, else the command's own
    picture_kinds = sorted([*(draws or {}), *of_map], key="heatmap".__ne__)

    def decorate(command: Callable[..., None]) -> Any:
        signature = inspect.signature(command, eval_str=True)
        parameters = [
            _own_parameter(item) for item in signature.parameters.values() if item.name != "options"
        ]
        parameters += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(defaults[half], name),
                annotation=annotation,
            )
            for half, options in offers.items()
            for name, annotation in options.items()
        ]
        parameters.sort(key=_place_in_help)

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for name, value in values.items():
                if type(value) is int and abs(value) > LARGEST and not name.endswith("seed"):
                    option = name.replace("_", "-")
                    raise UsageError(
                        f"--{option} {value}: no more than {LARGEST:,} can be asked for"
                    )
            files = tuple(_files_named(values, offers[Output].keys() | {"on_error"}))
            origin, choice, output, look, many = (
                half(**{name: values.pop(name) for name in options})
                for half, options in offers.items()
            )
            if "top" not in offers[Origin]:  # finding the strongest links costs time
                origin = replace(origin, top=0)
            stderr_form.set(output.errors)
            pictures = dict.fromkeys(picture_kinds) | {
                name: getattr(output, name) for name in MAPS if name in picture_kinds
            }
            pictures |= pictures_by_kind(output.picture or [], draws or {})
            options = Options(origin, choice, output, many, look, pictures, files)
            command(**values, options=options)

        option_by_name = {name: OPTIONS[name] for options in offers.values() for name in options}
        option_by_name |= {
            item.name: item.default.metadata["option"]
            for item in signature.parameters.values()
            if isinstance(item.default, Field)
        }
        run.draws = picture_kinds  # type: ignore[attr-defined]
        run.rare = {*rare, *(name for name, option in option_by_name.items() if option.rare)}  # type: ignore[attr-defined]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        del run.__wrapped__
        return run

    return decorate
