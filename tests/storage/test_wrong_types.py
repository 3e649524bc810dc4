"""A saved document with any field of a wrong type: one line or a right answer, in every format."""

import copy
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnviz.core.attention_map import Attention, Link, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.features.parquet.file import ABOUT
from attnviz.storage.documents import dump_json, to_document
from attnviz.storage.saved_maps import read_any
from tests.invoke import attnviz
from tests.samples import attention_of, self_map

Path_ = tuple[str | int, ...]
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 2**40, 2**70, 1.5, -1e300, "", "x", "3", "\u202e"),
    *([], [[]], ["x"], [1], [None], {}, {"x": 1}, {"x": {"y": []}}),
)
FORMATS = ("json", "jsonl", "npz", "parquet")
COMMANDS = (
    *(("render",), ("render", "--record", "0"), ("compare", "{}"), ("self", "--weights")),
    *(("render", "-f", "heatmap"), ("render", "-f", "jsonl"), ("render", "--special", "drop")),
    *(("render", "-f", "links"), ("render", "--stream", "a-to-b"), ("render", "--words")),
)
"""What reads saved documents, each with the file behind it; {} is a sound one."""


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
    facts = asdict(provenance) | {"focus": {"self": {"layer": 1, "head": 0, "why": "it is named"}}}
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
    try:
        return archived(document, maps) if kind == "npz" else tabled(document, maps)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def archived(document: dict[str, Any], maps: list[dict[str, Any]]) -> bytes:
    members = {
        f"0/{number}/{item.get('stream')}": np.array(item.pop("weights", 0))
        for number, item in enumerate(maps)
    }
    file = io.BytesIO()
    np.savez(file, attnviz=np.array(json.dumps([document])), **members)
    return file.getvalue()


def tabled(document: dict[str, Any], maps: list[dict[str, Any]]) -> bytes:
    for item in maps:
        weights = np.array(item.get("weights", 0))
        plain = {"starts": [0, 0], "blocks": [1, 1], "links": []} | item
        item |= plain | {"weights": weights.ravel().tolist(), "shape": list(weights.shape)}
    row = {**document, "provenance": json.dumps(document["provenance"])}
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]).replace_schema_metadata(ABOUT), file)
    return file.getvalue()


def answer(data: bytes) -> list[Attention] | InputError:
    """What is read, or why it is not."""
    try:
        return list(read_any(data, "'f'"))
    except InputError as error:
        return error


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(
    "kind", ["json", *(pytest.param(kind, marks=pytest.mark.slow) for kind in FORMATS[1:])]
)
def test_any_wrong_type_is_an_input_error_or_read(kind):
    step = 1 if kind == "json" else 3  # other files hold the same document: a third by turns
    cases = [
        saved(changed(at, value), kind)
        for turn, at in enumerate(PLACES)
        for value in WRONG[turn % step :: step]
    ]
    told = [answer(data) for data in cases if data is not None]
    refused = [item for item in told if isinstance(item, InputError)]
    assert not [error for error in refused if "\n" in str(error)]
    assert len(refused) > len(PLACES)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_not_changed_is_read(kind):
    data = saved(WHOLE, kind)
    assert data is not None
    *_, found = read_any(data, "'f'")
    assert json.loads(dump_json(to_document(found))) == WHOLE


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_wrong_field_is_one_line_of_every_command(command, tmp_path):
    sound, file = tmp_path / "sound.json", tmp_path / "changed.json"
    sound.write_text(json.dumps(WHOLE))
    for turn, value in enumerate(WRONG):
        for at in PLACES[turn :: len(WRONG)]:
            file.write_text(json.dumps(changed(at, value)))
            first, *rest = (word.format(sound) for word in command)
            done = attnviz(first, *rest, file, "-q")
            assert done.status in (0, 1, 2), (at, value)
            assert "Traceback" not in done.err
            if done.status:
                assert done.mistake, (at, value)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("maps", 0, "query_tokens", 0, "start"), -1, "maps[0].query_tokens[0].start: expected"),
        (("provenance", "trained"), "no", "provenance.trained: expected 'bool | null', got 'str'"),
        (("text",), ["a"], "text: expected 'str | null', got 'array'"),
        (("maps", 1, "blocks"), [0, 1], "maps[1].blocks[0]: expected 'int' >= 1"),
    ],
)
@pytest.mark.parametrize("kind", FORMATS)
def test_the_record_and_the_field_are_named(kind, at, value, message, tmp_path):
    data = saved(changed(at, value), kind)
    assert data is not None
    file = tmp_path / f"a.{kind}"
    file.write_bytes(data)
    record = {"jsonl": "line 2"}.get(kind, "text 0")
    mistake = attnviz("render", file, "-f", "none").mistake
    assert mistake.startswith(f"{record} of '{file}': {message}")
