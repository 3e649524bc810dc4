"""Plug-ins: rows that other installed packages add to the tables, by entry points.

A package declares an entry point in the group "attnviz." plus the name of a table of
`attnviz.core.registry`. The row is imported at start, so its module should import little. The code
that the row names is imported when it is used.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import AttnvizError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BROKEN: list[str] = []  # one line for each plug-in that could not be added, with the reason
_MODULES: dict[str, str] = {}  # the package of each plug-in's top-level module
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit)  # all others are failures of a plug-in


class PluginError(AttnvizError):
    """Code of another package that cannot be loaded or run."""


def add_rows(tables: Mapping[str, tuple[dict[str, Any], type]]) -> None:
    """Add the rows of installed packages to tables, by group; each table has one kind of row.

    A row that cannot be imported, has a taken name or is of another kind goes to `BROKEN`.
    """
    # Reading all metadata by importlib takes a tenth of a run, and most users have no plug-in.
    places = dict.fromkeys(sys.path)
    if not any(b"[attnviz." in text for place in places for text in _declarations(place)):
        return
    from importlib.metadata import entry_points

    for group, (table, kind) in tables.items():
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            try:
                row = replace(_row(point, table, kind), package=package_of(point))
                for module in (point.value, row.target):
                    _MODULES[re.split("[.:]", module)[0]] = row.package
                table[point.name] = row
            except INTERRUPTIONS:
                raise
            except BaseException as error:  # a plug-in may raise SystemExit too
                BROKEN.append(
                    f"the plug-in '{point.name}' of {package_of(point)} ({group}) is left out: "
                    f"{error_line(error)}"
                )


def _row(point: EntryPoint, table: Mapping[str, Any], kind: type) -> Any:
    if not _NAME.fullmatch(point.name):
        raise ValueError("its name is not of lower-case letters, digits and hyphens")
    if point.name in table:
        raise ValueError("there is another row of this name")
    row = point.load()
    if not isinstance(row, kind):
        raise TypeError(f"'{point.value}' is no attnviz.core.registry.{kind.__name__}")
    return row


def package_of(point: EntryPoint) -> str:
    """The distribution of an entry point."""
    return "an unknown package" if point.dist is None else f"'{point.dist.name}'"


def error_line(error: BaseException) -> str:
    """An error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def plugin_at_fault(error: BaseException) -> str | None:
    """The plug-in package whose code raised an error; None: the error is our own."""
    trace, package = error.__traceback__, None
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        package = _MODULES.get(name.partition(".")[0], package)
        trace = trace.tb_next
    return package


def _declarations(place: str) -> Iterator[bytes]:
    with suppress(OSError), os.scandir(place or ".") as entries:
        for entry in entries:
            if entry.name.endswith((".dist-info", ".egg-info")):
                # Hundreds of packages: a Path of each would take longer than to open it.
                with suppress(OSError), open(f"{entry.path}/entry_points.txt", "rb") as file:  # noqa: PTH123
                    yield file.read()
