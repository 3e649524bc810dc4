import json
import re
import sys
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz import attend
from attnviz.cli.destinations import command_line
from attnviz.cli.outputs import Outputs
from attnviz.core.attention_map import Attention, AttentionMap, Link, Provenance, Token
from attnviz.core.tokens import patch_tokens
from attnviz.runs.outputs import page_html
from attnviz.storage.writing import PartialFile
from tests.features.vision.tiny_vision import VISION_BUILDERS
from tests.invoke import OWN
from tests.invoke import attnviz as invoke


def document(html: str) -> Any:
    found = re.search(r'<script type="application/json" id="document">(.*?)</script>', html, re.S)
    return json.loads(found[1])


def test_one_page_with_its_words_beside_the_data(tmp_path):
    file = tmp_path / "page.html"
    done = invoke("self", "the cat's sat down", *OWN, "--html", str(file), "-f", "tsv")
    assert done.status == 0
    assert len(done.lines) > 1
    found = document(file.read_text("utf-8"))
    assert found["title"] == "multi-head (untrained)"
    assert found["texts"] == ["the cat's sat down"]
    names = [measure["name"] for measure in found["maps"][0]["measures"]]
    assert names[0] == "entropy"
    assert "previous-token" in names
    assert "untrained" in found["notes"][0]
    assert invoke("self", "well-known, too", *OWN, "--html", str(file), "-f", "none").status == 0
    axis = document(file.read_text("utf-8"))["maps"][0]["keys"]
    assert [token["text"] for token in axis["tokens"]] == ["well", "-", "known", ",", "too"]
    assert axis["words"] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("command", "streams"),
    [
        (("cross", "a cat", "un chat", *OWN), ["cross"]),
        (("cross", "a cat", "a dog", "--mechanism", "co"), ["affinity", "a", "b"]),
    ],
)
def test_other_commands_write_pages_too(tmp_path, command, streams):
    file = tmp_path / "page.html"
    assert invoke(*command, "--html", str(file), "-f", "none").status == 0
    assert [item["stream"] for item in document(file.read_text("utf-8"))["maps"]] == streams


def test_texts_become_pages_and_saved_maps_the_same(tmp_path):
    saved, first, again = (tmp_path / name for name in ("map.npz", "first.html", "again.html"))
    invoke("self", "the cat sat", *OWN, "-o", str(saved), "--html", str(first), "-f", "none")
    assert invoke("render", str(saved), "--html", str(again), "-f", "none").status == 0
    assert first.read_text("utf-8") == again.read_text("utf-8")


def test_several_texts_become_a_page_each(tmp_path):
    file = tmp_path / "page.html"
    invoke("self", "one two", "three four", *OWN, "--html", str(file), "-f", "none")
    pages = sorted(path.name for path in tmp_path.iterdir())
    assert pages == ["page-0.html", "page-1.html"]
    assert document((tmp_path / "page-1.html").read_text("utf-8"))["texts"] == ["three four"]


ALL = ("--html", "page.html", "--heatmap", "map.png", "--grid", "grid.svg", "-f", "none")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "pipe", "argument"])
@pytest.mark.parametrize("command", ["self", "cross"])
def test_one_text_gets_the_names_asked_for(tmp_path, monkeypatch, how, command):
    monkeypatch.chdir(tmp_path)
    text = "one two" if command == "self" else "one two\tthree"
    own = (*OWN[:1], "cross") if command == "cross" else OWN
    (tmp_path / "t.txt").write_text(f"{text}\n")
    given = {"file": ["-i", "t.txt"], "pipe": ["-"], "argument": text.split("\t")}[how]
    assert invoke(command, *given, *own, *ALL, stdin=text.encode()).status == 0
    pages = {path.name for path in tmp_path.iterdir()}
    assert pages == {"t.txt", "page.html", "map.png", "grid.svg"}


def test_one_good_text_of_several_keeps_its_number(tmp_path):
    file = tmp_path / "page.html"
    lines = b'{"text": "one two"}\n{"text": 5}\n'
    command = ["self", "--input", "jsonl:-", *OWN, "--html", str(file), "-f", "none"]
    assert invoke(*command, stdin=lines).status == 1
    assert [path.name for path in tmp_path.iterdir()] == ["page-0.html"]


def test_a_resumed_run_of_one_text_has_its_page_too(tmp_path, monkeypatch):
    texts, page = tmp_path / "t.txt", tmp_path / "page.html"
    texts.write_text("one two\n")
    command = ("self", "-i", texts, *OWN, "-o", tmp_path / "o.jsonl", "--html", page, "-f", "none")
    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "finish", interrupted)
        assert invoke(*command).status == 130
    assert (tmp_path / "page-0.html").exists()
    assert not page.exists()
    assert invoke(*command, "--resume").status == 0
    assert {path.name for path in tmp_path.iterdir()} == {"t.txt", "o.jsonl", "page.html"}


def interrupted(report: Outputs) -> None:
    raise KeyboardInterrupt


def test_open_shows_the_page_by_its_last_name(tmp_path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)) or True)
    file = tmp_path / "page.html"
    more = ("--html", str(file), "--open", "-f", "none")
    invoke("self", "-", *OWN, *more, stdin=b"one two\n")
    done = invoke("self", "-", *OWN, *more, stdin=b"one two\nthree four\n")
    assert opened == [file.as_uri(), (tmp_path / "page-0.html").as_uri()]
    assert "--open shows the first text" in done.err


def test_open_shows_the_file_or_a_temporary_one(tmp_path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)) or True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = tmp_path / "page.html"
    done = invoke("self", "one two", *OWN, "--html", str(file), "--open", "-f", "none")
    assert opened == [file.as_uri()]
    assert f"opened '{file}' in a browser" in done.err
    assert invoke("self", "one two", *OWN, "--html", str(file), "--open", "-q").err == ""
    assert opened.pop() == file.as_uri()
    assert invoke("self", "one two", *OWN, "--open", "-f", "none").status == 0
    shown = next(path for path in tmp_path.iterdir() if path.name.startswith("attnviz-"))
    assert opened[1] == shown.as_uri()
    assert document(shown.read_text("utf-8"))["texts"] == ["one two"]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    done = invoke("self", "one two", *OWN, "--html", str(file), "--open", "-f", "none")
    assert f"no browser was found: open '{file}'" in done.err
    assert done.status == 0


def test_temporary_pages_are_closed_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    counts = set()
    for _ in range(3):
        invoke("self", "one two", *OWN, "--open", "-f", "none")
        counts.add(sum(1 for _ in Path("/dev/fd").iterdir()))
    assert len(counts) == 1
    before = {*tmp_path.iterdir()}
    monkeypatch.setattr(PartialFile, "move", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        invoke("self", "one two", *OWN, "--open", "-f", "none")
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("self a --workers 2 --engine=ray --html p.html --resume", "self a --html p.html"),
        ("self --engine ray:auto --shard-size 2 -o o", "self --shard-size 2 -o o"),
        ("self -o o --workers=2 -- --workers 3", "self -o o -- --workers 3"),
        ("watch --html p.html prog.py --workers 3", "watch --html p.html prog.py --workers 3"),
    ],
)
def test_the_command_says_nothing_of_who_did_the_work(typed, kept, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/attnviz", *typed.split()])
    assert command_line() == f"attnviz {kept}"


def test_the_page_holds_the_command_that_made_it(tmp_path, monkeypatch):
    file = tmp_path / "page.html"
    arguments = ["self", "it's here", *OWN, "--html", str(file), "-f", "none"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/attnviz", *arguments])
    invoke(*arguments)
    command = document(file.read_text("utf-8"))["command"]
    assert command.startswith("attnviz self 'it'\"'\"'s here' --mechanism")


def test_wrong_places_of_pages_are_refused(tmp_path, monkeypatch):
    done = invoke("self", "one two", *OWN, "--html", str(tmp_path / "page.pdf"))
    assert done.status == 2
    assert done.mistake.endswith("page.pdf' must end in .html or .htm")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.html").write_text("one two\n")
    done = invoke("self", "-i", "txt:in.html", *OWN, "--html", "in.html")
    assert done.status == 2
    assert "'in.html' would replace 'in.html', which is read" in done.mistake


@pytest.mark.parametrize("mechanism", ["naive", "single-head", "scaled", "causal", "multi-head"])
def test_kept_queries_and_keys_give_the_weights(mechanism):
    result = attend("the cat sat on it", mechanism=f"{mechanism}:size=16", keep_qk=True)
    kept = result.projections[result.main.stream]
    scores = np.einsum("lhqd,lhkd->lhqk", kept.query, kept.key) * kept.scale
    if mechanism == "causal":
        scores = np.where(np.tri(5, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = powers / powers.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(result.weights, expected, atol=1e-5)


def test_keep_qk_follows_the_chosen_heads(tmp_path):
    file = tmp_path / "page.html"
    invoke("self", "a b c", *OWN, "--keep-qk", "--head", "1,3", "--html", file, "-f", "none")
    assert document(file.read_text("utf-8"))["maps"][0]["projections"]["size"] == 16
    invoke("self", "a b c", *OWN, "--keep-qk", "--reduce", "mean", "--html", file, "-f", "none")
    assert document(file.read_text("utf-8"))["maps"][0]["projections"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mechanism", "linear", "--open"), "has no scores that --keep-qk could explain"),
        (("--mechanism", "scaled"), "--keep-qk shows on the page only"),
    ],
)
def test_keep_qk_is_refused_where_nothing_is_kept(arguments, said):
    done = invoke("self", "a b", *arguments, "--keep-qk")
    assert done.status == 2
    assert said in done.mistake


def test_notebooks_and_blocks_have_pages():
    result = attend("the cat sat", mechanism="multi-head")
    shown = result._repr_html_()
    assert shown.startswith("<iframe ")
    assert 'height="680"' in shown
    assert 'sandbox="allow-scripts allow-downloads"' in shown
    assert result.page().startswith("<!doctype html>")

    tokens = (Token("a … b", 0, 3), Token("c … d", 4, 7))
    links = (Link("b", "c", 0.75, "0", "0", 1, 2),)
    item = AttentionMap(
        "self", tokens, tokens, np.full((1, 1, 2, 2), 0.5), blocks=(2, 2), links=links
    )
    found = document(page_html(Attention((item,), Provenance("file", "long"), "a b c d")))
    (shown,) = found["maps"]
    assert (shown["queries"]["block"], shown["links"]) == (2, [[[[1, "b", 2, "c", 0.75]]]])
    assert shown["measures"] == []


def test_a_picture_lies_under_its_patches():
    tokens = (Token("[CLS]", special=True), *patch_tokens(2, 3))
    item = AttentionMap(
        "encoder",
        tokens,
        tokens,
        np.full((1, 1, 7, 7), 1 / 7),
        query_side="image",
        key_side="image",
    )
    attention = Attention((item,), Provenance("hugging face", "vision"))
    patches = document(page_html(attention, picture={"encoder": b"\x89PNG..."}))["maps"][0][
        "patches"
    ]
    keys = patches["keys"]
    assert (keys["rows"], keys["columns"], keys["first"]) == (2, 3, 1)
    assert keys["image"].startswith("data:image/png;base64,")
    assert patches["queries"]["rows"] == 2


def test_image_writes_a_page_with_its_picture(tmp_path):
    folder = VISION_BUILDERS["vit"](tmp_path)
    shapes = Path(__file__).parents[2] / "sample_inputs" / "shapes.png"
    file = tmp_path / "page.html"
    done = invoke("image", shapes, "--model", folder, "--html", file, "-f", "none", "-q")
    assert (done.status, done.err) == (0, "")
    (item,) = document(file.read_text("utf-8"))["maps"]
    assert len(item["queries"]["tokens"]) == 17
    keys = item["patches"]["keys"]
    assert (keys["rows"], keys["columns"], keys["first"]) == (4, 4, 1)
    assert keys["image"].startswith("data:image/jpeg;base64,")
