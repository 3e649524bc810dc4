"""Damaged files: with other bytes, or with other fields where a file has fields."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from typing import Any

import numpy as np
from hypothesis import strategies as st

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1.5, -0.5, 2**31, 2**63, 2**64, 10**30, 1e308, float("nan"),
    float("inf"),
    "", "x", "0", "\x1b[31m", "\u202e", "\ud800", "a" * 3000, "[bold]", "</script>", "mean",
    "../../x",
    [], [[]], [None], [0], ["a"], [1, 2], {}, {"a": 1}, {"text": 3}, [{}], [[[[]]]],
)  # fmt: skip
"""Values that a field may be given; the last is nested too deep for most."""


def nest(depth: int) -> Any:
    """Lists in lists."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def fields_of(document: Any) -> list[tuple[Any, ...]]:
    """The path to every field of a document; of a list of numbers only to the first two."""
    found: list[tuple[Any, ...]] = []
    todo: list[tuple[tuple[Any, ...], Any]] = [((), document)]
    while todo:
        way, item = todo.pop()
        found.append(way)
        if isinstance(item, dict):
            todo += [((*way, name), value) for name, value in item.items()]
        elif isinstance(item, list):
            todo += [((*way, place), value) for place, value in enumerate(item[:2])]
    return found


def change_field(draw: st.DrawFn, document: Any) -> Any:
    """A document in which one field is replaced, removed, repeated or wrapped."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 2))):
        ways = fields_of(document)
        way = ways[draw(st.integers(0, len(ways) - 1))]
        # A copy: later changes to it must not reach the object that Hypothesis draws from.
        value = deepcopy(draw(st.sampled_from(NASTY))) if draw(st.integers(0, 19)) else nest(300)
        if not way:
            if draw(st.integers(0, 4)):
                continue
            return value
        holder = document
        for step in way[:-1]:
            holder = holder[step]
        act = draw(st.integers(0, 5))
        if act == 0:
            del holder[way[-1]]
        elif act == 1 and isinstance(holder, list):
            holder.append(holder[way[-1]])
        elif act == 2 and isinstance(holder, dict):
            holder["x" if draw(st.booleans()) else "\x1b[0m"] = value
        else:
            holder[way[-1]] = value
    return document


def spell(document: Any) -> bytes:
    """JSON, with whatever Python can spell."""
    return json.dumps(document).encode()


def damage_file(draw: st.DrawFn, name: str, data: bytes) -> bytes:
    """A file's bytes with a few of them, or of its fields, changed."""
    if draw(st.integers(0, 3)) == 0:
        return bytes_changed(draw, data)
    for suffixes, change in CHANGES.items():
        if name.endswith(suffixes):
            return change(draw, data)
    return bytes_changed(draw, data)


def bytes_changed(draw: st.DrawFn, data: bytes) -> bytes:  # noqa: PLR0911 - a row of ways
    """Cut, flipped, repeated, or with something in between."""
    if not data:
        return b"\0"
    at = draw(st.integers(0, len(data) - 1))
    act = draw(st.integers(0, 8))
    piece = draw(st.sampled_from(PIECES))
    match act:
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            return data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        case 3:
            return data[:at] + piece + data[at:]
        case 4:
            return data[:at] + piece + data[at + len(piece) :]
        case 5:
            return data + data[: min(at, 1000)]
        case 6:
            return data.decode("utf-8", "replace").encode(draw(st.sampled_from(("utf-16", "latin-1", "utf-8-sig"))), "replace")  # fmt: skip  # noqa: E501
        case 7:
            return b""
        case _:
            return data[:at] + b"\0" * 16 + data[at + 16 :]


PIECES = (
    b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"\n", b"\r", b"\n\n\n", b"\t", b'"', b"{",
    b"}", b"[[[[", b"null",
    b"-1", b"99999999999", b"1e400", b"\x1b[31m", "\u202e".encode(), b"\xed\xa0\x80", b"a" * 200,
    b"PK\3\4", b"PAR1",
    b"\x1f\x8b\x08\0", b"NaN", b"\\ud800", b"|||", b",", b"\x85", "\u2028".encode(),
)  # fmt: skip


def _json(draw: st.DrawFn, data: bytes) -> bytes:
    return spell(change_field(draw, json.loads(data)))


def _json_lines(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = spell(change_field(draw, json.loads(lines[place])))
    return b"\n".join(lines) + b"\n"


def _array(draw: st.DrawFn, array: Any) -> Any:
    act = draw(st.integers(0, 9))
    if act == 0 or array.dtype.kind in "US":
        return np.array(draw(st.sampled_from(("x", "", "{}", "[]", "[1]", "null", "[{}]"))))
    wrong = {
        1: lambda: array[..., :-1],
        2: lambda: array.astype(np.complex64) * 1j,
        3: lambda: np.full_like(array, np.nan),
        4: lambda: np.full_like(array, -np.inf),
        5: lambda: array.astype(np.int64),
        6: lambda: array[None],
        7: lambda: np.zeros((0, *array.shape[1:]), array.dtype),
        8: lambda: -array,
        9: lambda: array.astype(np.float16) * np.float16(60000),
    }
    with np.errstate(all="ignore"):
        return wrong[act]()


def _archive(draw: st.DrawFn, data: bytes) -> bytes:
    with np.load(io.BytesIO(data)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = draw(st.sampled_from(sorted(arrays)))
    index = arrays.get("attnviz")
    if index is not None and draw(st.integers(0, 2)):
        arrays["attnviz"] = np.array(spell(change_field(draw, json.loads(str(index)))).decode())
    elif draw(st.integers(0, 5)) == 0:
        arrays[draw(st.sampled_from(("x", "a/b", "\x1b[31m", "é", "1")))] = arrays.pop(name)
    else:
        arrays[name] = _array(draw, arrays[name])
    file = io.BytesIO()
    (np.savez if draw(st.booleans()) else np.savez_compressed)(file, **arrays)
    return file.getvalue()


def _tensors(draw: st.DrawFn, data: bytes) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = spell(change_field(draw, json.loads(data[8 : 8 + length])))
    size = len(header) if draw(st.integers(0, 4)) else draw(st.sampled_from((0, 2**63, 2**64 - 1)))
    return size.to_bytes(8, "little") + header + data[8 + length :]


def _parquet(draw: st.DrawFn, data: bytes) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    name = draw(st.sampled_from(table.column_names))
    place = table.column_names.index(name)
    column, act = table.column(name), draw(st.integers(0, 7))
    if act == 0:
        table = table.drop_columns([name])
    elif act == 1:
        table = table.set_column(place, name, pa.nulls(len(table), column.type))
    elif act == 2:
        table = table.set_column(
            place, name, pa.array([draw(st.sampled_from((1, -1, 2**40)))] * len(table))
        )
    elif act == 3:
        table = table.set_column(place, name, pa.array(["\x1b[31m"] * len(table)))
    elif act == 4:
        table = table.set_column(place, name, pa.array([[1.5, float("nan")]] * len(table)))
    elif act == 5:
        table = table.replace_schema_metadata({"attnviz": draw(st.sampled_from(("", "x", "[]", "{}", "null")))})  # fmt: skip  # noqa: E501
    elif act == 6:
        table = pa.concat_tables([table, table])
    else:
        values = [_nasty_cell(draw, value) for value in column.to_pylist()]
        table = table.set_column(place, name, pa.array(values, column.type))
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _nasty_cell(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, str):
        return draw(st.sampled_from(("", "\x1b[31m", "{", "null", "x" * 500)))
    if isinstance(value, list):
        return draw(st.sampled_from(([], value[:1], value * 2, None)))
    return None


CHANGES: dict[Any, Any] = {
    (".jsonl",): _json_lines,
    (".json",): _json,
    (".npz",): _archive,
    (".safetensors",): _tensors,
    (".parquet",): _parquet,
}
"""How the fields of a kind of file are reached."""
