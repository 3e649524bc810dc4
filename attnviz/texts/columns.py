"""Which column of a table holds what: by header names, or by numbers where there is no header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnviz.errors import InputError, UsageError, choose, did_you_mean

SHOWN = 8
"""A message names as many columns of a file."""


def parse_columns(asked: str, pairs: bool) -> dict[str, str]:
    """The column of each role in words like `text=sentence,id=key`.

    Args:
        asked: ROLE=COLUMN, separated by commas; a column is a name, or a number from 1.
        pairs: the roles are source, target, id and labels, rather than text, id and labels.

    Raises:
        UsageError: it is not written like this.
    """
    roles = ("source", "target", "id", "labels") if pairs else ("text", "id", "labels")
    found: dict[str, str] = {}
    for part in asked.split(","):
        role, equals, column = (piece.strip() for piece in part.partition("="))
        if not (equals and column):
            raise UsageError(f"--columns '{asked}' is not like {roles[0]}=NAME,id=NAME")
        choose(role, roles, "role in --columns")
        if role in found:
            raise UsageError(f"--columns names a column for '{role}' twice: give one")
        found[role] = column
    numbers = [column.isdecimal() for column in found.values()]
    if any(numbers) and not all(numbers):
        raise UsageError(
            "--columns mixes names and numbers: give names where the first line is a header, "
            "numbers where it is none"
        )
    if all(numbers) and roles[0] not in found:
        raise UsageError(f"--columns gives no number for '{roles[0]}': add {roles[0]}=NUMBER")
    if "0" in found.values():
        raise UsageError("--columns counts columns from 1: there is no column 0")
    return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a row each role stands, counted from 0.

    Attributes:
        header: the first row names the columns and is no record.
        width: how many columns the first row has.
        first: where it is, for messages.
        main: the text, or the source of a pair.
    """

    header: bool
    width: int
    first: str
    main: int
    target: int | None
    id: int | None
    labels: int | None


def find_layout(
    fields: Sequence[str], asked: Mapping[str, str], *, pairs: bool, first: str, name: str
) -> Layout:
    """The layout of a table.

    Args:
        fields: its first row.
        asked: the column of each role, from `parse_columns`; others go by their own name.
        pairs: source and perhaps target are wanted, rather than a text.
        first: where the first row is, for messages.
        name: the file's, for messages.

    Raises:
        UsageError: a column that was asked for is not there.
        InputError: nothing was asked for, and no column has the name of what is needed.
    """
    main = "source" if pairs else "text"
    header = not asked or not all(column.isdecimal() for column in asked.values())
    if header:
        places = _by_name([field.strip() for field in fields], asked, main, name)
    else:
        places = {role: int(number) - 1 for role, number in asked.items()}
        if max(places.values()) >= len(fields):
            raise UsageError(
                f"--columns asks for column {max(places.values()) + 1}: "
                f"{first} has {count(len(fields), 'column')}"
            )
    if main not in places:
        needed = "source=NAME,target=NAME" if pairs else "text=NAME"
        raise InputError(
            f"{name} has no column '{main}', only {_listed(fields)}: say --columns {needed}, "
            "with numbers from 1 where the first line is no header"
        )
    return Layout(
        header=header,
        width=len(fields),
        first=first,
        main=places[main],
        target=places.get("target") if pairs else None,
        id=places.get("id"),
        labels=places.get("labels"),
    )


def _by_name(
    names: Sequence[str], asked: Mapping[str, str], main: str, name: str
) -> dict[str, int]:
    """The place of each role that the header has; those asked for it must have."""
    places = {}
    for role in (main, "target", "id", "labels"):
        wanted = asked.get(role, role)
        if names.count(wanted) > 1:
            raise InputError(f"{name} has {names.count(wanted)} columns '{wanted}'")
        if wanted in names:
            places[role] = names.index(wanted)
        elif role in asked:
            raise UsageError(
                f"--columns {role}={wanted}: {name} has no column '{wanted}', only "
                f"{_listed(names)}.{did_you_mean(wanted, names[:SHOWN])}"
            )
    return places


def count(number: int, what: str) -> str:
    """The number with its noun."""
    return f"{number} {what}{'s' * (number != 1)}"


def _listed(names: Sequence[str]) -> str:
    """Names for a message: a first line may hold anything, so they are cut."""
    cut = [name if len(name) <= 40 else f"{name[:39]}…" for name in names[:SHOWN]]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name}'" for name in cut) + more
