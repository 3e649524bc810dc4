"""The plan of a run: what it writes and where, known before anything is opened."""

from pathlib import Path

import pytest

from attnviz.cli.plan import plan
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, Output
from attnviz.core.options.look import Look

A, B = Path("a.json"), Path("b.png")


def test_a_plan_names_outputs_and_touches_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = Output(format="links", output=A, html=Path("c.html"), show=True)
    pictures = {"heatmap": None, "grid": B, "gif": None}
    made = plan(Options(output=output, pictures=pictures), many=True)
    assert (made.format, {*made.formats}) == ("links", {"links", "json"})
    assert (made.pictures, [*made.on_screen]) == ({"grid": B}, ["grid"])
    assert [*tmp_path.iterdir()] == []


def test_what_cannot_go_together_touches_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = {
        "cannot hold": Options(output=Output(format="pharaoh")),
        "two outputs": Options(pictures={"grid": B, "heatmap": B}),
        "names no picture": Options(pictures={"grid": A}),
        "names no data format": Options(output=Output(output=Path("a.xyz"))),
        "is for pictures": Options(look=Look(width="single")),
        "--fields cuts": Options(output=Output(fields="tokens")),
        "add --html": Options(output=Output(atlas=Path("x.html"))),
    }
    for text, options in refused.items():
        with pytest.raises(UsageError, match=text):
            plan(options)
    assert [*tmp_path.iterdir()] == []
