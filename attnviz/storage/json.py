"""Documents as JSON text that is also safe to show on a terminal."""

from __future__ import annotations

import re
from typing import Any

import orjson

from attnviz.errors import InputError

HIDDEN = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Control, direction and invisible characters as a range for a regular expression: data spells
them out, so that a token can neither style nor reorder a terminal."""

_UNSAFE = re.compile(f"[{HIDDEN}]")


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
    """The value that JSON text spells.

    Raises:
        InputError: it is not JSON; the message says where and why.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON: {error}") from error
