"""Saved attention out of a file of any kind that attnviz writes."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.attention_map import Attention
from attnviz.errors import InputError
from attnviz.storage.archive import load_archive
from attnviz.storage.document import from_document
from attnviz.storage.json import parse_json


def read_attention(data: bytes, where: str) -> Iterator[Attention]:
    """Every text's attention in the bytes of a .npz, .json or .jsonl file; the kind is seen.

    Raises:
        InputError: the bytes are none of these, or damaged.
    """
    if not data.strip():
        raise InputError(f"{where} is empty")
    if data.startswith(b"PK"):
        yield from load_archive(data)
        return
    if not data.lstrip().startswith((b"{", b"[")):
        raise InputError(f"{where} holds no saved maps: it is neither .npz nor JSON")
    lines = data.splitlines()
    if len(lines) > 1 and all(line.strip().startswith(b"{") for line in lines if line.strip()):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield from_document(parse_json(line, f"line {number} of {where}"))
        return
    found = parse_json(data, where)
    for document in found if isinstance(found, list) else [found]:
        yield from_document(document)
