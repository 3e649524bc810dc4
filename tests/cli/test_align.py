from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnviz.cli.app import run

OWN = ["--mechanism", "cross"]
PAIRS = "a b\tx y z\n\nc ||| z\nno target\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text(PAIRS)
    return file


def cross(arguments: list[str]) -> int:
    return run(["cross", *arguments, *OWN])


def test_every_line_of_output_stays_beside_its_pair(
    pairs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_one_pair_gives_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert cross(["a b", "x", "-f", "pharaoh"]) == 0
    printed, said = capfd.readouterr()
    assert printed in ("0-0\n", "1-0\n")
    assert "untrained" in said


def test_a_gold_file_scores_every_head(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold = tmp_path / "gold"
    gold.write_text("0-0 1?0\n")
    assert cross(["a b", "x", "--score", str(gold), "--heads", "2"]) == 0
    header, chosen, *heads = capfd.readouterr().out.splitlines()
    assert header.split() == ["layer", "head", "precision", "recall", "alignment_error"]
    assert chosen.startswith("as asked")
    assert len(heads) == 2
    assert all(row.split()[2] == "1.000" for row in heads)  # both links are possible


def test_scores_are_numbers_in_json_and_have_three_digits_elsewhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gold = tmp_path / "gold"
    gold.write_text("0-0 1-1 2-2\n")
    found = []
    for form in ("json", "tsv"):
        assert cross(["a b c", "x y z", "--score", str(gold), "-f", form]) == 0
        found.append(capfd.readouterr().out)
    rows = json.loads(found[0])
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
def test_a_gold_file_that_does_not_fit_is_refused(
    gold: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gold"
    file.write_text(gold)
    assert cross(["a b", "x", "--score", str(file)]) == 1
    assert message in capfd.readouterr().err


def test_misspelt_values_are_usage_errors(capfd: pytest.CaptureFixture[str]) -> None:
    assert cross(["a", "b", "-f", "pharaoh", "--symmetrize", "unoin"]) == 2
    assert "Did you mean 'union'" in capfd.readouterr().err
    assert cross(["a", "b", "-f", "pharaoh", "--against", "outptu"]) == 2
    assert "Did you mean 'output'" in capfd.readouterr().err


def test_links_go_to_a_file_whole(tmp_path: Path, pairs: Path) -> None:
    file = tmp_path / "links.txt"
    assert cross(["--input", str(pairs), "-f", "pharaoh", "-o", str(file)]) == 1
    assert file.read_text().count("\n") == 4
