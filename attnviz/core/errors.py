"""The errors that a user can cause, one line each with an exit status; all others are bugs."""

from collections.abc import Iterable


class AttnvizError(Exception):
    """An error that the user can correct; shown as one line without a traceback."""

    status = 1


class UsageError(AttnvizError):
    """A wrong request: an option, a name or a selection that does not exist."""

    status = 2


class InputError(AttnvizError):
    """A text, a file or a record that cannot be read or used."""


class UnfitTextError(UsageError, InputError):
    """What is asked for cannot be had of this text: of a file the others are still read."""


class NotFiniteError(InputError):
    """A text has attention that is NaN or infinite."""


class ModelError(AttnvizError):
    """A model or tokenizer cannot be found, loaded or run."""


class AttentionError(AttnvizError):
    """A model runs but does not give its attention as weights."""


class OutputError(AttnvizError):
    """A result cannot be written to its place."""


class UnsupportedError(AttnvizError):
    """No part of the context supports a sentence of the answer."""

    status = 3


class HealthError(AttnvizError):
    """A head has a verdict that was not to be."""

    status = 3


class WorkerError(AttnvizError):
    """Workers cannot be started, or died over their work."""


LONGEST_CAUSE = 300  # most characters of another library's error, which may quote a file


IN_WORDS: dict[type[Exception], str] = {
    KeyError: "{} is missing or unknown",
    ZeroDivisionError: "a number in it is zero",
    UnicodeError: "it holds bytes that are no text",
}
"""What is said of errors of Python whose own message tells a user nothing."""


def first_line(error: BaseException) -> str:
    """The message of another library's error, cut to one line; its class if it has none."""
    words = next((said for kind, said in IN_WORDS.items() if isinstance(error, kind)), "{}")
    try:
        lines = [line.strip() for line in words.format(error)[:10_000].splitlines() if line.strip()]
    except Exception:  # str() of the error may raise
        lines = []
    if not lines:
        return type(error).__name__
    # After a colon the next line names the cause.
    line = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return (f"{line[:LONGEST_CAUSE]}…" if len(line) > LONGEST_CAUSE else line).rstrip(".")


def reason_of(error: BaseException) -> str:
    """An error as one line: its message; the class first if the error is not ours."""
    line, kind = first_line(error), type(error).__name__
    return line if isinstance(error, AttnvizError) or line == kind else f"{kind}: {line}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A sentence that names the closest allowed spelling, or an empty text."""
    from difflib import get_close_matches

    # Compare without dashes: with them '--dpi' is close to '--pair'. One wrong letter in four is
    # still a slip.
    bare = {one.lstrip("-."): one for one in names}
    close = get_close_matches(name.lstrip("-."), bare, n=1, cutoff=0.66)
    return f" Did you mean '{bare[close[0]]}'?" if close else ""


def choose(name: str, choices: Iterable[str], what: str) -> str:
    """The name itself if it is allowed; `what` is its kind ("format").

    Raises:
        UsageError: it is not allowed; the message lists the allowed names and suggests one.
    """
    names = list(choices)
    if not isinstance(name, str):
        raise UsageError(f"{in_short(name)} is no {what}: choose from {', '.join(names)}")
    if name in names:
        return name
    raise UsageError(
        f"unknown {what} '{name}': choose from {', '.join(names)}.{did_you_mean(name, names)}"
    )


def in_short(value: object) -> str:
    """The beginning of a Python value on one line, for an error."""
    from reprlib import repr as brief

    return " ".join(brief(value).split())[:60]


def is_number(text: str) -> bool:
    """Whether a text is a whole number of at most 18 digits."""
    return text.isdecimal() and len(text) <= 18


def in_words(names: Iterable[str], joint: str = "or") -> str:
    """Names as a choice: "none, mean or max"."""
    *first, last = names
    return f"{', '.join(first)} {joint} {last}" if first else last
