"""What typer reads of a command: its own parameters and the shared options, by panel."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from typer.models import OptionInfo

from attnviz.cli.stderr import stderr_form
from attnviz.commands.command import CHOICE, HALVES, MAPS, OUTPUT, Shell, Taken, Usage, called_by
from attnviz.core.errors import UsageError, in_words
from attnviz.core.options import DECLARED, Options, Origin, Output, pictures_by_kind
from attnviz.core.options.option import ARGUMENTS, Option, names_in, shell_type
from attnviz.core.registry import LARGEST, DataKind
from attnviz.renderers.reports import formats_of

PANELS: dict[str, str] = {"long": CHOICE, "range": CHOICE, "top": OUTPUT}
"""Groups that stand in another panel than the rest of their part."""
ONE_OF = Literal


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


def _own_parameter(item: Taken) -> inspect.Parameter:
    """A parameter of the command itself, as typer reads it."""
    assert item.option is not None
    annotation = item.option.shell or shell_type(item.annotation)
    if item.option.group == ARGUMENTS:
        about = typer.Argument(
            help=item.option.help, metavar=item.option.usage or None, readable=False
        )
        annotation = Annotated[annotation, about]
    else:
        annotation = option_of(annotation, item.option, item.option.group)
    return item.parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


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


def for_typer(usage: Usage) -> Any:
    """The function of the shell, whose signature typer reads; it ends with the exit status."""
    offers = {
        half: {
            name: option_of(
                annotation, option, PANELS.get(option.group, panel), usage.writes, usage.draws
            )
            for name, (annotation, option) in DECLARED[half].items()
            if name in usage.offers[half]
        }
        for half, panel in HALVES.items()
    }
    own = {item.name: item.option for item in usage.own if item.option is not None}
    parameters = [_own_parameter(item) for item in usage.own if item.option is not None]
    parameters += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(usual, name),
            annotation=annotation,
        )
        for half, options in offers.items()
        for usual in (half(),)
        for name, annotation in options.items()
    ]
    parameters.sort(key=_place_in_help)

    def run(**values: Any) -> None:
        for name, value in values.items():
            if type(value) is int and abs(value) > LARGEST and not name.endswith("seed"):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} {value}: no more than {LARGEST:,} can be asked for")
        files = _files_named(values, {*usage.offers[Output], "on_error"})
        rest = {name: value for name, value in values.items() if name not in own}
        options = _options_of(usage, rest, files)
        with called_by(Shell(options, _open_report)):
            status = usage.function(**{name: values[name] for name in own})
        raise typer.Exit(status if isinstance(status, int) else 0)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run


def _options_of(usage: Usage, values: dict[str, Any], files: Iterable[tuple[str, str]]) -> Options:
    """The shared options that were given."""
    origin, choice, output, look, many = (
        half(**{name: values[name] for name in usage.offers[half]}) for half in HALVES
    )
    if "top" not in usage.offers[Origin]:  # finding the strongest links costs time
        origin = replace(origin, top=0)
    stderr_form.set(output.errors)
    pictures = dict.fromkeys(usage.picture_kinds) | {
        name: getattr(output, name) for name in MAPS if name in usage.picture_kinds
    }
    pictures |= pictures_by_kind(output.picture or [], usage.draws)
    return Options(origin, choice, output, many, look, pictures, tuple(files))


def _open_report(*arguments: Any, **more: Any) -> AbstractContextManager[Any]:
    from attnviz.cli.outputs import Outputs
    from attnviz.cli.plan import plan

    return Outputs(plan(*arguments, **more))
