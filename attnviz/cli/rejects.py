"""Lines that could not be used, as JSON lines from which they can be taken up again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from attnviz.cli.app import complain
from attnviz.core.errors import AttnvizError
from attnviz.storage.texts import BadText, Text, is_utf8


@dataclass
class Failures:
    """Records that come to nothing: each a line on stderr and in the rejects, or the run's end.

    Attributes:
        stops: True where the first one is the end.
        write: takes a record's line for the file of rejects; None: there is no such file.
        count: how many there were.
        last: what was said of the last one.
    """

    stops: bool = False
    write: Callable[[bytes], None] | None = None
    count: int = 0
    last: str = ""

    def add(self, record: Text | BadText | None, error: AttnvizError) -> None:
        """Take one more."""
        if self.stops:
            raise error
        if str(error) != self.last:  # a worker that died takes many records with it
            complain(str(error))
        self.last = str(error)
        self.count += 1
        if self.write is not None:
            self.write(rejected(record, error))


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

    said = reason.removeprefix(f"{where}: ")
    if where:
        said = said.replace(where, f"line {number}")
    record = {"line": number, "reason": said, "text": raw}
    if is_utf8(said) and is_utf8(raw):
        return dump_json(record).encode() + b"\n"
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
