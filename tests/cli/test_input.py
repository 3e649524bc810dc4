"""Bad input: one clear line for each mistake, and whatever is good is still done."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from attnviz.storage.texts import formats
from tests.invoke import OWN, Done, attnviz


def ids(done: Done) -> list[str]:
    return [json.loads(line)["id"] for line in done.lines]


def jsonl(path: Path, *arguments: str) -> Done:
    return attnviz("self", "--input", path, *OWN, "-f", "jsonl", "-q", *arguments)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        *((("self", text, *OWN), "text is empty") for text in ("", " ", "\n\t", "\u3000")),
        (("self", "a\udcff", *OWN), "text is not valid UTF-8"),
        (("cross", "a", " ", *OWN), "target is empty"),
        (("cross", " ", "a", *OWN), "source is empty"),
    ],
)
def test_what_is_no_text_is_refused_and_named(command, what):
    done = attnviz(*command)
    assert (done.status, done.mistake) == (1, f"the {what}")


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("nope.txt", 1, "there is no file 'nope.txt'"),
        ("nope.jsonl", 1, "there is no file 'nope.jsonl'"),
        ("folder.txt", 1, "'folder.txt' is a folder, not a file"),
        ("nope.csv.gz", 1, "there is no file 'nope.csv.gz'"),
        (
            "a.doc",
            2,
            "'a.doc' ends in none of .txt, .jsonl, .ndjson, .csv, .tsv, with or without .gz: "
            "rename it, or write its format before it, jsonl:a.doc",
        ),
        ("empty.txt", 1, "'empty.txt' holds no text"),
        ("blank.txt", 1, "'blank.txt' holds no text"),
    ],
)
def test_a_file_without_texts_is_named(name, status, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder.txt").mkdir()
    Path("empty.txt").touch()
    Path("blank.txt").write_text(" \n\n\t\n\u3000\n")
    done = attnviz("self", "--input", name, *OWN)
    assert (done.status, done.mistake) == (status, message)


def test_nothing_and_too_much_are_named():
    assert attnviz("self", *OWN).mistake == "stdin holds no text"
    assert attnviz("self", "-", *OWN, stdin=b"\n \n").mistake == "stdin holds no text"
    done = attnviz("self", "a", "--input", "b.txt", *OWN)
    assert (done.status, done.mistake) == (2, "both TEXT and --input were given: give one")


def test_good_lines_of_text_are_done_and_bad_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufefffirst\r\n".encode() + b"\xff\xfe bad\n\n  \nlast one")
    done = jsonl(path)
    assert (done.status, ids(done)) == (1, ["0", "4"])
    assert [json.loads(line)["text"] for line in done.lines] == ["first", "last one"]
    assert done.err == f"attnviz: error: line 2 of '{path}' is not valid UTF-8\n"


def test_good_records_are_done_and_bad_ones_named(tmp_path):
    path = tmp_path / "a.jsonl"
    records = (
        '{"text": "one two"}',
        "not json",
        '{"txt": "x"}',
        "[1]",
        '{"text": 5}',
        '{"text": " "}',
        '{"text": "a b", "labels": "A O"}',
        '{"text": "a b", "labels": ["A"]}',
        '{"text": "\\ud800"}',
        '{"text": "three four", "id": 7, "labels": ["A", "O"]}',
    )
    path.write_text("\n".join(records))
    done = jsonl(path)
    assert (done.status, ids(done)) == (1, ["0", "7"])
    said = done.err.splitlines()
    assert len(said) == 8
    for number, line in zip(range(2, 10), said, strict=True):
        assert line.startswith("attnviz: error: ")
        assert f"line {number} of '{path}'" in line
    labelled = json.loads(done.lines[1])["maps"][0]["query_tokens"]
    assert [token.get("label") for token in labelled] == ["A", None]


def test_where_no_line_is_good_the_old_file_stays(tmp_path):
    path, kept = tmp_path / "a.txt", tmp_path / "kept.json"
    path.write_bytes(b"\xff\n")
    kept.write_text("old")
    done = attnviz("self", "--input", path, *OWN, "-f", "json", "-o", kept, "--overwrite")
    assert done.status == 1
    mistake, note = done.err.splitlines()
    assert mistake.endswith("is not valid UTF-8")
    assert note == f"note: '{kept}' is left as it was: every record failed"
    assert kept.read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.txt", "kept.json"]


def test_pairs_come_by_tabs_or_records(tmp_path):
    stdin = b"the cat\tle chat\nno target\n\ta\nthe dog\tle chien\n"
    done = attnviz("cross", "-", *OWN, "-f", "jsonl", "-q", stdin=stdin)
    assert (done.status, ids(done)) == (1, ["0", "3"])
    said = done.err.splitlines()
    assert said[0].startswith("attnviz: error: line 2 of stdin: mechanism 'multi-head' needs a TAR")
    assert said[1] == "attnviz: error: the source in line 3 of stdin is empty"
    assert len(said) == 2

    path = tmp_path / "a.jsonl"
    path.write_text('{"source": "the cat", "target": "le chat", "id": "x"}\n{"words": "a"}\n')
    for command in (("cross", *OWN), ("cross", "--mechanism", "co")):
        done = attnviz(*command, "--input", path, "-f", "jsonl", "-q")
        assert (ids(done), done.status) == (["x"], 1)
        assert done.err == f"attnviz: error: line 2 of '{path}' has no \"source\"\n"


def test_a_wrong_layer_ends_and_any_character_passes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b\nc d\n")
    assert jsonl(path, "--layer", "3").mistake.startswith("layer 3 does not exist")
    path = tmp_path / "a.jsonl"
    text = "a\x00b \x1b[31m\u202e x"
    path.write_text(json.dumps({"text": text}))
    assert json.loads(jsonl(path).out)["text"] == text


def test_labels_are_a_word_or_a_token_each():
    def labels(*arguments: str) -> list[str | None]:
        (item,) = attnviz("self", *arguments, *OWN, "-f", "json").json()["maps"]
        assert item["query_tokens"] == item["key_tokens"]
        return [token.get("label") for token in item["query_tokens"]]

    assert labels("John ran.", "--labels", "B-PER O O") == ["B-PER", None, None]
    assert labels("John ran.", "--labels", "O V") == [None, "V", "V"]
    done = attnviz("self", "John ran.", "--labels", "O", *OWN)
    assert (done.status, done.mistake) == (1, "1 labels for 3 tokens: John ran .")
    done = attnviz("self", "John ran", "--labels", "B-PER O", *OWN)
    assert any(line.startswith("John B-PER") for line in done.lines)


LONG = "a" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("self", "--input", f"{LONG}.txt"),
        ("render", LONG),
        ("align", f"{LONG}.tsv"),
        ("heads", "--input", f"{LONG}.txt"),
        ("compare", f"{LONG}.npz", "b.npz"),
        ("heads", "--treebank", LONG),
        ("self", "a b", "--group", LONG),
        ("self", "a", "--weights", f"{LONG}.npz"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_name_that_no_file_system_takes(arguments):
    done = attnviz(*arguments)
    assert done.status == 1
    assert "File name too long" in done.mistake
    assert ("…'" in done.mistake) == done.mistake.startswith("cannot use")


@pytest.mark.parametrize("arguments", [("render",), ("self", "--input"), ("self", "--weights")])
def test_a_loop_of_links_is_one_line(arguments, tmp_path):
    loop = tmp_path / "loop.txt"
    loop.symlink_to(loop)
    assert "Too many levels of symbolic links" in attnviz(*arguments, loop).mistake


def test_a_file_that_is_gone_when_read_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("the cat\n")
    real = formats.read_texts

    def gone(lines: Iterable[bytes], *rest: Any) -> Any:
        path.unlink(missing_ok=True)
        return real(lines, *rest)

    monkeypatch.setattr(formats, "read_texts", gone)
    assert "there is no file" in attnviz("self", "--input", path).mistake


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_a_line_longer_than_the_limit_ends_the_file(name, packed, tmp_path, monkeypatch):
    path = tmp_path / (f"{name}.gz" if packed else name)
    monkeypatch.setattr("attnviz.storage.texts.lines.LONGEST", 1 << 20)
    monkeypatch.setattr("attnviz.storage.texts.formats.LONGEST", 1 << 20)
    options = ("--mechanism", "linear", "-f", "none")
    for size in (1 << 20, 3 << 20):
        with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
            file.write(b"a" * size + (b"\n" if size == 1 << 20 else b""))
        is_longer = "is longer than 1 MiB" in attnviz("self", "--input", path, *options).err
        assert is_longer == (size > 1 << 20)
    done = attnviz("self", "--input", path, *options)
    assert (done.status, done.out) == (1, b"")
    assert "is longer than 1 MiB" in done.err
