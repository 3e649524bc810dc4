import json
from pathlib import Path

import pytest

from attnviz.cli.app import run
from tests.invoke import attnviz

OWN = ["--mechanism", "cross"]
PAIRS = "a b\tx y z\n\nc ||| z\nno target\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text(PAIRS)
    return file


def cross(arguments: list[str]) -> int:
    return run(["cross", *arguments, *OWN])


def test_every_line_of_output_stays_beside_its_pair(pairs, capfd):
    assert cross(["--input", str(pairs), "-f", "pharaoh", "--symmetrize", "forward"]) == 1
    printed, said = capfd.readouterr()
    lines = printed.split("\n")
    assert len(lines) == 5
    assert len(lines[0].split()) == 3  # a link for each of three target words
    assert lines[1] == ""
    assert lines[2] == "0-0"
    assert lines[3] == ""
    assert "line 2 of" in said
    assert "line 4 of" in said


def test_a_gold_file_scores_every_head(tmp_path, capfd):
    gold = tmp_path / "gold"
    gold.write_text("0-0 1?0\n")
    own = ["--mechanism", "multi-head:heads=2"]
    assert run(["cross", "a b", "x", "--score", str(gold), *own]) == 0
    header, chosen, *heads = capfd.readouterr().out.splitlines()
    assert header.split() == ["layer", "head", "precision", "recall", "alignment_error"]
    assert chosen.startswith("as asked")
    assert len(heads) == 2
    assert all(row.split()[2] == "1.000" for row in heads)  # both links are possible
    gold.write_text("0-0 1-1 2-2\n")
    found = []
    for form in ("json", "tsv"):
        assert cross(["a b c", "x y z", "--score", str(gold), "-f", form]) == 0
        found.append(capfd.readouterr().out)
    rows = json.loads(found[0])["rows"]
    lines = [line.split("\t") for line in found[1].splitlines()]
    names = lines[0][2:]
    for row, line in zip(rows, lines[1:], strict=True):
        assert all(isinstance(row[name], float) for name in names)
        assert [f"{row[name]:.3f}" for name in names] == line[2:]
    assert any(row["recall"] in (1 / 3, 2 / 3) for row in rows)


@pytest.mark.parametrize(
    ("gold", "message"),
    [("0:0\n", "line 1 of"), ("0-0\n0-0\n", "has 2 lines for 1 pairs"), ("", "fewer than")],
)
def test_a_gold_file_that_does_not_fit_is_refused(gold, message, tmp_path, capfd):
    file = tmp_path / "gold"
    file.write_text(gold)
    assert cross(["a b", "x", "--score", str(file)]) == 1
    assert message in capfd.readouterr().err


def test_misspelt_values_are_usage_errors(capfd):
    for option, value in (("--symmetrize", "union"), ("--against", "output")):
        assert cross(["a", "b", option, value]) == 2
        assert f"{option} is for word alignments: add -f pharaoh or" in capfd.readouterr().err
    assert cross(["a", "b", "-f", "pharaoh", "--symmetrize", "unoin"]) == 2
    assert "Did you mean 'union'" in capfd.readouterr().err
    assert cross(["a", "b", "-f", "pharaoh", "--against", "outptu"]) == 2
    assert "Did you mean 'output'" in capfd.readouterr().err


@pytest.mark.parametrize(("name", "printed"), [("pharaoh", b"\n\n"), ("json", None)])
def test_where_no_pair_could_be_aligned_the_old_file_stays(tmp_path, name, printed):
    pairs, links = tmp_path / "pairs.tsv", tmp_path / "links.txt"
    pairs.write_text("no target\nnone here either\n")
    links.write_text("0-0 1-1\n")
    done = attnviz("align", pairs, "-o", links, "-f", name, "--overwrite")
    assert done.status == 1
    assert links.read_text() == "0-0 1-1\n"
    assert f"'{links}' is left as it was: every record failed" in done.err
    if printed is None:
        assert [pair["links"] for pair in done.json()] == [None, None]
    else:
        assert done.out == printed
    pairs.write_text("no target\nThe dog sleeps.\tLe chien dort.\n")
    assert attnviz("align", pairs, "-o", links, "-f", "none", "--overwrite").status == 1
    assert links.read_text() == "\n0-0 1-1 2-2\n"


@pytest.mark.slow
def test_lines_have_scores_and_unreliable_ones_are_named(tmp_path):
    pairs, file = tmp_path / "pairs.tsv", tmp_path / "links.json"
    lines = [
        "The dog sleeps on the sofa.\tLe chien dort sur le canapé.",
        "Der Hund schläft heute auf dem Sofa.\tLe chien dort sur le canapé.",
        "The dog sleeps.\tLe chien dort.",
        f"{'It is late and I am tired. ' * 8}\tIl est tard et je suis fatigué.",
    ]
    pairs.write_text("\n".join(lines), encoding="utf-8")
    done = attnviz("align", pairs, "-o", file)
    assert done.text == "".join(f"{line}\n" for line in done.lines)
    assert len(done.lines) == 4
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [pair["reliable"] for pair in found] == [True, False, True, False]
    assert found[0]["score"] > 0.8
    assert found[1]["score"] < found[0]["score"]
    assert "its language is unknown" in found[1]["notes"][0]
    assert "2 of 4 pairs are unreliable" in done.err
    assert "the target lies outside" not in done.err
    assert f": line 2, line 4 of '{pairs}'\n" in done.err
    rows = attnviz("align", pairs, "-f", "tsv").rows
    assert rows[0][-1] == "score"
    assert float(rows[1][-1]) == found[0]["score"]
