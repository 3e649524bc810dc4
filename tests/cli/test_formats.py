"""Every format, from an argument, a file and stdin, to stdout and to files."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.core.registry import FORMATS
from attnviz.models.own import OwnLayer
from attnviz.renderers.reports import formats_of
from attnviz.runs.pipeline import load
from tests.asked import over_itself
from tests.invoke import OWN, attnviz

TEXT = "The cat sat on the mat."
WORDS = ["The", "cat", "sat", "on", "the", "mat", "."]
every_format = pytest.mark.parametrize("name", formats_of("maps"))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text(f"{TEXT}\n\nA second line\n")
    return path


@every_format
def test_argument_file_and_stdin_give_the_same_data(name, text_file):
    done = attnviz("self", TEXT, *OWN, "-f", name)
    assert done.status == 0
    assert done.err.startswith("note: untrained: 'multi-head'")
    assert (done.err.count("\n"), bool(done.out)) == (1, name != "none")
    if not FORMATS[name].binary and done.out:
        assert done.text.endswith("\n")
    content = text_file.read_bytes()
    from_file = attnviz("self", "--input", text_file, *OWN, "-f", name)
    assert from_file.status == 0
    for arguments in (("self", "-"), ("self", "--input", "-"), ("self",)):
        assert attnviz(*arguments, *OWN, "-f", name, stdin=content) == from_file


@every_format
def test_a_file_gets_what_stdout_would(name, tmp_path):
    if not (suffix := FORMATS[name].suffix):
        return
    path = tmp_path / f"out{suffix.upper()}"
    assert attnviz("self", TEXT, *OWN, "-o", path, "-f", "none").out == b""
    assert path.read_bytes() == attnviz("self", TEXT, *OWN, "-f", name).out
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_the_table_is_the_default_and_names_each():
    done = attnviz("self", TEXT, *OWN)
    assert done.out == attnviz("self", TEXT, *OWN, "-f", "table").out
    assert done.lines[0] == "multi-head (untrained) · self · 1 layer × 4 heads"
    assert "rows attend to columns" in done.text
    assert "heads of layer 0" in done.text
    lines = attnviz("self", "a b", "c d", *OWN).lines
    assert [line for line in lines if line.endswith(":")] == ["0:", "1:"]
    assert attnviz("self", TEXT, *OWN, "--quiet").err == ""
    said = attnviz("self", TEXT, *OWN, "-v").err.splitlines()
    assert len(said) == 2
    assert said[1].startswith("note: loaded in ")
    assert "1 text in" in said[1]
    assert attnviz("self", "a b", "b", "c", *OWN, "-f", "none").err.count("note") == 1


def test_one_run_writes_everything_and_computes_once(tmp_path, monkeypatch):
    asked: list[str] = []
    attend = OwnLayer.attend

    def counted(
        self: OwnLayer, queries: Sequence[Query], **options: Any
    ) -> Iterator[Attention | InputError]:
        asked.extend(query.text for query in queries)
        return attend(self, queries, **options)

    monkeypatch.setattr(OwnLayer, "attend", counted)
    data, heatmap, grid = (tmp_path / name for name in ("a.npz", "h.png", "g.svg"))
    done = attnviz(
        "self", TEXT, *OWN, "-f", "csv", "-o", data, "--heatmap", heatmap, "--grid", grid
    )
    assert (done.status, asked) == (0, [TEXT])
    assert done.out == attnviz("self", TEXT, *OWN, "-f", "csv").out
    assert heatmap.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in grid.read_bytes()
    (saved,) = load(data)
    assert saved.tokens == tuple(WORDS)


def test_json_is_a_document_of_offsets_a_list_or_lines(text_file):
    document = attnviz("self", TEXT, *OWN, "-f", "json").json()
    assert list(document) == ["schema", "kind", "id", "text", "maps", "provenance"]
    assert (document["schema"], document["id"], document["text"]) == (2, "0", TEXT)
    (item,) = document["maps"]
    assert (item["stream"], item["layers"], item["heads"]) == ("self", [0], [0, 1, 2, 3])
    assert [token["text"] for token in item["query_tokens"]] == WORDS
    for token in [*item["query_tokens"], *item["key_tokens"]]:
        assert TEXT[token["start"] : token["end"]] == token["text"]
        assert token["special"] is False
    assert np.shape(item["weights"]) == (1, 4, 7, 7)
    assert np.allclose(np.sum(item["weights"], axis=-1), 1, atol=1e-5)
    assert document["provenance"]["trained"] is False
    found = attnviz("self", "--input", text_file, *OWN, "-f", "json").json()
    lines = attnviz("self", "--input", text_file, *OWN, "-f", "jsonl").lines
    assert [json.loads(line) for line in lines] == found
    assert [document["id"] for document in found] == ["0", "2"]


def test_csv_tsv_and_npz_keep_every_digit():
    expected = over_itself(OwnLayer(Origin(mechanism="multi-head"), "self"), TEXT).weights
    document = attnviz("self", TEXT, *OWN, "-f", "json").json()
    assert np.array_equal(np.array(document["maps"][0]["weights"], np.float32), expected)
    rows = attnviz("self", TEXT, *OWN, "-f", "tsv").rows[1:]
    assert np.array_equal(np.array([row[-1] for row in rows], np.float32), expected.ravel())

    columns = "id stream layer head query_position query_token key_position key_token weight"
    tsv = attnviz("self", TEXT, "x, y", *OWN, "-f", "tsv").rows
    comma = list(csv.reader(io.StringIO(attnviz("self", TEXT, "x, y", *OWN, "-f", "csv").text)))
    assert (tsv, tsv[0]) == (comma, columns.split())
    assert len(tsv) == 1 + 4 * 7 * 7 + 4 * 3 * 3
    assert tsv[1][:8] == ["0", "self", "0", "0", "0", "The", "0", "The"]
    assert tsv[-1][:8] == ["1", "self", "0", "3", "2", "y", "2", "y"]
    done = attnviz("self", TEXT, "a b", *OWN, "-f", "npz")
    with np.load(io.BytesIO(done.out)) as archive:
        assert archive["0/0/self"].shape == (1, 4, 7, 7)
        assert archive["1/0/self"].shape == (1, 4, 2, 2)
