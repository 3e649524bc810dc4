"""Every row of every table: it loads, and says what its code says."""

import inspect
import json
import re
from pathlib import Path

import pytest

from attnviz.core import registry
from attnviz.core.errors import UsageError
from attnviz.core.registry import COMMANDS, FORMATS, MECHANISMS, PICTURES
from attnviz.renderers import DATA_KINDS, PICTURE_SUFFIXES, Display
from attnviz.renderers.reports import Data, formats_of, make_renderer

ROWS = [
    pytest.param(entry, id=f"{table}-{name}")
    for table, entries in {**registry.tables(), "COMMANDS": COMMANDS}.items()
    for name, entry in entries.items()
]


@pytest.mark.parametrize("entry", ROWS)
def test_every_row_loads_and_says_so_in_a_sentence(entry):
    assert callable(entry.load())
    assert "\n" not in entry.summary
    assert entry.summary[0].isupper()
    assert entry.summary.endswith(".")
    assert len(entry.summary) <= 90


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanisms_summary_is_its_docstrings(name):
    function = MECHANISMS[name].load()
    assert (inspect.getdoc(function) or "").split("\n")[0] == MECHANISMS[name].summary
    assert function.__name__ == name.replace("-", "_")
    assert function.__module__ == "attnviz.mechanisms." + MECHANISMS[name].target.partition(":")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_summary_begins_as_its_help(name):
    first = (inspect.getdoc(COMMANDS[name].load()) or "").split("\n")[0]
    summary = COMMANDS[name].summary.rstrip(".")
    assert first.startswith(summary) or first.split(",")[0].split(":")[0].split(";")[0] in summary


def test_formats_have_suffixes_headers_and_forms():
    for kind in DATA_KINDS:
        suffixes = [entry.suffix for entry in formats_of(kind).values() if entry.suffix]
        assert len(set(suffixes)) == len(suffixes)
        assert all(suffix.startswith(".") for suffix in suffixes)
        assert not set(suffixes) & set(PICTURE_SUFFIXES)
    renderer = make_renderer("csv", Display(many=True), "corpus")
    assert renderer.add(REPORTS, tuple) == 'name,value\n"a, b",1\n'
    assert renderer.add(REPORTS, tuple) == '"a, b",1\n'
    with pytest.raises(UsageError, match="choose -f json"):
        make_renderer("csv", Display(), "heads").add(Data(), tuple)


@pytest.mark.parametrize("kind", DATA_KINDS)
def test_every_kind_of_data_is_written_by_its_formats(kind):
    formats = formats_of(kind)  # type: ignore[arg-type]
    assert {"json", "none"} <= set(formats)
    form = DATA_KINDS[kind][1][0]  # type: ignore[index]
    assert formats[next(iter(formats))].form == form
    for entry in formats.values():
        assert callable(entry.load() if kind == "maps" else entry.load_report())


REPORTS = Data(
    text=lambda display: "a table\n",
    rows=lambda: "name\tvalue\na, b\t1\n",
    document=lambda: '{"name": "a, b"}\n',
    arrays=lambda: b"PK",
    links=lambda: "0-0\n",
    textgrid=lambda: "a TextGrid\n",
    vtt=lambda: "WEBVTT\n",
)


@pytest.mark.parametrize("name", [name for name, entry in FORMATS.items() if entry.form != "maps"])
def test_every_format_of_reports_writes_several(name):
    for count in (1, 2):
        renderer = make_renderer(name, Display(many=count > 1), "corpus")
        found = [*(renderer.add(REPORTS, tuple) for _ in range(count)), renderer.finish()]
        if name == "json":
            one = {"name": "a, b"}
            assert json.loads("".join(found)) == (one if count == 1 else [one, one])
        elif name != "none":
            assert any(found)


def test_names_of_pictures_causal_forms_and_layers():
    from attnviz import Result
    from attnviz.commands.command import MAP_PICTURES, OPTIONS

    for name in PICTURES:
        assert name in OPTIONS or name in MAP_PICTURES
        assert callable(getattr(Result, name))
    for entry in MECHANISMS.values():
        assert entry.causal is None or entry.causal in MECHANISMS

    assert registry.axis_name("layer", "3") == "layer 3"
    assert registry.axis_name("layer", "decoder.2.attention") == "layer decoder.2.attention"
    assert registry.axis_name("head", "mean") == "mean over heads"
    script = (Path(registry.__file__).parents[1] / "renderers/page/scripts/model.js").read_text()
    for name in ("mean", "max", "sum", *registry.LENSES):
        assert registry.axis_name("layer", name) == f"{name} over layers"
        assert re.search(rf"\^\(.*\b{name}\b.*\)\$/\.test\(name\)", script)
