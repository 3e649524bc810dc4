"""What every run writes as JSON, held against the layouts that `attnviz --schema` prints."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jsonschema
import pytest

from attnviz.cli.outputs import Outputs
from attnviz.core.attention_map import Attention
from attnviz.features.schemas.layouts import LAYOUTS, json_schema
from attnviz.runs.reporting import item_of
from attnviz.storage.documents import dump_json, to_document


def closed(schema: Any) -> Any:
    """The schema, which now refuses fields that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(one) for key, one in schema.items()}
    return made | {"additionalProperties": False} if "properties" in made else made


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    found = schema if LAYOUTS[name].open else closed(schema)
    return jsonschema.Draft202012Validator(found)


def name_of(document: Any, kind: str | None) -> str:
    """The layout that a document of these data claims to have; fails where it fits none."""
    mine = [name for name, layout in LAYOUTS.items() if layout.kind == kind]
    if isinstance(document, dict) and "kind" in document:
        mine = [document["kind"].replace(" ", "-")]
    wrong = {}
    for name in mine:
        error = jsonschema.exceptions.best_match(validator(name).iter_errors(document))
        if error is None:
            return name
        wrong[name] = f"{error.json_path}: {error.message[:300]}"
    pytest.fail(f"{wrong}")


@contextmanager
def every_document_checked() -> Iterator[set[str]]:
    """Check what is added to any report of the block, whatever it is written as: names seen."""
    seen, add = set[str](), Outputs.add

    def checking(self: Outputs, result: Any) -> None:
        data: Any = item_of(result, self.options).data
        if isinstance(data, Attention):
            seen.add(name_of(json.loads(dump_json(to_document(data))), "maps"))
        elif data.document is not None:
            seen.add(name_of(json.loads(data.document()), self.plan.kind))
        add(self, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outputs, "add", checking)
        yield seen
