"""Lines that could not be used, as JSON lines from which they can be taken up again."""

from __future__ import annotations

import json

from attnviz.storage.json import dump_json
from attnviz.texts import is_utf8


def reject_line(number: int, where: str, reason: str, raw: str) -> bytes:
    r"""One JSON line: {"line":2,"reason":"the text is empty","text":" "}.

    `jq -r .text rejects.jsonl` gives the lines back, to be mended and fed again.

    Args:
        number: of the line in its file, from 1.
        where: how messages name the line; left out of the reason as far as "line 2" says it.
        reason: what is wrong with it.
        raw: the line; a byte that is no UTF-8 is spelt `\udcXX` (PEP 383).
    """
    said = reason.removeprefix(f"{where}: ")
    if where:
        said = said.replace(where, f"line {number}")
    record = {"line": number, "reason": said, "text": raw}
    if is_utf8(said) and is_utf8(raw):
        return dump_json(record).encode() + b"\n"
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
