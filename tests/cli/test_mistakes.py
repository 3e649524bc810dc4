"""What is asked wrongly is told in one line, with what was meant, and status 2."""

import re

import pytest

from attnviz.cli.app import OLD_NAMES, build_command
from attnviz.core.options import FORMER
from attnviz.core.registry import COMMANDS
from tests.invoke import OWN, attnviz


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mechanism", "multi-hed"], "unknown mechanism 'multi-hed': choose from naive, "),
        (["--mechanism", "multi-hed"], "Did you mean 'multi-head'?"),
        (["--mechanism", "cross"], "'cross' is not for 'self': use 'attnviz cross --mechanism cr"),
        (["--mechanism", "co-parallel"], "use 'attnviz cross --mechanism co-parallel'"),
        ([*OWN, "-f", "jsn"], "unknown value 'jsn' for --format: choose from table, json, "),
        ([*OWN, "-f", "jsn"], "Did you mean 'json'?"),
        ([*OWN, "--layer", "3"], "layer 3 does not exist: multi-head (self) has 1 layer, 0"),
        ([*OWN, "--head", "1,9"], "head 9 does not exist: multi-head (self) has 4 heads, 0 to 3"),
        ([*OWN, "--head", "2-5"], "head 5 does not exist"),
        ([*OWN, "--head", "x"], "--head 'x' names no head: write 0, 2,5 or 0-3, last or all"),
        ([*OWN, "--head", "3-1"], "--head '3-1' names no head"),
        ([*OWN, "--head", "-1"], "--head '-1' names no head"),
        ([*OWN, "--layer", ""], "--layer is empty: give a value, or leave it out"),
        ([*OWN, "--stream", "sel"], "unknown stream 'sel': choose from self. Did you mean 'self'?"),
        ([*OWN, "--reduce", "men"], "Did you mean 'mean'?"),
        ([*OWN, "--device", "cpuu"], "Did you mean 'cpu'?"),
        ([*OWN, "--dtype", "float"], "choose from float32, float64, float16, bfloat16"),
        (["--mechanism", "multi-head:heads=5"], "size=64 cannot be split into heads=5 of one size"),
        (["--mechanism", "scaled:size=0"], "size=0 is no whole number from 1 to 1,000,000,000"),
        (["--mechanism", "scaled:size=x"], "size=x is no whole number"),
        (["--mechanism", "scaled:size"], "size= is no whole number"),
        (["--mechanism", "scaled:seed=-1"], "seed=-1 is no whole number from 0 to 18,446,744"),
        (["--mechanism", f"scaled:seed={2**64}"], f"seed={2**64} is no whole number"),
        (["--mechanism", "scaled:"], "has '': write scaled:heads=N,size=N,seed=N, or some"),
        (["--mechanism", "scaled:seeds=1"], "has 'seeds=1': write scaled:heads=N,size=N,seed=N"),
        (["--mechanism", "scaled:seeds=1"], "Did you mean 'seed'?"),
        (["--mechanism", "scaled:seed=1,seed=1"], "has 'seed' twice"),
        (["--mechanism", "scaled:heads=2"], "mechanism 'scaled' has one head"),
        ([*OWN, "--haed", "2"], "unknown option '--haed'. Did you mean '--head'?"),
        ([*OWN, "-Z"], "unknown option '-Z'. --help-all lists them"),
        ([*OWN, "--head"], "option '--head' requires an argument"),
        ([*OWN, "-o", "x.jsno"], "'x.jsno' names no data format: end it in .txt, .json, "),
        ([*OWN, "-o", "x.jsno"], "Did you mean '.json'?"),
        ([*OWN, "-o", "x"], "'x' names no data format"),
        ([*OWN, "--heatmap", "x.pgn"], "'x.pgn' names no picture: end it in .png, .svg, .pdf"),
        ([*OWN, "--grid", "a.png", "--heatmap", "a.png"], "two outputs go to the same file"),
    ],
)
def test_a_misspelt_option_is_told_in_one_line(arguments, message):
    done = attnviz("self", "a b c", *arguments)
    assert done.status == 2
    assert message in done.mistake


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slef", "a"], "unknown command 'slef': choose from self, cross, image, "),
        (["slef", "a"], "Did you mean 'self'?"),
        (["--bogus"], "unknown option '--bogus'"),
        (["cross", "a", "b", "--mechanism", "co-paralel"], "Did you mean 'co-parallel'?"),
        (["self", "a", "--mechanism", "co"], "'co-parallel' is not for 'self'"),
        (["cross", "a", "b", "--mechanism", "causal"], "use 'attnviz self --mechanism causal'"),
        (["cross", "a", "b", "c", *OWN], "unexpected extra argument"),
        (["cross", "-", "b", *OWN], "- reads every text from stdin and stands alone"),
        (["self", "-", "a", *OWN], "- reads every text from stdin and stands alone"),
        (["render"], "missing argument 'file'"),
    ],
)
def test_a_misspelt_command_is_told_in_one_line(arguments, message):
    done = attnviz(*arguments)
    assert done.status == 2
    assert message in done.mistake


def test_a_former_command_says_its_new_name():
    assert OLD_NAMES
    for name, now in OLD_NAMES.items():
        done = attnviz(name, "a")
        assert (done.status, done.mistake) == (2, f"'attnviz {name}' is 'attnviz {now}' now")
        new = now.split()[0]
        assert new in COMMANDS or new in ("--guide", "--schema")
        assert name not in COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_and_help(command):
    assert "unknown option '--nonsense'" in attnviz(command, "--nonsense").mistake
    done = attnviz(command, "--help")
    assert (done.status, done.err) == (0, "")
    assert f"attnviz {command}" in done.text


def test_the_help_is_shown_and_nothing_raw_or_too_long():
    done = attnviz()
    assert (done.status, done.err) == (2, "")
    assert "Usage: attnviz" in done.text
    done = attnviz("self", "a", "--stream", "\x1b[31m\u202e", *OWN)
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
    assert "␛[31m" in done.mistake
    done = attnviz("self", "a b", "--mechanism", "x" * 50_000)
    assert done.status == 2
    assert len(done.mistake) < 3000
    assert done.mistake.startswith("unknown mechanism 'xxx")
    assert "xxx … xxx" in done.mistake
    assert done.mistake.endswith("co-two-stream.")


def test_memory_and_bugs(monkeypatch):
    from attnviz.models.own import SeededEmbedding

    def exhaust(*_: object) -> None:
        raise MemoryError("Unable to allocate 298. GiB")

    monkeypatch.setattr(SeededEmbedding, "draw", exhaust)
    done = attnviz("self", "a", *OWN)
    assert done.status == 1
    assert done.mistake.startswith("not enough memory (Unable to allocate 298. GiB)")


def test_a_bug_keeps_its_traceback(monkeypatch):
    from attnviz.models.own import OwnLayer

    monkeypatch.setattr(OwnLayer, "_attend_one", lambda self, query: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        attnviz("self", "a", *OWN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (("self", "a", "b", "c"), "3 texts of one word each: quote a sentence"),
        (("self", "t.txt"), "'t.txt' is read as text and is also a file: --input t.txt"),
        (("cross", "The cat"), "no target was given: the model wrote it"),
    ],
)
def test_what_may_be_a_slip_is_noted(tmp_path, monkeypatch, arguments, note):
    (tmp_path / "t.txt").write_text("The cat\n")
    monkeypatch.chdir(tmp_path)
    done = attnviz(*arguments)
    assert (done.status, f"note: {note}" in done.err) == (0, True), done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("watch", "python3", "x.py"), "there is no script 'python3': leave 'python3' out"),
        (("self", "a b", "--qqi", "3"), "unknown option '--qqi'. --help-all lists them"),
        (("self", "a b", "--special", "remove"), "unknown value of --special 'remove'"),
    ],
)
def test_a_mistake_is_answered_with_what_helps(arguments, message):
    assert attnviz(*arguments).mistake.startswith(message)


EXCLUSIVE = """
self a    | --model m             | --mechanism linear
self a    | --model m             | --weights w.npz
self a    | --mechanism linear    | --qk w.npz
self a    | --mechanism linear    | --rows 1-2
self a    | --mechanism linear    | --max-size 9
self a    | --mechanism linear    | --generate 3
self a    | --mechanism linear    | --chat
self a    | --mechanism linear    | --adapter m
self a    | --mechanism linear    | --device spread
self a    | --weights w.npz       | --channels 3
self a    | --weights w.npz       | --keep-qk
self a    | --mechanism linear    | --pair b
self a    | --input t.txt         | --pair b
self a --model m | --rows 1-2     | --window 1-2
self a    | --head 2.3            | --layer 2
self a    | --words               | --group sentences
self a    | --lens norm           | --keep-qk
self a    | --lens rollout        | --target a
cross a b | -f pharaoh            | --heatmap a.png
cross a b | -f pharaoh            | --lens rollout
cross a b | -f pharaoh            | --top 3
cross a b | --score gold          | --html a.html
heads a   | --similar             | --role induction
heads a   | --similar             | --sort entropy
heads     | --treebank t.conllu   | --input t.txt
heads     | --treebank t.conllu   | --similar
heads     | --treebank t.conllu   | --effect
ablate a  | --each heads          | --head 2.0
ablate a  | --each heads          | --layer 2
ablate a  | --each heads          | --link a>b
ablate a  | --each heads          | --token a
ablate a  | --each tokens         | --picture grid:a.png
ablate a  | --each heads          | --picture highlight:a.png
ablate a  | --by zero             | --reference t.txt
audio a   | --word-times          | --heatmap a.png
audio a   | --word-times          | --open
audio a   | --word-times          | --head 2.0
audio a   | --word-times          | --words
audio a   | --word-times          | --layer 1
audio a   | --times t.tsv         | --picture a.png
image a   | --patch all           | --picture a.png
image a   | --patch all           | --grid a.png
image a   | --patch 0,0           | --lens gradient
image a   | --text a              | --patch 0,0
image a   | --text a              | --image-size 9
image a   | --text a              | --lens norm
steps     | --text a              | --example self
steps     | --diagram             | -f json
steps a   | --model pocket        | --mechanism linear
steps a   | --model pocket        | --mask 1
steps a   | --model pocket        | --padding 1
steps a   | --model pocket        | --example self
steps     | --model pocket        | --picture a.png
steps     | --mechanism co-parallel | --picture a.png
watch a   | --rows 1-2            | --window 1-2
models    | --check m             | pocket
"""


@pytest.mark.parametrize("row", EXCLUSIVE.strip().splitlines())
def test_a_conflict_names_both_options(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *pair = (part.split() for part in row.split("|"))
    if row.startswith("watch"):
        command, pair = command[:1], [*pair, ["a.py"]]
        (tmp_path / "a.py").touch()
    if row.startswith(("audio", "image")):
        command += ["--model", "m"]
    done = attnviz(*command, *pair[0], *pair[1], *(word for more in pair[2:] for word in more))
    assert done.status == 2
    for option in pair[:2]:
        assert option[0] in done.mistake, done.mistake


@pytest.mark.parametrize("option", FORMER)
def test_a_former_option_says_what_it_is_now(option):
    successor, asked = re.search("--[a-z-]+", FORMER[option]), 0
    for command in COMMANDS:
        names = {one for item in build_command(command).params for one in item.opts}
        if option not in names and (not successor or successor[0] in names):
            done = attnviz(command, option, "x")
            assert (done.status, done.mistake) == (2, f"{option} {FORMER[option]}"), command
            asked += 1
    assert asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ablate", "a", "--grid", "a.png"), "--grid is now --picture grid:FILE"),
        (("heads", "a", "--grid", "a.png"), "unknown option '--grid'"),
        (("heads", "a", "--picture", "scater:a.png"), "Did you mean 'scatter'?"),
        (("heads", "a", "--picture", "scatter:"), "names no file: write scatter:FILE once"),
        (("heads", "a", "--picture", "a.png", "--picture", "b.png"), "two files for overview"),
        (("heads", "a", "--picture", "x/b:c.txt"), "'x/b:c.txt' names no picture"),
        (("heads", "a", "--picture", "a.gif"), "'a.gif' names no picture"),
    ],
)
def test_a_picture_that_is_not_drawn_is_told(arguments, message):
    done = attnviz(*arguments)
    assert (done.status, message in done.mistake) == (2, True), done.err
