"""Rows of CSV and TSV become texts, each with the line it stands in."""

import csv
import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.errors import InputError, UsageError
from attnviz.storage.texts import BadText, Text
from attnviz.storage.texts.formats import read_texts
from attnviz.storage.texts.lines import FileFormat

CELLS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1, max_size=20
).filter(lambda cell: not cell.isspace())


def read(data: bytes | str, input_format: str = "csv", **how: object) -> list[Text | BadText]:
    raw = data if isinstance(data, bytes) else data.encode()
    reading = FileFormat(input_format, **how)  # type: ignore[arg-type]
    return list(read_texts(io.BytesIO(raw), "'a'", reading))


def texts(found: list[Text | BadText]) -> list[str]:
    assert all(isinstance(text, Text) for text in found)
    return [text.text for text in found if isinstance(text, Text)]


def test_columns_go_by_names():
    (found,) = read("id,label,text,labels\nx,1,one two,A  B\n")
    assert found == Text(
        "x", "one two", None, ("A", "B"), where="line 2 of 'a'", line=2, raw="x,1,one two,A  B"
    )
    (found,) = read("source,id\none\n", pairs=True)
    assert (found.id, found.text, found.target) == ("0", "one", None)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5), st.booleans())
def test_what_the_csv_module_writes_is_read_back(pairs, mark):
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerows([("target", "source"), *((target, source) for source, target in pairs)])
    raw = file.getvalue().encode("utf-8-sig" if mark else "utf-8")
    found = read(raw, pairs=True)
    assert [(text.text, text.target) for text in found if isinstance(text, Text)] == pairs


@given(st.lists(CELLS.filter(lambda cell: not set("\t\n") & set(cell)), min_size=1, max_size=5))
def test_tsv_is_parted_at_tabs_and_keeps_its_quotes(cells):
    raw = "id\ttext\r\n" + "".join(f"k{place}\t{cell}\r\n" for place, cell in enumerate(cells))
    found = read(raw, "tsv")
    assert texts(found) == cells
    assert [text.id for text in found if isinstance(text, Text)] == [
        f"k{place}" for place in range(len(cells))
    ]


def test_rows_over_several_lines():
    found = read('text\n"one\ntwo\n\nthree"\n" "\n\nfour\n')
    assert [(text.line, text.raw) for text in found] == [
        (2, '"one\ntwo\n\nthree"'),
        (6, '" "'),
        (8, "four"),
    ]
    assert [text.id for text in found if isinstance(text, Text)] == ["0", "3"]
    bad = found[1]
    assert str(bad.error) == "the text in line 6 of 'a' is empty"

    found = read('text\n"a\nb\n"one\ntwo"\nc\n')
    assert [(text.line, text.raw) for text in found] == [
        (2, '"a'),
        (3, "b"),
        (4, '"one\ntwo"'),
        (6, "c"),
    ]


def test_blank_rows_and_bytes_cost_their_row():
    assert texts(read("text\none\n\n  \ntwo\n")) == ["one", "two"]
    kept = read("text\none\n\ntwo\n", keep_blank=True)
    assert [type(text) for text in kept] == [Text, BadText, Text]
    assert str(kept[1].error) == "line 3 of 'a' is empty"  # type: ignore[union-attr]
    found = read(b'text\none\n"t\xff\nwo"\nth\x00ree\n')
    assert [type(text) for text in found] == [Text, BadText, Text]
    assert str(found[1].error) == "line 3 of 'a' is not valid UTF-8"  # type: ignore[union-attr]
    assert found[1].raw.encode("utf-8", "surrogateescape") == b'"t\xff\nwo"'


@pytest.mark.parametrize(
    ("rows", "line", "reason"),
    [
        ('"a\nb\n"c",d\ne\n', 2, "is not CSV: a quote is opened and not closed"),
        ('a\n"b" c\nd\n', 3, "is not CSV: ',' expected after '\"'"),
        ('a\nb\n"c\n', 4, "is not CSV: a quote is opened and not closed"),
        ("a,b\n", 2, "has 2 columns, line 1 of 'a' 1"),
    ],
)
def test_a_wrong_row_costs_itself_only(rows, line, reason):
    found = read(f"text\n{rows}last\n")
    (bad,) = [text for text in found if isinstance(text, BadText) and text.line == line]
    assert str(bad.error).startswith(f"line {line} of 'a' {reason}")
    assert (bad.raw, found[-1].raw) == (f"text\n{rows}last".split("\n")[line - 1], "last")
    assert found[-1].line == 2 + rows.count("\n")


def test_an_open_quote_ends_after_so_many_lines(monkeypatch):
    monkeypatch.setattr("attnviz.storage.texts.formats.ROW_LINES", 3)
    found = read('text\n"a\nb\nc\nd\n"e\nf\ng"\nh\n')
    assert [text.line for text in found if isinstance(text, BadText)] == [2]
    assert [text.raw for text in found] == ['"a', "b", "c", "d", '"e\nf\ng"', "h"]


def test_no_line_is_read_more_than_twice(monkeypatch):
    passed = 0

    def reader(lines: Iterator[str], *, strict: bool) -> Iterator[list[str]]:
        def counted() -> Iterator[str]:
            nonlocal passed
            for line in lines:
                passed += 1
                yield line

        return kept(counted(), strict=strict)

    kept = csv.reader
    monkeypatch.setattr("attnviz.storage.texts.formats.csv.reader", reader)
    found = read("text\n" + 'a","\n' * 500 + "last\n")
    assert [type(text) for text in found] == [BadText] * 500 + [Text]
    assert passed <= 2 * 502


def test_tables_without_a_header():
    found = read("a,k1\nb,k2\n", columns={"text": "1", "id": "2"})
    assert [(text.id, text.text) for text in found if isinstance(text, Text)] == [
        ("k1", "a"),
        ("k2", "b"),
    ]
    (pair,) = read("x\ta\tb\n", "tsv", pairs=True, columns={"source": "3", "target": "2"})
    assert (pair.text, pair.target) == ("b", "a")

    assert texts(read("one\ntwo\n", "tsv")) == ["one", "two"]
    found = read("no target\na\tb\nc ||| d\ne\tf\tg\n", "tsv", pairs=True)
    assert [(text.text, text.target) for text in found if isinstance(text, Text)] == [
        ("no target", None),
        ("a", "b"),
        ("c", "d"),
    ]
    bad = found[-1]
    assert str(bad.error) == "line 4 of 'a' has 3 columns, not 2"


def test_texts_alone_are_pairs_without_a_target():
    for data, kind in [
        ("id,text\nk,one\n", "csv"),
        ("id\ttext\nk\tone\n", "tsv"),
        ('{"id": "k", "text": "one"}\n', "jsonl"),
    ]:
        (found,) = read(data, kind, pairs=True)
        assert (found.id, found.text, found.target) == ("k", "one", None)
    (glossary, _) = read("text\ttexte\nred\trouge\n", "tsv", pairs=True)
    assert (glossary.text, glossary.target) == ("text", "texte")


@pytest.mark.parametrize(
    ("data", "input_format", "how", "kind", "message"),
    [
        ("sentence\nx\n", "csv", {}, InputError, "'a' has no column 'text', only 'sentence': say"),
        ("en\tfr\tby\n", "tsv", {"pairs": True}, InputError, "'a' has no column 'source', only"),
        ("a\tb\n", "tsv", {}, InputError, "'a' has no column 'text', only 'a', 'b'"),
        ("text,text\n", "csv", {}, InputError, "'a' has 2 columns 'text'"),
        ('"text\n', "csv", {}, InputError, "line 1 of 'a' is not CSV"),
        (
            "text,key\n",
            "csv",
            {"columns": {"id": "kye"}},
            UsageError,
            "--columns id=kye: 'a' has no column 'kye', only 'text', 'key'. Did you mean 'key'?",
        ),
        (
            "a,b\n",
            "csv",
            {"columns": {"text": "3"}},
            UsageError,
            "--columns asks for column 3: line 1 of 'a' has 2 columns",
        ),
    ],
)
def test_wrong_columns_are_named_with_the_right_ones(data, input_format, how, kind, message):
    with pytest.raises(kind) as raised:
        read(data, input_format, **how)
    assert str(raised.value).startswith(message)


def test_a_first_line_of_any_length_is_a_short_message():
    with pytest.raises(InputError) as raised:
        read("x" * 1_000_000 + ",y" * 100)
    assert len(str(raised.value)) < 300
    assert "… and" not in str(raised.value)
    assert " and 93 more" in str(raised.value)


def test_a_field_of_many_megabytes_is_read_whole():
    long = "ab " * 5_000_000
    assert texts(read(f'text\n"{long}"\nnext\n')) == [long, "next"]
