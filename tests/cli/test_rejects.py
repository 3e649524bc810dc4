"""A rejected line is JSON that hands it back."""

import json

from hypothesis import given
from hypothesis import strategies as st

from attnviz.runs.reporting import reject_line


def test_the_reason_says_the_line_once():
    where = "line 2 of 'a.txt'"
    assert reject_line(2, where, f"{where}: too long", "x\ty") == (
        b'{"schema":2,"kind":"reject","line":2,"reason":"too long","text":"x\\ty"}\n'
    )
    assert reject_line(1, "", "odd", "\udcff") == (
        b'{"schema":2,"kind":"reject","line":1,"reason":"odd","text":"\\udcff"}\n'
    )
    said = json.loads(reject_line(2, where, f"the source in {where} is empty", "\ty"))
    assert said == {
        "schema": 2,
        "kind": "reject",
        "line": 2,
        "reason": "the source in line 2 is empty",
        "text": "\ty",
    }


@given(st.binary())
def test_every_byte_comes_back(line):
    raw = line.decode("utf-8", "surrogateescape")
    written = reject_line(1, "", "a reason", raw)
    assert written.count(b"\n") == 1
    assert json.loads(written)["text"].encode("utf-8", "surrogateescape") == line
