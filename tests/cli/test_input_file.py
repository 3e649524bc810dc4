"""Files of every format reach a command, and what is wrong is known before a model loads."""

import gzip
import json
import os
import re
import threading
from pathlib import Path

import pytest

from attnviz.cli.app import build_command, run
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Many
from attnviz.core.registry import COMMANDS
from attnviz.runs.inputs import count_records, texts_of
from attnviz.storage.texts import BadText, Text
from tests.hugging_face.tiny_models import bert
from tests.invoke import OWN, attnviz

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
CONTENTS = {
    "txt": "\ufeffone two\n\n \u3000\nthree\n",
    "jsonl": '{"text": "one two"}\n\n{"text": "three"}\n',
    "csv": 'id,text\r\n0,"one two"\r\n\r\n3,three\r\n',
    "tsv": "text\tid\none two\t0\n\nthree\t3\n",
}


def texts(file: str | Path, **how: object) -> list[str]:
    given = texts_of([], str(file), Many(**how))  # type: ignore[arg-type]
    found, many = given.open(), given.several
    assert many
    return [text.text if isinstance(text, Text) else str(text.error) for text in found]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", CONTENTS)
def test_every_format_gives_the_same_texts(suffix, packed, tmp_path):
    data = CONTENTS[suffix].encode()
    path = tmp_path / f"a.{suffix}{'.gz' * packed}"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert (texts(path), count_records(str(path))) == (["one two", "three"], 2)
    odd = tmp_path / "odd.data"
    odd.write_bytes(path.read_bytes())
    named = f"{suffix}:{odd}"
    assert (texts(named), count_records(named)) == (["one two", "three"], 2)
    done = attnviz("self", "--input", path, *OWN, "-f", "jsonl", "-q")
    assert (done.status, done.err) == (0, "")
    assert [json.loads(line)["text"] for line in done.lines] == ["one two", "three"]


READERS = [
    name
    for name in COMMANDS
    if {"--input", "--format"} <= {opt for item in build_command(name).params for opt in item.opts}
]
"""The commands that read files of texts and print data."""


@pytest.mark.usefixtures("few_references")
@pytest.mark.parametrize("command", READERS)
def test_texts_may_stand_in_every_format(command, tmp_path):
    picture = tmp_path / "shapes.png"
    picture.write_bytes((SAMPLES / "shapes.png").read_bytes())
    lines = [str(picture), "Tom likes dogs and Mary likes cats"]
    contents = {
        "txt": "\n".join(lines),
        "jsonl": "\n".join(json.dumps({"text": line}) for line in lines),
        "csv": "\n".join(["text", *lines]),
    }
    models = {"cross": "pocket", "match": bert(tmp_path / "bert") if command == "match" else ""}
    options = ["--model", models.get(command, "pocket-lm"), "-f", "json"]
    options += ["--keep", "h2o:3"] * (command == "cache")
    words = [command, "a red square"] if command == "match" else [command]
    told = set()
    for suffix, content in contents.items():
        path = tmp_path / f"a.{suffix}"
        path.write_text(content)
        done = attnviz(*words, "--input", path, *options)
        assert done.status == 0, done.err
        told.add(done.out)
    assert len(told) == 1


@pytest.mark.parametrize("command", ["why", "explain", "cache"])
def test_a_model_of_pictures_opens_none_of_a_line(command, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"{SAMPLES / 'shapes.png'}\n")
    rules = ["--keep", "h2o:3"] * (command == "cache")
    done = attnviz(command, "--input", path, "--model", "pocket-vit", *rules)
    assert done.status == 1
    assert f"line 1 of '{path}': 'pocket-vit' reads pictures" in done.mistake


def test_stdin_may_be_of_any_format_and_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"one\ntwo\n"))
    writer.start()
    assert count_records(str(path)) is None
    assert texts(path) == ["one", "two"]
    writer.join()
    assert count_records("-") is None
    done = attnviz("self", *OWN, "-f", "jsonl", "-q", stdin=gzip.compress(b"one two\n"))
    assert json.loads(done.out)["text"] == "one two"


@pytest.mark.parametrize(
    ("name", "data", "how", "kind", "message"),
    [
        ("a.csv", "sentence\nx\n", {}, InputError, "has no column 'text', only 'sentence'"),
        ("a.csv", "a\n", {"columns": "text=b"}, UsageError, "has no column 'b', only 'a'"),
        ("a.txt", "a\n", {"columns": "text=b"}, UsageError, "plain lines have none"),
        ("a.dat", "a\n", {}, UsageError, "ends in none of .txt"),
    ],
)
def test_a_wholly_wrong_file_is_known_at_once(name, data, how, kind, message, tmp_path):
    path = tmp_path / name
    path.write_text(data)
    with pytest.raises(kind) as raised:
        texts_of([], str(path), Many(**how))  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_tables_without_texts_and_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\n")
    found = texts_of([], str(path)).open()
    with pytest.raises(InputError, match="holds no text"):
        list(found)
    with pytest.raises(UsageError, match="--columns is for files and stdin"):
        texts_of(["a"], None, Many(columns="text=1"))
    path = Path(__file__).parents[2] / "sample_inputs" / "notes.csv"
    found = list(texts_of([], str(path), Many(columns="text=note,id=key,labels=words")).open())
    assert [text.line for text in found] == [2, 3, 5]
    assert [text.id for text in found if isinstance(text, Text)] == ["fox", "letter", "quote"]
    assert [bool(text.labels) for text in found if isinstance(text, Text)] == [True, False, False]


def test_cut_and_bad_lines_keep_their_numbers(tmp_path):
    path, out = tmp_path / "a.txt.gz", tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(b"one two\nthree four\n")[:-4])
    done = attnviz("self", "--input", path, *OWN, "-q", "-f", "jsonl", "-o", out)
    assert done.status == 1
    assert done.err == (
        f"attnviz: error: '{path}' cannot be read after line 2: its gzip ends too early\n"
    )
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["0", "1"]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"txt": "b"}\r\n\xff\n')
    _, *bad = texts_of([], str(path)).open()
    assert [(text.line, text.raw) for text in bad] == [(2, '{"txt": "b"}'), (3, "\udcff")]
    assert all(isinstance(text, BadText) for text in bad)


@pytest.mark.parametrize("command", ["self", "heads"])
def test_a_note_on_many_texts_has_its_range(command, tmp_path, capfd):
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat\nThe dog ran.\n")
    assert run([command, "--input", str(texts), "--special", "drop", "-f", "none"]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "left out; they held" in line]
    assert len(said) == 1
    assert re.search(r"they held \d+–\d+% of encoder", said[0])
