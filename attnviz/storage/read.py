"""Saved attention out of a file of any kind that attnviz writes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.storage.archive import INDEX, load_archive
from attnviz.storage.documents import from_document, parse_json
from attnviz.storage.parquet import MAGIC, load_parquet

ZIP = b"PK\x03\x04"


def read_attention(data: bytes, where: str) -> Iterator[Attention]:
    """Every text's attention in the bytes of a file that attnviz wrote; the kind is seen.

    Raises:
        InputError: the bytes are none of these, or damaged.
    """
    if not data.strip():
        raise InputError(f"{where} is empty")
    if data.startswith((ZIP, MAGIC)):
        yield from (load_archive if data.startswith(ZIP) else load_parquet)(data)
        return
    for document in _documents(data, where):
        yield from_document(document)


def _documents(data: bytes, where: str) -> Iterator[Any]:
    """Every document in JSON text: one, a list of them, or one a line."""
    if not data.lstrip().startswith((b"{", b"[")):
        raise InputError(
            f"{where} holds no saved maps: it is neither .npz nor JSON, and "
            "neither .safetensors nor lines of alignments"
        )
    lines = data.splitlines()
    if len(lines) > 1 and all(line.strip().startswith(b"{") for line in lines if line.strip()):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield parse_json(line, f"line {number} of {where}")
        return
    found = parse_json(data, where)
    yield from found if isinstance(found, list) else [found]


def holds_attention(data: bytes) -> bool:
    """True where the bytes look like saved attention rather than like matrices of another kind."""
    if data.startswith(ZIP):
        try:
            return f"{INDEX}.npy" in zipfile.ZipFile(io.BytesIO(data)).namelist()
        except zipfile.BadZipFile:
            return False
    if data.startswith(MAGIC):
        return True
    try:
        first = next(_documents(data, ""), None)
    except InputError:
        return False
    return isinstance(first, Mapping) and "maps" in first
