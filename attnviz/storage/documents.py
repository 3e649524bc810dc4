"""One text's attention as a JSON document (schema 1, laid out in docs/files.md), and back.

JSON is written so that it is safe to show on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from attnviz.core.attention_map import (
    Attention,
    AttentionMap,
    Focus,
    Link,
    Provenance,
    Token,
    typed_facts,
)
from attnviz.core.errors import InputError

SCHEMA = 1
HIDDEN = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Control, direction and invisible characters as a range for a regular expression: data spells
them out, so that a token can neither style nor reorder a terminal."""

_UNSAFE = re.compile(f"[{HIDDEN}]")
_IDENTITY = re.compile(rb'\{"schema":1,"id":("(?:[^"\\]|\\.)*"),')
"""How every document begins that this package wrote."""


def dump_json(document: Any) -> str:
    r"""The document as one line of JSON; float32 arrays at their shortest exact spelling.

    Characters that JSON would let through raw, though they hide or turn text, are spelt `\uXXXX`.
    """
    data = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    text = data.decode()
    if data.isascii() and b"\x7f" not in data:
        return text  # as most are, whose megabytes of numbers need no second look
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def parse_json(text: str | bytes, where: str) -> Any:
    """The value that JSON text spells; an InputError says where and why it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON: {error}") from error


def check_words(words: Any, name: str, where: str) -> None:
    """Refuse what is no list of words with an InputError."""
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"'{name}' in {where} is not a list of words")


def to_document(attention: Attention) -> dict[str, Any]:
    """The document of one text; weights stay float32 arrays of (layers, heads, queries, keys)."""
    texts = {"text": attention.text, "source": attention.source, "target": attention.target}
    focus = {stream: asdict(head) for stream, head in attention.focus.items()}
    return {
        "schema": SCHEMA,
        "id": attention.id,
        **{name: text for name, text in texts.items() if text is not None},
        "maps": [_map_document(item) for item in attention.maps],
        "provenance": _plain(asdict(attention.provenance) | {"focus": focus}),
    }


def _map_document(item: AttentionMap) -> dict[str, Any]:
    document: dict[str, Any] = {
        "stream": item.stream,
        "layers": list(item.layers),
        "heads": list(item.heads),
        "values": item.values,
        "unit": item.unit,
        "query_text": item.query_side,
        "key_text": item.key_side,
        "query_tokens": [_token_document(token) for token in item.query_tokens],
        "key_tokens": [_token_document(token) for token in item.key_tokens],
    }
    if any(item.starts):
        document["starts"] = list(item.starts)
    if item.is_pooled:
        document["blocks"] = list(item.blocks)
        document["links"] = [asdict(link) for link in item.links]
    return document | {"weights": item.weights}


def _token_document(token: Token) -> dict[str, Any]:
    document = {"text": token.text, "start": token.start, "end": token.end}
    label = {} if token.label is None else {"label": token.label}
    return {**document, "special": token.special, **label}


def _plain(value: Any) -> Any:
    """Mappings, tuples and numpy scalars as what JSON knows."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def from_document(document: Any) -> Attention:
    """The attention that a document holds; its weights may be nested lists or an array."""
    if not isinstance(document, Mapping) or "maps" not in document:
        raise InputError("this is no attnviz document: it has no 'maps'")
    if not document["maps"]:
        raise InputError("the document's 'maps' are empty")
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"a document of schema {document.get('schema')!r}: this attnviz reads schema {SCHEMA}"
        )
    try:
        focus = document.get("provenance", {}).get("focus", {})
        provenance = read_provenance(document.get("provenance", {}))
        return Attention(
            maps=tuple(_read_map(item) for item in document["maps"]),
            provenance=provenance,
            id=str(document.get("id", "0")),
            text=document.get("text"),
            source=document.get("source"),
            target=document.get("target"),
            focus={name: Focus(**head) for name, head in focus.items()},
            **typed_facts(provenance),
        )
    except KeyError as error:
        raise InputError(f"the document lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the document does not fit its schema: {error}") from error


def identity_of(line: bytes) -> str:
    """The id in a document's JSON, seldom at the cost of reading all of it."""
    found = _IDENTITY.match(line)
    document = {"id": parse_json(found[1], "id")} if found else parse_json(line, "the document")
    if not isinstance(document, Mapping):
        raise InputError("this is no attnviz document: it is no JSON object")
    return str(document.get("id", "0"))


def _read_map(item: Mapping[str, Any]) -> AttentionMap:
    values = item.get("values", "share")
    if values not in ("share", "signed"):
        raise InputError(f"unknown values {values!r}: a map holds 'share' or 'signed'")
    return AttentionMap(
        stream=str(item["stream"]),
        query_tokens=tuple(_read_token(token) for token in item["query_tokens"]),
        key_tokens=tuple(_read_token(token) for token in item["key_tokens"]),
        weights=np.asarray(item["weights"], dtype=np.float32),
        layers=tuple(map(str, item.get("layers", ()))),
        heads=tuple(map(str, item.get("heads", ()))),
        values=values,
        unit=str(item.get("unit", "share of a row's attention")),
        query_side=str(item.get("query_text", "text")),
        key_side=str(item.get("key_text", "text")),
        blocks=_read_numbers(item.get("blocks", (1, 1))),
        starts=_read_numbers(item.get("starts", (0, 0))),
        links=tuple(Link(**link) for link in item.get("links", ())),
    )


def _read_numbers(pair: Any) -> tuple[int, int]:
    queries, keys = (int(number) for number in pair)
    return queries, keys


def _read_token(token: Mapping[str, Any] | str) -> Token:
    return Token(token) if isinstance(token, str) else Token(**token)


def read_provenance(document: Mapping[str, Any]) -> Provenance:
    """The provenance in a document; what is missing stays unknown."""
    known = {"source": "file", "model": "unknown", **document}
    known.pop("focus", None)  # of one text, and no fact of where it came from
    known["steps"] = tuple(known.get("steps", ()))
    known["notes"] = tuple(known.get("notes", ()))
    return Provenance(**known)
