import json

import pytest

from attnviz.cli.app import run


def test_without_a_file_an_example_or_a_sentence_is_worked(capfd):
    assert run(["steps"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("worked example · scaled dot-product attention")
    assert err == ""
    assert run(["steps", "The cat sat", "--mechanism", "scaled:size=8,seed=3", "-f", "json"]) == 0
    steps = json.loads(capfd.readouterr().out)
    assert "untrained" in steps["title"]
    options = ["--mechanism", "scaled:size=8,seed=3", "-f", "json"]
    assert run(["self", "The cat sat", *options]) == 0
    weights = json.loads(capfd.readouterr().out)["maps"][0]["weights"][0][0]
    for row, expected in zip(steps["weights"], weights, strict=True):
        assert row == pytest.approx(expected, abs=1e-6)
    assert run(["steps", "word " * 100, "-f", "none"]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ["matrices.jsn"],
            1,
            "there is no file 'matrices.jsn'; to attend over a sentence, use --t",
        ),
        (["my matrices.json"], 1, "there is no file 'my matrices.json'"),
        (["."], 1, "'.' is a folder"),
        ([" "], 1, "the sentence is empty"),
        ([""], 1, "the sentence is empty"),
        (["--text", ""], 2, "--text is empty"),
        (["a b", "--text", "c"], 2, "give either --text or an argument"),
        (["-f", "jsn"], 2, "Did you mean 'json'?"),
        (["--mechanism", "scaled:size=4"], 2, "size=4 is for a sentence"),
        (["-o", "out.csv"], 2, "'out.csv' names no data format: end it in .txt, .json"),
        (["--picture", "nowhere/a.png"], 1, "there is no folder 'nowhere'"),
        (["--diagram", "-f", "json"], 2, "both want stdout"),
    ],
)
def test_a_mistake_is_one_line(arguments, status, message, capfd):
    assert run(["steps", *arguments]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_files_and_stdout_come_from_one_run(tmp_path, capfd):
    data, picture = tmp_path / "a.npz", tmp_path / "a.png"
    assert run(["steps", "--causal", "-o", str(data), "--picture", str(picture), "--diagram"]) == 0
    assert "flowchart TD" in capfd.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run(["steps", str(data), "-f", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["mask"][0] == [True, False, False]
