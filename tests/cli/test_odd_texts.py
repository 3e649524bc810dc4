"""Tokens are data: whatever they hold, no format lets them style, turn or break what is shown."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import example, given
from rich.cells import cell_len

from attnviz.models.own import word_tokens
from attnviz.renderers.reports import formats_of
from tests.invoke import OWN, attnviz
from tests.samples import RAW, few, odd_texts

NASTY = (
    "a [bold]b[/b] \x1b[31mred \u202e evil \u2066 \x00 \x07 \x9b1m \u2028 \ufeff \t x\r\ny \u061c"
)
text_formats = [
    name for name, entry in formats_of("maps").items() if not entry.binary and name != "none"
]


@few
@example(NASTY)
@given(odd_texts)
@pytest.mark.parametrize("name", text_formats)
@pytest.mark.slow
def test_nothing_raw_reaches_stdout(name, text):
    done = attnviz("self", text, *OWN, "-q", "-f", name)
    assert done.status == 0, done.err
    assert not RAW.search(done.text)
    assert done.err == ""


@few
@example(NASTY)
@given(odd_texts)
@pytest.mark.slow
def test_formats_give_back_the_text_and_tables_fit(text):
    words = [token.text for token in word_tokens(text)]
    rows = attnviz("self", text, *OWN, "-q", "-f", "tsv").text.split("\n")[:-1]
    comma = attnviz("self", text, *OWN, "-q", "-f", "csv").text
    assert list(csv.reader(io.StringIO(comma))) == [row.split("\t") for row in rows]
    assert len(rows) == 1 + 4 * len(words) ** 2
    first = [row.split("\t")[7] for row in rows[1 : len(words) + 1]]
    assert [unescape(cell) for cell in first] == words
    document = attnviz("self", text, *OWN, "-q", "-f", "json").json()
    assert document["text"] == text
    for token in document["maps"][0]["query_tokens"]:
        assert text[token["start"] : token["end"]] == token["text"]
    done = attnviz("self", text, *OWN, "-q", "-f", "npz")
    with np.load(io.BytesIO(done.out)) as archive:
        assert json.loads(str(archive["attnviz"]))[0]["text"] == text
    done = attnviz("self", text, *OWN, "-q")
    assert max(map(cell_len, done.lines)) <= 80


def unescape(cell: str) -> str:
    r"""Undo `\\`, `\t`, `\n`, `\r` and `\uXXXX` as a reader of the data would."""
    quoted = cell.replace('"', '\\"')
    return str(json.loads(f'"{quoted}"'))


def test_notes_and_names_of_a_file_are_no_way_in():
    document = attnviz("self", "a b", *OWN, "-f", "json").json()
    bad = "\x1b[31m\u202e"
    document["provenance"] |= {"notes": [bad], "model": bad, "steps": [bad]}
    document["id"] = bad
    document["maps"][0] |= {
        "stream": bad,
        "query_text": bad,
        "key_text": bad * 2,
        "heads": [bad] * 4,
    }
    document["maps"][0]["layers"] = [bad]
    document["maps"][0]["query_tokens"][0] |= {"label": bad, "text": bad}
    for name in text_formats:
        done = attnviz("render", "-", "-f", name, stdin=json.dumps(document).encode())
        assert done.status == 0, done.err
        assert not RAW.search(done.text + done.err)
