import json

import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.invoke import attnviz

OWN = ("--mechanism", "multi-head:size=16", "-q")
TEXT = "The old bridge was closed. Nobody knew."
WORDS = ["The", "old", "bridge", "was", "closed", ".", "Nobody", "knew", "."]


def test_links_come_strongest_first_and_groups_by_file(tmp_path):
    done = attnviz("self", TEXT, *OWN, "-f", "links", "--top", "5")
    assert done.status == 0, done.err
    lines = done.text.splitlines()
    weights = [float(line.split(" layer ")[0].rsplit(" ", 1)[1]) for line in lines]
    assert (len(lines), weights) == (5, sorted(weights, reverse=True))
    assert all(" → " in line and " head " in line for line in lines)
    path = tmp_path / "groups.txt"
    path.write_text("The old bridge\nNobody knew\n")
    done = attnviz("self", TEXT, *OWN, "--group", str(path), "-f", "json")
    (item,) = json.loads(done.text)["maps"]
    found = [token["text"] for token in item["key_tokens"]]
    assert found == ["The old bridge", "was", "closed", ".", "Nobody knew", "."]


def test_where_no_link_has_any_weight_a_note_says_so(tmp_path):
    path = tmp_path / "eye.json"
    path.write_text(json.dumps({"attention": [[[[1, 0], [0, 1]]]], "tokens": ["a", "b"]}))
    done = attnviz("render", path, "-f", "links")
    assert (done.status, done.text) == (0, "")
    assert done.err == "note: no link between two tokens has any weight: -f links lists none\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "suffix"),
    [
        (("self", TEXT, *OWN), ".svg"),
        (("cross", "a b", "c d e", *OWN), ".png"),
        (("cross", "a b", "c d e", "--mechanism", "co", "-q"), ".pdf"),
    ],
)
def test_links_are_drawn_for_every_command(tmp_path, arguments, suffix):
    path = tmp_path / f"links{suffix}"
    done = attnviz(*arguments, "-f", "none", "--picture", str(path))
    assert done.status == 0, done.err
    start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(start)


def test_a_saved_map_is_drawn_as_links_too(tmp_path):
    saved, path = tmp_path / "map.npz", tmp_path / "links.svg"
    assert attnviz("self", TEXT, *OWN, "-f", "none", "-o", str(saved)).status == 0
    assert attnviz("render", str(saved), "-f", "none", "-q", "--picture", str(path)).status == 0
    assert b"<svg" in path.read_bytes()


@pytest.mark.parametrize("name", ["heatmap", "grid"])
@pytest.mark.parametrize("columns", [30, 50, 80])
def test_pictures_in_text_follow_the_width(monkeypatch, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    done = attnviz("self", TEXT, *OWN, "-f", name)
    assert done.status == 0, done.err
    assert max(cell_len(line) for line in done.text.splitlines()) <= columns
    assert "share of a row's attention" in done.text.replace("\n", " ")


def test_colour_is_forced_and_refused(monkeypatch):
    assert "\x1b[" not in attnviz("self", TEXT, *OWN, "-f", "heatmap").text
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = attnviz("self", TEXT, *OWN, "-f", "heatmap").text
    assert "▀" in colored
    assert "▀" in Text.from_ansi(colored).plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in attnviz("self", TEXT, *OWN, "-f", "heatmap").text


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        (("--words",), WORDS),
        (("--group", "words"), WORDS),
        (("--group", "sentences"), ["The old bridge was closed.", "Nobody knew."]),
    ],
)
def test_groups_keep_the_sums_of_rows(options, tokens):
    done = attnviz("self", TEXT, *OWN, *options, "-f", "json")
    (item,) = json.loads(done.text)["maps"]
    assert [token["text"] for token in item["key_tokens"]] == tokens
    for head in item["weights"][0]:
        assert [sum(row) for row in head] == pytest.approx([1.0] * len(tokens), abs=1e-5)
    steps = json.loads(done.text)["provenance"]["steps"]
    assert steps == [f"grouped by {options[-1].removeprefix('--')}"]


@pytest.mark.parametrize("option", ["--heatmap", "--picture"])
def test_a_picture_of_one_of_several_layers_says_so(tmp_path, option):
    says = "the picture shows layer 1 of the chosen 1 and 2: --grid shows every one"
    for layers, expected in (("1,2", True), ("1", False)):
        file = tmp_path / "one.svg"
        done = attnviz("self", TEXT, "--layer", layers, option, file, "-f", "none", "--overwrite")
        assert done.status == 0, done.err
        assert (says in done.err) is expected
