"""Every JSON document has a layout, and every run keeps to it."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from attnviz.features.schemas.layouts import LAYOUTS, json_schema
from attnviz.renderers import DATA_KINDS
from attnviz.storage.columns import KIND_OF, TABLES, columns_of, value_of
from docs.tables import MEANINGS
from tests.cli.test_every_command import samples, speech
from tests.documents import closed, name_of, validator
from tests.features.audio.test_command import SAID, VOWELS
from tests.features.audio.tiny_speech import whisper
from tests.features.chat.models import a_chat
from tests.features.explain.test_pair_score import one_score
from tests.features.match.late_models import colbert
from tests.invoke import attnviz

pytestmark = pytest.mark.usefixtures("few_references")

SAMPLES = Path(__file__).parents[3] / "sample_inputs"
PAIR = ("The red car.", "La voiture rouge.")
DOGS = ("Tom likes dogs. Tom likes", "--model", "pocket-lm")
CONTEXT = ("--context", SAMPLES / "sentences.txt")
RUNS: dict[str, tuple[Any, ...]] = {
    "maps": ("self", "The cat sat"),
    "heads": ("heads", "The cat sat"),
    "similarity": ("heads", "The cat sat", "--similar"),
    "treebank": ("heads", "--treebank", SAMPLES / "relations.conllu"),
    "corpus": ("heads", "--input", SAMPLES / "sentences.txt", "--mechanism", "multi-head"),
    "comparison": ("compare", "The cat sat", "The dog sat"),
    "ablation": ("ablate", *PAIR, "--head", "2.0", "--token", "red"),
    "why": ("why", *DOGS),
    "layers": ("why", *DOGS, "--layers"),
    "wiring": ("heads", *DOGS, "--wiring"),
    "answer": ("explain", *DOGS),
    "contrast": ("explain", *DOGS, "--contrast", "Tom likes cats. Tom likes"),
    "sources": ("sources", "the cat", *CONTEXT),
    "trace": ("sources", "Tom likes dogs. Mary likes cats.", "--of", "output", *DOGS[1:]),
    "lenses": ("ablate", *PAIR, "--lenses"),
    "cache": ("cache", *DOGS, "--keep", "sinks:1+recent:3"),
    "alignment": ("align", SAMPLES / "pairs.tsv"),
    "scores": ("align", SAMPLES / "pairs.tsv", "--score", SAMPLES / "pairs.gold"),
    "steps": ("steps",),
    "examples": ("steps", SAMPLES / "worked_examples.json"),
    "lesson": ("lesson", "scaling"),
    "models": ("models",),
    "mechanisms": ("models", "--mechanisms"),
    "lessons": ("lesson",),
    "example-files": ("examples",),
    "card": ("models", "pocket"),
}


def made(name: str, folder: Path) -> tuple[Any, ...]:
    """The command that writes a document, with what it reads."""
    if name in RUNS:
        return RUNS[name]
    if name == "answers":
        (folder / "pairs.tsv").write_text("a car\tune voiture\n")
        return ("explain", "--input", folder / "pairs.tsv")
    of_folder = {
        "pair-score": lambda: ("explain", "a b", "c", "--score", "--model", one_score(folder)),
        "ranking": lambda: ("match", "the car", "-i", SAMPLES / "sentences.txt", *late(folder)),
        "chat": lambda: ("self", "--chat", *a_chat(folder)),
        "history": lambda: ("compare", *samples(folder)),
        "facts": lambda: ("models", "--check", speech(folder)),
    }
    if name in of_folder:
        return of_folder[name]()
    if name == "ablation-comparison":
        for file in ("a.json", "b.json"):
            attnviz("ablate", *PAIR, "--head", "2.0", "-o", folder / file, "-f", "none")
        return ("compare", folder / "a.json", folder / "b.json")
    times = ("audio", VOWELS, "--model", whisper(folder), *SAID)
    return (
        *times,
        *(("--word-times",) if name == "times" else ("--times", SAMPLES / "vowels.tsv")),
    )


def late(folder: Path) -> tuple[Any, ...]:
    """A model of late interaction."""
    return "--model", colbert(folder / "colbert")


LINES = {"error", "note", "reject"}
SOMETIMES = {"writes", "run"}
"""Columns that are there where they have values."""


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_the_columns_of_its_name(name, tmp_path):
    document, _, show = name.partition(" ")
    done = attnviz(*made(document, tmp_path), *show.split(), "-f", "tsv", "-q")
    assert done.status == 0, done.err
    columns, header = columns_of(name), done.rows[0]
    named = [one for one in columns if not re.search("[A-Z]", one)]
    assert [one for one in header if one in named] == [x for x in named if x in header]
    assert {*named} - {*header} <= SOMETIMES
    assert {*header} <= {*columns} or len(named) < len(columns)


def test_columns_and_kinds_of_data_are_all_named():
    assert {one for name in TABLES for one in columns_of(name)} == {*KIND_OF}
    assert {*MEANINGS} == {*KIND_OF}
    assert {layout.kind for layout in LAYOUTS.values()} == {*DATA_KINDS, None}


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        *(("layer", "3", 3), ("layer", "mean", "mean"), ("head", "", None), ("offset", "-2", -2)),
        *(("layer", "1_0", "1_0"), ("key_token", "7", "7"), ("key_token", "", "")),
        *(
            ("weight", "1", 1.0),
            ("weight", "", None),
            ("entropy", "0.5", 0.5),
            ("unit", "nats", "nats"),
        ),
    ],
)
def test_a_cell_is_a_number_where_its_column_is(column, cell, value):
    found = value_of(column, cell)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in LINES])
def test_every_document_has_the_layout_of_its_name(name, tmp_path):
    done = attnviz(*made(name, tmp_path), "-f", "json", "-q")
    assert done.status == 0, done.err
    found = done.json()[0] if name == "alignment" else done.json()  # a list of all pairs
    assert name_of(found, LAYOUTS[name].kind) == name


@pytest.mark.parametrize("name", ["ablation", "answers"])
def test_each_line_of_jsonl_has_a_layout(name, tmp_path):
    done = attnviz(*made(name, tmp_path), "-f", "jsonl", "-q")
    kinds = {name_of(json.loads(line), None) for line in done.lines}
    assert kinds <= {"ablation", "answer", "answers"}
    assert kinds


def test_schemas_are_printed_and_the_guide_names_them_all():
    guide = attnviz("--guide").text
    assert guide.startswith("---\nname: attnviz\n")
    assert ", ".join(LAYOUTS) in guide
    assert attnviz("--schema", "heads").json()["title"] == "heads"
    assert "Did you mean 'heads'?" in attnviz("--schema", "haeds").mistake


def test_lines_of_stderr_and_of_rejects_have_layouts(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "Le zzz qqq"}\n{"text": 3}\n')
    rejects = tmp_path / "r.jsonl"
    told = attnviz(
        "self", "--input", tmp_path / "t.jsonl", "--on-error", rejects, "--errors", "json"
    )
    assert told.status == 1
    lines = [json.loads(line) for line in told.err.splitlines()]
    assert {name_of(line, None) for line in lines} == {"error", "note"}
    validator("reject").validate(json.loads(rejects.read_text()))


def test_layouts_are_closed_and_find_wrong_fields():
    document = attnviz("heads", "The cat sat", "-f", "json", "-q").json()
    for wrong in ({**document, "more": 1}, {**document, "heads": [{"layer": "0"}]}):
        with pytest.raises(jsonschema.ValidationError):
            validator("heads").validate(wrong)
    jsonschema.validate({**document, "more": 1}, json_schema("heads"))  # readers may ignore more
    assert closed({"properties": {}, "items": [{"properties": {}}]}) == {
        "properties": {},
        "items": [{"properties": {}, "additionalProperties": False}],
        "additionalProperties": False,
    }
