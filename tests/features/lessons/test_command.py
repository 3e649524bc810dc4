import csv

import pytest

from attnviz.cli.app import run
from attnviz.features.lessons import LESSONS
from tests.invoke import attnviz


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["maskng"], 2, "Did you mean 'masking'?"),
        (["scaling", "-f", "jsn"], 2, "Did you mean 'json'?"),
        (
            ["scaling", "--length", "5"],
            2,
            "--length means nothing to lesson 'scaling', which takes",
        ),
        (["positions", "--length", "1"], 2, "--length 1 is outside 2 to 2048"),
        (["masking", "--text", " "], 1, "the text is empty"),
        (["positions", "--picture", "a.gif"], 2, "'a.gif' names no picture: end it in .png, .svg"),
        (["positions", "--picture", "nowhere/a.png"], 1, "there is no folder 'nowhere'"),
        (["--picture", "a.png"], 2, "this result has no picture 'plot'"),  # the list of lessons
        (["--html", "a.html"], 2, "this result has no page: leave --html and --open out"),
        (["--length", "5"], 2, "--length is for one lesson: name it, of positions"),
    ],
)
def test_a_mistake_is_one_line(arguments, status, message, capfd):
    assert run(["lesson", *arguments]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_a_picture_is_written_beside_the_table(tmp_path, capfd):
    path = tmp_path / "a.svg"  # of the other suffixes tests/renderers has all pictures
    assert run(["lesson", "positions", "--size", "8", "--length", "9", "--picture", str(path)]) == 0
    assert path.read_bytes().startswith(b"<?xml")
    assert "9 positions in 8 columns" in capfd.readouterr().out


def test_lessons_are_listed_and_csv_is_for_programs(capfd):
    assert run(["lesson", "masking", "--text", "a b", "-f", "csv"]) == 0
    rows = list(csv.DictReader(capfd.readouterr().out.splitlines()))
    assert [row["query"] for row in rows] == ["a", "b"]
    assert float(rows[0]["causal_entropy"]) == 0
    done = attnviz("lesson")
    assert done.status == 0
    assert [line.split()[0] for line in done.lines] == [*LESSONS]
