"""What a program asks for: some fields, a small answer, errors as JSON; and a script of uv's."""

import csv
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from attnviz import attend
from attnviz.cli.app import build_command
from attnviz.core.registry import COMMANDS
from attnviz.renderers import Display
from attnviz.renderers.reports import CUT, make_renderer
from tests.cli.test_every_command import WORK
from tests.invoke import OWN, attnviz, fresh
from tests.patience import HUNG

ROOT = Path(__file__).parents[2]
SELF = ("self", "a b", "c", *OWN, "-q")


def picked(value, path):
    """A field of a document, the slow way."""
    if isinstance(value, list):
        return [picked(one, path) for one in value]
    return picked(value[path[0]], path[1:]) if path else value


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_documents_have_the_fields_asked_for(form):
    def documents(*more):
        done = attnviz(*SELF, "-f", form, *more)
        assert done.status == 0, done.err
        return done.json() if form == "json" else [json.loads(line) for line in done.lines]

    paths = ("text", "maps.weights", "maps.key_tokens.text")
    whole, cut = documents(), documents("--fields", ", ".join(paths))
    assert [list(one) for one in cut] == [["text", "maps"]] * 2
    assert [list(one) for one in cut[0]["maps"]] == [["weights", "key_tokens"]]
    for path in paths:
        assert picked(cut, path.split(".")) == picked(whole, path.split("."))


@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_rows_have_their_columns_and_one_header(form):
    def rows(*more):
        text = attnviz(*SELF, "-f", form, *more).text
        cells = csv.reader(io.StringIO(text), dialect="excel" if form == "csv" else "excel-tab")
        return list(cells)

    whole, cut = rows(), rows("--fields", "weight,id")
    assert cut == [[row[-1], row[0]] for row in whole]
    assert len(cut) > 2
    attention, texts = attend("a b", mechanism="multi-head"), list[str]()
    for begun in (False, True):
        display = Display(many=True, begun=begun, fields=("weight", "id"))
        texts.append(str(make_renderer(form, display).add(attention, tuple)))
    assert texts[0].partition("\n")[2] == texts[1]
    assert texts[0].startswith(("weight\tid\n", "weight,id\n"))


def test_a_file_is_cut_too(tmp_path):
    for name in ("x.jsonl", "x.tsv"):
        fields = "id,maps.heads" if name == "x.jsonl" else "id,weight"
        done = attnviz(*SELF, "-o", tmp_path / name, "-f", "none", "--fields", fields)
        assert done.status == 0, done.err
    assert [*json.loads((tmp_path / "x.jsonl").read_text().splitlines()[0])] == ["id", "maps"]
    assert (tmp_path / "x.tsv").read_text().count("id\tweight\n") == 1
    pair = ("ablate", "The red car.", "La voiture rouge.", "--head", "2.0", "-f", "json", "-q")
    found = attnviz(*pair, "--fields", "together.place.layer").json()
    assert found == {"together": {"place": {}}}
    link = ("why", "The red car is fast.", "La voiture rouge est rapide.", "-f", "json", "-q")
    assert attnviz(*link, "--fields", "against.nope").status == 2
    assert set(CUT) == {"json", "jsonl", "tsv", "csv"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("-f", "json", "--fields", "maps.weihgts"), "Did you mean 'maps.weights'?"),
        (("-f", "json", "--fields", "text.deeper"), "unknown field 'text.deeper'"),
        (("-f", "json", "--fields", "map.weights"), "unknown field 'map.weights': choose from "),
        (("-f", "json", "--fields", "nope.x"), "unknown field 'nope.x': choose from maps, "),
        (("-f", "json", "--fields", "measured.nope"), "unknown field 'measured.nope'"),
        (("-f", "tsv", "--fields", "wieght"), "unknown column 'wieght': choose from id, stream"),
        (("-f", "json", "--fields", " , "), "--fields ' , ' names no field"),
        (("--fields", "id"), "--fields cuts json, jsonl, tsv, csv, not table: add -f json"),
    ],
)
def test_a_field_that_is_not_there_is_told(more, message, tmp_path):
    done = attnviz(*SELF, *more, "--html", tmp_path / "a.html")
    assert done.status == 2
    assert message in done.mistake
    assert not [*tmp_path.iterdir()]  # the data come first, and nothing else is written


def test_a_column_that_no_table_has_is_refused_before_texts_are_read(tmp_path):
    texts, out = tmp_path / "texts.txt", tmp_path / "out.tsv"
    texts.write_text("the cat\n\nthe dog\n\n")
    for line in (("self", "-i", texts, *OWN), ("align", texts), ("why", "a")):
        assert "unknown column 'nope'" in attnviz(*line, "-o", out, "--fields", "nope").mistake
    assert [*tmp_path.iterdir()] == [texts]


@pytest.mark.parametrize("command", WORK)
def test_a_field_that_no_document_has_is_refused(command, tmp_path):
    params = {word for item in build_command(command).params for word in item.opts}
    if "--fields" not in params:
        assert command in ("live", "browse", "render", "watch"), command
        return
    for field in ("nope", "nope.x", "heads.layer.nope", "heads.nope"):
        done = attnviz(command, *WORK[command][0](tmp_path), "-f", "json", "--fields", field)
        assert done.status == 2, done.err
        assert f"unknown field '{field}'" in done.err


@pytest.mark.parametrize(
    ("arguments", "error", "status"),
    [
        (("self", "a", "--nonsense"), "UsageError", 2),
        (("self", "a", "--special", "no"), "UsageError", 2),
        (("nonsense", "a"), "UsageError", 2),
        (("self", "a", *OWN, "--head", "99"), "UsageError", 2),
        (("self", "--input", "none.txt"), "InputError", 1),
    ],
)
def test_every_error_can_be_had_as_one_line_of_json(arguments, error, status):
    plain = attnviz(*arguments, "-q") if arguments[0] in COMMANDS else attnviz(*arguments)
    for form in (("--errors", "json"), ("--errors=json",)):
        done = attnviz(*arguments, *form)
        *notes, line = map(json.loads, done.err.splitlines())
        assert (done.status, done.out) == (status, b"")
        assert line == {
            "schema": 2,
            "kind": "error",
            "error": error,
            "status": status,
            "message": plain.mistake,
        }
        assert {note["kind"] for note in notes} <= {"note"}
    assert plain.err.startswith("attnviz: error: ")  # the next run is text again


@pytest.mark.slow
def test_errors_of_a_watched_program_are_its_own(tmp_path):
    (tmp_path / "p.py").write_text("import sys; print(sys.argv[1:])\n")
    run = ("watch", "-o", tmp_path / "a.npz", tmp_path / "p.py", "--errors", "json")
    done = fresh(*run)
    assert "['--errors', 'json']" in done.text
    assert "attnviz: error: " in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_what_people_use_and_names_the_rest(command):
    made = build_command(command)
    usual = [
        one
        for one in made.params
        if one.param_type_name == "option" and one.name not in {*made.rare, "help_all", "help"}
    ]
    assert len(usual) <= 17
    text = attnviz(command, "--help").text
    for one in made.params:
        if one.name in made.rare:
            assert max(one.opts, key=len) in text


@pytest.mark.slow
def test_the_script_of_the_samples_runs():
    path = ROOT / "sample_inputs" / "roles.py"
    block = re.search(r"(?m)^# /// script$\n((?:#(?: .*)?\n)+?)# ///$", path.read_text())
    assert block
    found = tomllib.loads(re.sub(r"(?m)^# ?", "", block[1]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert found["requires-python"] == project["requires-python"]
    assert "attnviz" in found["dependencies"]
    assert (path.parent / found["tool"]["uv"]["sources"]["attnviz"]["path"]).resolve() == ROOT
    done = subprocess.run(
        [sys.executable, path, "The cat sat"],
        capture_output=True,
        text=True,
        timeout=HUNG,
        check=True,
    )
    assert sum(int(line.split()[0]) for line in done.stdout.splitlines()) == 24
