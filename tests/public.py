"""What a release promises to keep (docs/stability.md), as a list of names made from the code.

`python -m tests.public` writes it into public.json: a name in the list that is gone, or has another
type, is a promise that was broken, and a new one is a promise that is made.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.main import get_command

import attnviz
import attnviz.layers
from attnviz import callbacks
from attnviz.cli.app import app, build_command
from attnviz.core import registry
from attnviz.features.schemas.layouts import LAYOUTS, json_schema
from docs.pages import reference

LIST = Path(__file__).with_name("public.json")
FEATURES = Path(attnviz.__file__).parent / "features"
REPORT = r"\w+Report|\w*Comparison|History"
Names = dict[str, dict[str, list[str]]]
"""Sets of names by what owns them, in sections."""


def public() -> Names:
    """Every name that is public now."""
    return {
        "command": {name: sorted(_words(build_command(name))) for name in registry.COMMANDS},
        "program": {
            "options": sorted({*_words(get_command(app)), "--help"}),
            "exit statuses": sorted([*reference.EXIT, "4"], key=int),
            "environment": sorted(", ".join(reference.ENVIRONMENT).split(", ")),
        },
        "python": {name: sorted(_members(getattr(attnviz, name))) for name in attnviz.__all__},
        "module": {
            "attnviz.layers": sorted(attnviz.layers.__all__),
            "attnviz.callbacks": sorted(["Recorder", *callbacks.CLASSES]),
        },
        f"document of schema {registry.SCHEMA}": {
            name: sorted({*_fields(schema := json_schema(name), schema["$defs"])})
            for name in LAYOUTS
        },
        "report": {one.__name__: sorted(_members(one)) for one in _reports()},
        "table": {
            f"attnviz.{group.lower()}": [row.__name__, *sorted(registry.tables()[group])]
            for group, row in registry.OPEN_TABLES.items()
        },
    }


def _words(command: Any) -> Iterator[str]:
    """The options of a command, and its arguments."""
    for one in command.params:
        if one.param_type_name == "argument":
            yield (one.metavar or one.name.upper()).replace(" ", "_")
        else:
            yield from (*one.opts, *one.secondary_opts)


def _members(thing: Any) -> Iterator[str]:
    """The parameters of a function; the fields, properties and methods of a class."""
    if inspect.isclass(thing):
        own = [one for one in thing.__mro__ if one.__module__.startswith("attnviz")]
        told = re.findall(r"^    (\w+): ", inspect.getdoc(thing) or "", re.MULTILINE)
        names = {name for one in own for name in (*vars(one), *inspect.get_annotations(one), *told)}
        yield from (name for name in names if not name.startswith("_"))
    elif callable(thing):
        yield from inspect.signature(thing).parameters


def _reports() -> Iterator[Any]:
    """The classes whose objects `.value` of a finding is."""
    for file in sorted(FEATURES.rglob("*.py")):
        found = re.findall(rf"^class ({REPORT})\b", file.read_text(encoding="utf-8"), re.MULTILINE)
        for name in found:
            yield getattr(import_module(f"attnviz.features.{file.parent.name}.{file.stem}"), name)


def _fields(schema: Mapping[str, Any], types: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Every field of a document by its path, with the types that it may have."""
    for part in (*schema.get("anyOf", ()), *schema.get("prefixItems", ())):
        yield from _fields(part, types, at)
    if "$ref" in schema:
        yield from _fields(types[schema["$ref"].rpartition("/")[2]], types, at)
    for inside in ("items", "additionalProperties"):
        if isinstance(schema.get(inside), Mapping):
            yield from _fields(schema[inside], types, f"{at}[]" if inside == "items" else f"{at}*")
    needed = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        path = f"{at}.{name}".lstrip(".")
        yield f"{path}{'' if name in needed else '?'}:{'|'.join(sorted({*_types(part)}))}"
        yield from _fields(part, types, path)


def _types(part: Mapping[str, Any]) -> Iterator[str]:
    for one in part.get("anyOf", [part]):
        kind = one.get("type", "object" if "$ref" in one else "choice" if "enum" in one else "any")
        yield from [kind] if isinstance(kind, str) else kind


def differences(old: Names, new: Names) -> tuple[list[str], list[str]]:
    """The names that are gone and those that came, each with what owns it."""
    before, after = (
        {
            (section, owner, name)
            for section, owners in names.items()
            for owner, members in owners.items()
            for name in ("", *members)
        }
        for names in (old, new)
    )
    gone, came = (
        [" ".join(one).strip() for one in sorted(some)] for some in (before - after, after - before)
    )
    return gone, came


def kept() -> Names:
    """The committed list."""
    names: dict[str, dict[str, str]] = json.loads(LIST.read_text(encoding="utf-8"))
    return {
        section: {owner: members.split() for owner, members in owners.items()}
        for section, owners in names.items()
    }


def write() -> None:
    joined = {
        section: {owner: " ".join(members) for owner, members in owners.items()}
        for section, owners in public().items()
    }
    LIST.write_text(json.dumps(joined, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
