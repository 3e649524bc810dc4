"""The shared options of commands, in groups.

A command takes `options: Options` and says with `@with_options` which groups it offers; the
decorator gives typer the signature that it needs to see. An option is declared where its value is,
in `attnviz.core.options`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import Field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from attnviz.core.errors import UsageError, in_words
from attnviz.core.options import (
    DECLARED,
    Choice,
    Many,
    Option,
    Options,
    Origin,
    Output,
    names_in,
    opt,
)
from attnviz.core.registry import DataKind
from attnviz.renderers.reports import formats_of

ORIGIN = "Where attention comes from"
CHOICE = "Which part of it"
OUTPUT = "Where it goes"
MANY = "Many texts"
HALVES = {Origin: ORIGIN, Choice: CHOICE, Output: OUTPUT, Many: MANY}
"""The parts of the shared options, each with the panel of the help that it stands in."""
PANELS: dict[str, str] = {"long": CHOICE, "range": CHOICE, "top": OUTPUT}
"""Groups that stand in another panel than the rest of their part."""
REPORT: tuple[str, ...] = ("stdout", "data", "said")
"""What every command offers that writes data; one whose stdout is a program's has no format."""
MODELS: tuple[str, ...] = (
    *("model", "compute", "mechanism", "layer", "weights", "generate", "projections", "long"),
)
"""Where a text's attention may come from."""
VIEW: tuple[str, ...] = ("lens", "stream", "heads", "reduce", "labels", "special", "group")
"""What may be made of the maps of a text."""
PLACES: tuple[str, ...] = ("pictures", "links", "page", "top")
"""Where maps may go, beside what every command writes."""
MANY_TEXTS: tuple[str, ...] = ("reading", "sharing", "files")
ONE_OF = Literal
LARGEST = 10**9
"""No number of anything is larger; an array of more than memory holds is refused in its place."""


INPUT = opt(
    "Options",
    "--input -i FILE",
    "Texts from .txt (one a line), .jsonl, .csv or .tsv, also .gz; - is stdin.",
)


OPTIONS = {name: option for of_half in DECLARED.values() for name, (_, option) in of_half.items()}
"""The declaration of every shared option."""


def completion_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion over a fixed list."""
    listed = list(names)
    return lambda incomplete: [name for name in listed if name.startswith(incomplete)]


def one_of(names: Iterable[str]) -> Any:
    """The type of one name of a table: typer completes it and refuses others."""
    return ONE_OF[tuple(names)]


def option_of(
    annotation: Any, declared: Option, panel: str, kinds: tuple[DataKind, ...] = ("maps",)
) -> Any:
    """The annotation from which typer makes an option."""
    choices = declared.choices or names_in(annotation)
    suffixes: list[str] = []
    if declared.group in ("stdout", "data"):
        found = {name: entry for kind in kinds for name, entry in formats_of(kind).items()}
        suffixes = sorted({entry.suffix for entry in found.values() if entry.suffix})
        choices = tuple(found) if annotation == str | None else ()
    if choices:
        optional = type(None) in get_args(annotation)
        annotation = one_of(choices) | None if optional else one_of(choices)
    settings: dict[str, Any] = {
        "metavar": declared.metavar,
        "min": declared.min,
        "max": declared.max,
    }
    if declared.suggested:
        settings["autocompletion"] = completion_of(declared.suggested)
    words = {"choices": in_words(choices) if choices else "", "suffixes": ", ".join(suffixes)}
    text = declared.help
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return Annotated[
        annotation, typer.Option(*declared.names, help=text, rich_help_panel=panel, **settings)
    ]


def _own_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """A command's own parameter, whose option may be declared like a shared one."""
    if isinstance(parameter.default, Field):
        declared: Option = parameter.default.metadata["option"]
        annotation = option_of(parameter.annotation, declared, declared.group)
        return parameter.replace(default=parameter.default.default, annotation=annotation)
    return parameter


def _named_files(values: dict[str, Any], written: Collection[str]) -> Iterator[tuple[str, str]]:
    """What may name a file that is read: every word and path that is not where results go."""
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str | Path) and name not in written:
                yield name, str(one)


def with_options(
    *groups: str,
    also: Iterable[str] = (),
    writes: DataKind | tuple[DataKind, ...] = "maps",
    report: tuple[str, ...] = REPORT,
) -> Callable[[Callable[..., None]], Any]:
    """A decorator that gives a command groups of the shared options."""
    kinds = (writes,) if isinstance(writes, str) else writes
    offered = {
        half: {
            name: option_of(annotation, option, PANELS.get(option.group, panel), kinds)
            for name, (annotation, option) in DECLARED[half].items()
            if option.group in (*report, *groups) or name in also
        }
        for half, panel in HALVES.items()
    }
    known = {*OPTIONS, *(option.group for option in OPTIONS.values())}
    assert known.issuperset((*groups, *also)), f"no such options: {groups}, {also}"
    defaults: dict[Any, Any] = {half: half() for half in HALVES}

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
            for half, options in offered.items()
            for name, annotation in options.items()
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for name, value in values.items():
                if type(value) is int and abs(value) > LARGEST and not name.endswith("seed"):
                    option = name.replace("_", "-")
                    raise UsageError(
                        f"--{option} {value}: no more than {LARGEST:,} can be asked for"
                    )
            given = tuple(_named_files(values, offered[Output].keys() | {"rejects"}))
            origin, choice, output, many = (
                half(**{name: values.pop(name) for name in options})
                for half, options in offered.items()
            )
            if "top" not in offered[Origin]:  # what is not listed is not looked for
                origin = replace(origin, top=0)
            command(**values, options=Options(origin, choice, output, many, given))

        declared = {name: OPTIONS[name] for options in offered.values() for name in options}
        declared |= {
            item.name: item.default.metadata["option"]
            for item in signature.parameters.values()
            if isinstance(item.default, Field)
        }
        run.rare = {name for name, option in declared.items() if option.rare}  # type: ignore[attr-defined]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        del run.__wrapped__
        return run

    return decorate
