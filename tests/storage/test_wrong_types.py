"""A saved document with any field of a wrong type: one line or a right answer, in every format."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnviz.core.attention_map import Focus, Link, Provenance, Token
from attnviz.storage.documents import dump_json, to_document
from attnviz.storage.parquet import ABOUT
from tests.samples import attention_of, self_map

Path_ = tuple[str | int, ...]
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 2**40, 2**70, 1.5, -1e300, "", "x", "3", "\u202e"),
    *([], [[]], ["x"], [1], [None], {}, {"x": 1}, {"x": {"y": []}}),
)
FORMATS = ("json", "jsonl", "npz", "parquet")


def whole() -> dict[str, Any]:
    """A document in which every field has a value."""
    item = self_map(["[CLS]", "the", "cat"], 2, 2)
    tokens = (Token("[CLS]", special=True), Token("the", 0, 3), Token("cat", 4, 7, label="X"))
    link = Link("the", "cat", 0.5, "0", "1", 1, 2)
    item = item.with_weights(
        item.weights,
        query_tokens=tokens,
        key_tokens=tokens,
        blocks=(2, 2),
        starts=(1, 1),
        links=(link,),
    )
    settings = {"parts": "pair", "second part from character": 4, "prompt tokens": 1}
    settings |= {"output tokens": 2, "decision": "yes", "sizes": [1, 2]}
    provenance = Provenance(
        "hugging face",
        "m",
        trained=True,
        settings=settings,
        steps=("lens rollout",),
        notes=("a note",),
        versions={"numpy": "2"},
    )
    single = self_map(["the", "cat"], 2, 2)
    found = attention_of(item, single, text="the cat")
    document = to_document(found) | {"source": "the", "target": "cat"}
    plain: dict[str, Any] = json.loads(dump_json(document | {"provenance": {}}))
    facts = asdict(provenance) | {"focus": {"self": asdict(Focus("1", "0", "it is named"))}}
    return plain | {"provenance": json.loads(dump_json(facts))}


def places(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every field of a document; of a list its first item stands for all."""
    if at:
        yield at
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value[:1]):
            yield from places(item, (*at, name))


WHOLE = whole()
PLACES = list(places(WHOLE))


def changed(at: Path_, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(WHOLE)
    inside: Any = document
    for name in at[:-1]:
        inside = inside[name]
    inside[at[-1]] = value
    return document


def saved(document: dict[str, Any], kind: str) -> bytes | None:
    """The document in a file of a format; None where the format cannot hold it."""
    document = copy.deepcopy(document)
    if kind == "json":
        return json.dumps([document]).encode()
    if kind == "jsonl":
        return "".join(json.dumps(line) + "\n" for line in (WHOLE, document)).encode()
    items = document.get("maps")
    maps = [m for m in items if isinstance(m, dict)] if isinstance(items, list) else []
    if kind == "npz":
        members = {
            f"0/{number}/{item.get('stream')}": np.array(item.pop("weights", 0))
            for number, item in enumerate(maps)
        }
        file = io.BytesIO()
        np.savez(file, attnviz=np.array(json.dumps([document])), **members)
        return file.getvalue()
    for item in maps:
        weights = np.array(item.get("weights", 0))
        item |= {"weights": weights.ravel().tolist(), "shape": list(weights.shape)}
    row = {**document, "provenance": json.dumps(document["provenance"])}
    try:
        table = pa.Table.from_pylist([row]).replace_schema_metadata(ABOUT)
        file = io.BytesIO()
        pq.write_table(table, file)
    except (pa.ArrowException, OverflowError, TypeError):
        return None
    return file.getvalue()
