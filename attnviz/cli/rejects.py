"""Lines that failed, as JSON lines that keep their text for another try."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attnviz.core.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.storage.texts import BadText, Text


def reject_of(record: Text | BadText | None, error: AttnvizError) -> bytes:
    """The line of --rejects for a record that failed; empty without a record."""
    if record is None:
        return b""
    return reject_line(record.line, record.where, str(error), record.raw)


def reject_line(number: int, where: str, reason: str, raw: str) -> bytes:
    r"""One JSON line: {"line":2,"reason":"the text is empty","text":" "}.

    `jq -r .text rejects.jsonl` prints the lines, to correct and run again.
    """
    from attnviz.storage.documents import dump_json
    from attnviz.storage.texts import is_utf8

    reason = reason.removeprefix(f"{where}: ")
    if where:
        reason = reason.replace(where, f"line {number}")
    record = {"line": number, "reason": reason, "text": raw}
    if is_utf8(reason) and is_utf8(raw):
        return dump_json(record).encode() + b"\n"
    # Only json.dumps() writes the surrogates that stand for bytes outside of UTF-8.
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
