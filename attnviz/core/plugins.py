"""Plug-ins: rows that other installed packages add to the tables, by entry points.

A package names a row of a table of `attnviz.core.registry` in its metadata, in the group "attnviz."
and the name of the table. The row is imported at start, so what it lies in should import little;
the code that the row names is imported when it is used, as that of any other row.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import AttnvizError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BROKEN: list[str] = []
"""A line on each plug-in that adds nothing, with the reason."""
_MODULES: dict[str, str] = {}
"""The modules of plug-ins, without what stands behind a dot, each with its package."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit)
"""What is no plug-in's failure; everything else that it raises is, SystemExit too."""


class PluginError(AttnvizError):
    """Code of another package that cannot be loaded or run."""


def add_rows(tables: Mapping[str, tuple[dict[str, Any], type]]) -> None:
    """Add the rows of installed packages to tables by the name of their group, each with its kind.

    One that cannot be had, has a name that is taken or is of another kind is left out and told in
    `BROKEN`.
    """
    if not any(_declares(place) for place in dict.fromkeys(sys.path)):
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
            except BaseException as error:
                BROKEN.append(
                    f"the plug-in '{point.name}' of {package_of(point)} ({group}) is left out: "
                    f"{said(error)}"
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
    """The distribution that an entry point is of."""
    return "an unknown package" if point.dist is None else f"'{point.dist.name}'"


def said(error: BaseException) -> str:
    """An error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def blamed(error: BaseException) -> str | None:
    """The package whose code an error comes from, of a plug-in; None: it is nobody's but ours."""
    trace, package = error.__traceback__, None
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        package = _MODULES.get(name.partition(".")[0], package)
        trace = trace.tb_next
    return package


def _declares(place: str) -> bool:
    """Whether a package in a folder of modules may name a row.

    Reading every package's metadata by importlib costs a tenth of a whole run; nearly always there
    is nothing to find.
    """
    return any(b"[attnviz." in text for text in _declarations(place))


def _declarations(place: str) -> Iterator[bytes]:
    with suppress(OSError), os.scandir(place or ".") as entries:
        for entry in entries:
            if entry.name.endswith((".dist-info", ".egg-info")):
                with suppress(OSError):
                    yield Path(entry.path, "entry_points.txt").read_bytes()
