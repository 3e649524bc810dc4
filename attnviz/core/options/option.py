"""How one option is declared: its names and help in the shell, and its values."""

from functools import reduce
from operator import or_
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from attnviz.core.records import dataclass, field

ARGUMENTS = "Arguments"  # the group of what the shell gives by its place


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line spells and explains an option."""

    group: str  # commands take options by group; for a command's own option, the panel of the help
    usage: str  # its names and metavar, "--format -f NAME"; a flag has no metavar
    help: str  # "{choices}" stands for the values that the type allows
    min: int | None = None  # the least number
    max: int | None = None
    # the values, if they are names of a table and not of a Literal type
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()  # values that the shell completes; others are allowed too
    rare: bool = False  # --help only names it, and --help-all explains it
    python: str = ""  # what it is in Python, if that takes more than the shell
    shell: Any = None  # its type in the shell, if that is not a part of its annotation
    hidden: bool = False  # whether Python has no such keyword

    @property
    def names(self) -> list[str]:
        return [word for word in self.usage.split() if word.startswith("-")]

    @property
    def short(self) -> str:
        """How a message names it: "--model", or "--style width"."""
        return self.usage.partition("=")[0] if "=" in self.usage else self.names[0]

    @property
    def metavar(self) -> str | None:
        return self.usage.removeprefix(" ".join(self.names)).strip() or None


def opt(group: str, usage: str, text: str, *, default: object = None, **more: Any) -> Any:
    """The default of a field or parameter, which carries its `Option`.

    Without a default a flag is False and anything else None. `more` are further fields of `Option`.
    """
    option = Option(group, usage, text, **more)
    if default is None and option.metavar is None:
        default = False
    return field(default=default, metadata={"option": option})


def arg(text: str, metavar: str = "", *, default: object = None, **more: Any) -> Any:
    """The default of a parameter that the shell gives by its place; `...`: it must be given."""
    return field(default=default, metadata={"option": Option(ARGUMENTS, metavar, text, **more)})


def rare(group: str, usage: str, text: str, **more: Any) -> Any:
    """The same for an option that --help only names, and --help-all explains."""
    return opt(group, usage, text, rare=True, **more)


def names_in(literal: object) -> tuple[str, ...]:
    """The names that a Literal type allows, also beside None; none for other types."""
    names = [name for part in (literal, *get_args(literal)) for name in get_args(part)]
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def shell_type(annotation: Any) -> Any:
    """The part of a type that a shell can give: texts, numbers, paths and lists of them."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    plain = (str, int, float, bool, Path, type(None))
    return reduce(or_, (one for one in parts if one in plain or get_origin(one) in (Literal, list)))
