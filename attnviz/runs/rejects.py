"""Lines that could not be used, as JSON lines from which they can be taken up again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attnviz.core.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.storage.texts import BadText, Text


def rejected(record: Text | BadText | None, error: AttnvizError) -> bytes:
    """A record that came to nothing as a line of the file of rejects; nothing where it has none."""
    if record is None:
        return b""
    return reject_line(record.line, record.where, str(error), record.raw)


def reject_line(number: int, where: str, reason: str, raw: str) -> bytes:
    r"""One JSON line: {"line":2,"reason":"the text is empty","text":" "}.

    `jq -r .text rejects.jsonl` gives the lines back, to be mended and fed again.
    """
    from attnviz.storage.documents import dump_json
    from attnviz.storage.texts import is_utf8

    said = reason.removeprefix(f"{where}: ")
    if where:
        said = said.replace(where, f"line {number}")
    record = {"line": number, "reason": said, "text": raw}
    if is_utf8(said) and is_utf8(raw):
        return dump_json(record).encode() + b"\n"
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
