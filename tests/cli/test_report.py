"""What every command's report has in common: formats, files, notes."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnviz.core.registry import COMMANDS
from tests.invoke import OWN, attnviz

ROOT = Path(__file__).parents[2]
TEXT = "The cat sat"
RUNS: dict[str, tuple[Any, ...]] = {
    "self": ("self", TEXT, *OWN),
    "cross": ("cross", TEXT, "Le chat", *OWN),
    "heads": ("heads", TEXT, *OWN),
    "corpus": ("heads", "--input", ROOT / "sample_inputs" / "sentences.txt", *OWN),
    "compare": ("compare", TEXT, "The dog sat", *OWN),
    "lenses": ("ablate", TEXT, "--lenses"),
    "why": ("why", TEXT),
    "wiring": ("heads", TEXT, "--wiring"),
    "explain": ("explain", TEXT),
    "sources": ("sources", TEXT, "--context", ROOT / "sample_inputs" / "sentences.txt"),
    "cache": ("cache", TEXT, "--keep", "tova:2"),
    "ablate": ("ablate", TEXT, "Le chat", "--head", "0.0"),
    "align": ("align", ROOT / "sample_inputs" / "pairs.tsv"),
    "steps": ("steps",),
    "lesson": ("lesson", "scaling"),
    "models": ("models",),
}
every_command = pytest.mark.parametrize("command", RUNS)


def test_no_command_is_left_out():
    # Pictures, recordings and late interaction need models (test_image.py, …), saved maps a run
    # before (test_render.py, …), and the stdout of what is watched is its own (test_watch.py); live
    # answers until it is ended (tests/features/live), and browse needs a terminal
    # (tests/features/browse).
    assert {
        *(run[0] for run in RUNS.values()),
        "audio",
        "browse",
        "examples",
        "image",
        "live",
        "match",
        "render",
        "watch",
    } == {*COMMANDS}


@every_command
def test_stdout_and_files_hold_the_same_or_nothing(command, tmp_path):
    path = tmp_path / "found.json"
    done = attnviz(*RUNS[command], "-f", "json", "-o", path, "-q")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == json.loads(path.read_bytes())
    done = attnviz(*RUNS[command], "-f", "none", "--verbose")
    assert (done.status, done.out) == (0, b"")
    assert " in 0." in done.err or " s\n" in done.err


@every_command
def test_formats_of_other_data_are_refused(command):
    name = "pharaoh" if command not in ("cross", "align") else "heatmap"
    gold = ROOT / "sample_inputs" / "pairs.gold"
    arguments = (*RUNS[command], "--score", gold) if command == "cross" else RUNS[command]
    done = attnviz(*arguments, "-f", name)
    assert done.status == 2
    assert done.mistake.startswith(f"format '{name}' cannot hold ")
    assert "choose from " in done.mistake
    done = attnviz(*RUNS[command], "-o", "found.doc")
    assert (done.status, "names no data format: end it in" in done.mistake) == (2, True)


def test_links_of_words_are_data_in_every_format():
    pair = ("cross", "a b", "x", "-q", *OWN, "--symmetrize", "forward")
    (document,) = [attnviz(*pair, "-f", "pharaoh").text]
    source, target = (int(place) for place in document.split("-"))
    rows = attnviz("align", "-", "-q", "-f", "tsv", stdin=b"the cat\tle chat\n").rows
    sides = ["source_position", "source_word", "target_position", "target_word"]
    assert rows[0] == ["id", *sides, "score"]
    assert rows[2][:5] == ["0", "1", "cat", "1", "chat"]
    assert (source in (0, 1), target) == (True, 0)
    listed = attnviz("align", "-", "-q", "-f", "json", stdin=b"the cat\tle chat\n\n").json()
    assert (listed[0]["id"], listed[0]["links"]) == ("0", [[0, 0], [1, 1]])
    assert listed[1]["links"] is None
