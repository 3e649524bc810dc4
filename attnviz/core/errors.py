"""The errors a user can cause, each one line with an exit status; anything else is a bug."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class AttnvizError(Exception):
    """Something that the user can mend; shown as one line, without a traceback."""

    status = 1


class UsageError(AttnvizError):
    """A wrong request: an option, a name or a selection that does not exist."""

    status = 2


class InputError(AttnvizError):
    """A text, a file or a record that cannot be read or used."""


class NotFiniteError(InputError):
    """Attention of one text that is NaN or infinite, and so means nothing."""


class ModelError(AttnvizError):
    """A model or tokenizer that cannot be found, loaded or run."""


class AttentionError(AttnvizError):
    """A model that ran, but whose attention cannot be had as weights."""


class OutputError(AttnvizError):
    """A result that cannot be written where it was asked for."""


class WorkerError(AttnvizError):
    """Workers that cannot be had, or that died over what they were given."""


LONGEST_CAUSE = 300
"""Characters of another library's error that are shown: it may quote a whole file."""


def first_line(error: BaseException) -> str:
    """What an error of another library says, cut to one line; its class where it says nothing."""
    try:
        lines = [line.strip() for line in str(error)[:10_000].splitlines() if line.strip()]
    except Exception:  # of an object whose very name raises
        lines = []
    if not lines:
        return type(error).__name__
    # What ends in a colon announces the cause.
    said = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    cut = f"{said[:LONGEST_CAUSE]}…" if len(said) > LONGEST_CAUSE else said
    return cut.rstrip(".")


def reason_of(error: BaseException) -> str:
    """An error in one line: its message, behind its class where it is none of ours."""
    line, kind = first_line(error), type(error).__name__
    return line if isinstance(error, AttnvizError) or line == kind else f"{kind}: {line}"


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """A sentence that names the closest allowed spelling, or nothing where none is close."""
    from difflib import get_close_matches

    # Dashes are no likeness: '--dpi' is not '--pair'. A letter wrong in four is still a slip.
    bare = {one.lstrip("-."): one for one in allowed}
    close = get_close_matches(name.lstrip("-."), bare, n=1, cutoff=0.66)
    return f" Did you mean '{bare[close[0]]}'?" if close else ""


def choose(name: str, allowed: Iterable[str], what: str) -> str:
    """The name itself where it is allowed; `what` is its kind ("format"), for the message.

    Raises:
        UsageError: it is not allowed; the message lists what is and guesses what was meant.
    """
    names = list(allowed)
    if not isinstance(name, str):
        raise UsageError(f"{in_short(name)} is no {what}: choose from {', '.join(names)}")
    if name in names:
        return name
    raise UsageError(
        f"unknown {what} '{name}': choose from {', '.join(names)}.{did_you_mean(name, names)}"
    )


def in_short(value: object) -> str:
    """A value from Python as an error shows it: on one line, and not much of it."""
    from reprlib import repr as brief

    return " ".join(brief(value).split())[:60]


def check_arguments(function: Any, values: Mapping[str, Any]) -> None:
    """Refuse values that are of another type than the annotations of a function's parameters.

    Raises:
        UsageError: the first of them; the message begins with its name.
    """
    from inspect import signature, unwrap
    from typing import get_type_hints

    from msgspec import MsgspecError, convert

    kinds, parameters = get_type_hints(unwrap(function)), signature(function).parameters
    for name, value in values.items():
        if kinds[name] is Any:  # a model: we touch none of its attributes
            continue
        given = value.tolist() if hasattr(value, "tolist") else value
        letters = isinstance(value, str) and kinds[name] == Sequence[str] | None
        try:
            convert([*value] if letters else given, kinds[name])
        except (MsgspecError, ValueError) as error:
            kind = parameters[name].annotation
            raise UsageError(f"{name}={in_short(value)} is none of {kind}") from error


def is_number(text: str) -> bool:
    """Whether a text spells a whole number that could count something: of 18 digits at most."""
    return text.isdecimal() and len(text) <= 18


def in_words(names: Iterable[str], joint: str = "or") -> str:
    """Names as a choice: "none, mean or max"."""
    *first, last = names
    return f"{', '.join(first)} {joint} {last}" if first else last
