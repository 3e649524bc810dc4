"""Attention that other programs saved; what a file is, its content says."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from attnviz.attention_map import Attention
from attnviz.errors import InputError
from attnviz.storage.dump_alignments import is_alignments, read_alignments
from attnviz.storage.dump_opennmt import is_tables, read_tables
from attnviz.storage.dump_tensors import attention_of, holds_dump
from attnviz.storage.json import parse_json
from attnviz.storage.matrices import read_npz, read_safetensors
from attnviz.storage.read import holds_attention, read_attention

ZIP = b"PK\x03\x04"


def read_any(data: bytes, where: str) -> Iterator[Attention]:
    """Every text's attention in a file of attnviz or of another program.

    Raises:
        InputError: it is none that is known, or damaged.
    """
    if not holds_attention(data) and is_dump(data):
        return read_dump(data, where)
    return read_attention(data, where)


def read_dump(data: bytes, where: str) -> Iterator[Attention]:
    """Every text's attention in a file that another program wrote.

    Raises:
        InputError: it is none that is known, or damaged.
    """
    name = where.strip("'")
    if data.startswith(ZIP):
        yield attention_of(read_npz(data, name), where)
    elif is_safetensors(data):
        yield attention_of(read_safetensors(data, name), where)
    elif data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        yield from _from_json(parse_json(data, where), where)
    else:
        yield from _from_text(data, where)


def is_safetensors(data: bytes) -> bool:
    """True for the format's own beginning: the length of a JSON header, then the header."""
    length = int.from_bytes(data[:8], "little")
    return len(data) > 9 and 2 <= length <= len(data) - 8 and data[8:9] == b"{"


def is_dump(data: bytes) -> bool:
    """True where arrays go by the names of attention, or where lines are alignments or tables."""
    try:
        names = _names(data)
        if names is not None:
            return holds_dump(names)
        lines = data.decode("utf-8-sig").splitlines()
    except (InputError, UnicodeDecodeError, zipfile.BadZipFile):
        return False
    return is_tables(lines) or is_alignments(lines)


def is_foreign(data: bytes) -> bool:
    """True for a dump that is no file of matrices, whose names are weights, w_query and w_key."""
    try:
        names = _names(data) or []
    except (InputError, zipfile.BadZipFile):
        return False
    return is_dump(data) and not {"weights", "w_query"}.intersection(names)


def _names(data: bytes) -> list[str] | None:
    """The names of the arrays in a file; None for lines of text."""
    if data.startswith(ZIP):
        return [n.removesuffix(".npy") for n in zipfile.ZipFile(io.BytesIO(data)).namelist()]
    if is_safetensors(data):
        length = int.from_bytes(data[:8], "little")
        return list(parse_json(data[8 : 8 + length], "header"))
    if data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        return _json_names(parse_json(data, ""))
    return None


def _json_names(found: Any) -> list[str]:
    """Names in an object or in the first of several; nested lists alone are attention."""
    if isinstance(found, list) and found:
        return ["attention"] if isinstance(found[0], list) else _json_names(found[0])
    return list(found) if isinstance(found, Mapping) else []


def _is_json(data: bytes) -> bool:
    """False for a log whose lines begin with [a date]."""
    try:
        parse_json(data, "")
    except InputError:
        return not data.lstrip().startswith(b"[") or b"\n" not in data.strip()
    return True


def _from_json(found: Any, where: str) -> Iterator[Attention]:
    if isinstance(found, Mapping):
        yield attention_of(found, where)
    elif found and all(isinstance(item, Mapping) for item in found):
        for number, item in enumerate(found):
            place = f"text {number} of {where}"
            yield attention_of(item, place, str(item.get("id", number)))
    else:
        yield attention_of({"attention": found}, where)


def _from_text(data: bytes, where: str) -> Iterator[Attention]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is neither text in UTF-8 nor arrays") from error
    if is_tables(lines):
        yield from read_tables(lines, where)
    elif is_alignments(lines):
        yield from read_alignments(lines, where)
    else:
        raise InputError(f"{where} holds neither alignments nor a table of attention")
