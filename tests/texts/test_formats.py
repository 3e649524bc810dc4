"""Each format of lines gives texts with their numbers and what stood there."""

import io
import json
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.storage.texts.formats import format_of_file, is_packed, read_texts
from attnviz.storage.texts.lines import FileFormat


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", "txt"),
        ("A.TXT", "txt"),
        ("a.b.jsonl.gz", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.csv.GZ", "csv"),
        ("a.tsv", "tsv"),
        ("a.gz", None),
        ("a", None),
        (".txt", None),
        ("a.txt.zip", None),
    ],
)
def test_the_name_says_the_format(name, expected):
    assert format_of_file(PurePath(name)) == expected
    assert is_packed(PurePath(name)) == name.lower().endswith(".gz")


@given(st.binary())
def test_any_bytes_give_texts_or_reasons(data):
    for input_format in ("txt", "jsonl"):
        found = list(read_texts(io.BytesIO(data), "'a'", FileFormat(input_format, keep_blank=True)))
        lines = list(io.BytesIO(data))
        assert [text.line for text in found] == list(range(1, len(lines) + 1))
        for text, line in zip(found, lines, strict=True):
            raw = text.raw.encode("utf-8", "surrogateescape")
            assert (
                line.removeprefix(b"\xef\xbb\xbf" if text.line == 1 else b"").rstrip(b"\r\n") == raw
            )


@pytest.mark.slow
@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1))
def test_a_line_of_text_is_no_copy(line):
    if line.isspace() or line.startswith("\ufeff"):
        return
    (found,) = read_texts([line.encode() + b"\n"], "'a'", FileFormat())
    assert found.text == line
    assert found.raw is found.text


def test_objects_have_keys_and_ids():
    line = json.dumps({"sentence": "one two", "key": 7, "tags": ["A", "B"], "id": "no"}).encode()
    columns = {"text": "sentence", "id": "key", "labels": "tags"}
    (found,) = read_texts([line], "'a'", FileFormat("jsonl", columns=columns))
    assert (found.id, found.text, found.labels) == ("7", "one two", ("A", "B"))
    (bad,) = read_texts([b'{"text": "x"}'], "'a'", FileFormat("jsonl", columns=columns))
    assert str(bad.error) == "line 1 of 'a' has no \"sentence\""
    (found,) = read_texts([b'{"text": "x", "id": null}'], "'a'", FileFormat("jsonl"))
    assert found.id == "0"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({}, {"text": "one two"}),
        ({}, {"text": "no", "source": "one two"}),
        ({"source": "prompt"}, {"prompt": "one two", "text": "no"}),
    ],
)
def test_the_source_of_a_pair_may_be_a_text(columns, line):
    for form, data in (
        ("jsonl", json.dumps(line)),
        ("csv", f"{','.join(line)}\n{','.join(line.values())}"),
    ):
        lines = data.encode().splitlines(keepends=True)
        (found,) = read_texts(lines, "'a'", FileFormat(form, pairs=True, columns=columns))
        assert (found.text, found.target) == ("one two", None)


TURNS = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Which?"}]
IN_PARTS = [TURNS[0], {"role": "user", "content": [{"type": "text", "text": "Which?"}]}]


@pytest.mark.parametrize("line", [TURNS, {"messages": TURNS}, {"talk": IN_PARTS, "id": 0}])
@pytest.mark.parametrize("pairs", [True, False])
def test_a_line_may_be_a_conversation(line, pairs):
    columns = {"source" if pairs else "text": "talk"}
    how = FileFormat("jsonl", pairs=pairs, columns=columns)
    (found,) = read_texts([json.dumps(line).encode()], "'a'", how)
    assert [(one.role, one.content) for one in found.messages or ()] == [
        ("system", "Be short."),
        ("user", "Which?"),
    ]
    assert found.labels is None
    assert (found.id, found.text) == ("0", "Be short.\nWhich?")


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([{"role": "user"}], "line 1 of 'a': message 1 is no message such as"),
        ([*TURNS, "Which?"], "line 1 of 'a': message 3 is no message such as"),
        ([{"role": "user", "content": [{"type": "image"}]}], "message 1 is no message such as"),
        ([{"role": "user", "content": " "}], "the conversation in line 1 of 'a' is empty"),
        ([], "the conversation in line 1 of 'a' is empty"),
    ],
)
def test_a_conversation_without_texts_is_refused(turns, said):
    (bad,) = read_texts([json.dumps(turns).encode()], "'a'", FileFormat("jsonl"))
    assert said in str(bad.error)


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes_is_one_text():
    line = "word \u00e9 ".encode() * 12_500_000
    first, second = read_texts([line + b"\n", b"next\n"], "'a'", FileFormat())
    assert (len(first.text), second.raw) == (87_500_000, "next")
