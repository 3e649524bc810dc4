import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from attnviz.core.errors import UsageError
from attnviz.core.registry import PICTURES
from attnviz.features.compare.request import _pair_maps
from attnviz.runs.pipeline import load
from tests.invoke import attnviz

OWN = ("--mechanism", "multi-head:size=16")
TEXTS = ("the cat sat", "the dog sat")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maps")
    for name, seed in (("a", "0"), ("b", "1")):
        path = folder / f"{name}.npz"
        done = attnviz(
            "self",
            "the cat sat",
            "--mechanism",
            f"multi-head:size=16,seed={seed}",
            "-o",
            str(path),
            "-f",
            "none",
        )
        assert done.status == 0, done.err
    return folder


def test_a_line_a_head_and_the_changed_links():
    table, rows, found = (
        attnviz("compare", *TEXTS, *OWN, *how)
        for how in ((), ("-f", "tsv", "-q"), ("-f", "json", "-q"))
    )
    assert table.status == 0, table.err
    assert all(text in table.text for text in ("cat→dog", "layer 0 head 3", "nats"))
    assert rows.rows[0] == ["layer_a", "head_a", "layer_b", "head_b", "divergence_nats"]
    assert [row[:4] for row in rows.rows[1:]] == [["0", str(head)] * 2 for head in range(4)]
    document = found.json()
    assert (document["kind"], document["unit"]) == ("comparison", "nats")
    assert len(document["heads"]) == 4
    assert {"a", "b", "change"} <= set(document["links"][0])
    for asked, count in (((), 10), (("--top", "3"), 3)):
        found = json.loads(attnviz("compare", *TEXTS, *OWN, *asked, "-f", "json", "-q").text)
        assert len(found["links"]) == count


def test_a_saved_difference_says_what_both_sides_were(saved, tmp_path):
    out = tmp_path / "change.npz"
    a, b = saved / "a.npz", saved / "b.npz"
    assert attnviz("compare", str(a), str(b), "-o", str(out), "-q").status == 0
    (change,), (first,), (second,) = load(out), load(a), load(b)
    np.testing.assert_array_equal(change.weights, second.weights - first.weights)
    assert change.main.values == "signed"
    assert attnviz("render", str(out), "-f", "links", "-q").text.startswith(("the", "cat", "sat"))
    assert attnviz("compare", *TEXTS, *OWN, "-o", str(out), "-q").status == 0
    (change,) = load(out)
    assert (change.text, change.id, change.focus) == (TEXTS[0], "0", {})
    for note, side, text in zip(change.provenance.notes, "AB", TEXTS, strict=False):
        assert note.startswith(f"{side}: ")
        assert note.endswith(f"“{text}”")
    assert change.provenance.model == "B − A"
    assert change.provenance.steps[-1] == "difference B − A"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "title"),
    [
        ((), r"B − A · layer 0 head \d"),
        (("--head-a", "1", "--head-b", "2"), "B − A · layer 0 head 1→2"),
    ],
)
def test_a_picture_says_its_head_and_sides(saved, tmp_path, monkeypatch, head, title):
    drawn = []

    def spy(item, **texts):
        drawn.append((item, texts))
        return heatmap(item, **texts)

    heatmap = PICTURES["heatmap"].load()
    monkeypatch.setattr(f"{heatmap.__module__}.{heatmap.__name__}", spy)
    out, names = tmp_path / "h.svg", [str(saved / f"{name}.npz") for name in "ab"]
    grid = tmp_path / "g.svg"
    pictures = ("--heatmap", str(out), "--grid", str(grid))
    assert attnviz("compare", *names, *head, *pictures, "-f", "none").status == 0
    assert b"<svg" in grid.read_bytes()
    ((item, texts),) = drawn
    assert re.fullmatch(title, texts["title"])
    assert item.weights.shape == (1, 1, 3, 3)
    assert f"head {item.heads[0]}" in texts["title"]
    one, other = (" · head 1", " · head 2") if head else ("", "")
    most = "" if head else "the head that differs most of 4\n"
    subtitle = f"{most}A: .*{one} · “the cat sat”\nB: .*{other} · “the cat sat”"
    assert re.fullmatch(subtitle, texts["subtitle"])


def test_fail_above_exits_with_1_and_names_the_heads(saved):
    names = [str(saved / f"{name}.npz") for name in "ab"]
    failed = attnviz("compare", *names, "--fail-above", "0", "-f", "tsv", "-q")
    assert failed.status == 1
    assert len(failed.text.splitlines()) == 5
    assert "4 of 4 heads differ by more than 0 nats: layer 0 head" in failed.err
    assert attnviz("compare", *names, "--fail-above", "0.7", "-q").status == 0
    which = ("--head-a", "1", "--head-b", "2", "--fail-above", "0")
    done = attnviz("compare", str(saved / "a.npz"), *which)
    assert done.status == 1
    assert "nats: layer 0 head 1 → layer 0 head 2 (" in done.err
    assert "layer 0 head 1 → layer 0 head 2" in done.text


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (("the cat", *OWN), "A and B are the same", 2),
        (("nope.npz", "the cat"), "there is no file 'nope.npz'", 1),
        (("the cat", "the dog", *OWN, "-o", "x.parquet"), "end it in .txt, .json", 2),
        (("the cat", "the dog", *OWN, "--heatmap", "x.txt"), "names no picture", 2),
        (("the cat", "the dog", *OWN, "-f", "parquet"), "cannot hold what this command writes", 2),
        (("the cat", "the dog", *OWN, "--head-a", "9"), "head 9 does not exist", 2),
        (("the cat", "the dog", *OWN, "--head-a", "0"), "A has 1 × 1 layers and heads", 2),
        (("a", "b c d", *OWN), "no token in common", 1),
        (("the cat", " ", *OWN), "the text is empty", 1),
    ],
)
def test_mistakes_are_one_line(arguments, message, status):
    done = attnviz("compare", *arguments)
    assert done.status == status
    assert message in done.err
    assert done.err.count("\n") == 1
    assert done.out == b""


def test_more_heads_than_eight_that_differ_are_counted(tmp_path):
    for heads, more in ((8, ""), (9, " and 1 more"), (12, " and 4 more")):
        own = ("--mechanism", f"multi-head:size={4 * heads},heads={heads}")
        done = attnviz("compare", *TEXTS, *own, "--fail-above", "0", "-f", "none")
        assert done.status == 1
        assert f"{heads} of {heads} heads differ by more than 0 nats: " in done.err
        assert done.err.count("layer 0 head") == 8
        assert done.err.rstrip().endswith(f"){more}")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--layer", "layer 9 does not exist"),
        ("--layer-a", "layer 9 does not exist"),
        ("--layer-b", "layer 9 does not exist"),
        ("--head", "head 9 does not exist"),
        ("--head-b", "head 9 does not exist"),
    ],
)
def test_an_option_without_a_side_is_of_both(saved, option, message):
    names = [str(saved / f"{name}.npz") for name in "ab"]
    done = attnviz("compare", *names, option, "9")
    assert done.status == 2
    assert message in done.err


@pytest.mark.parametrize("option", ["--model", "--model-a", "--model-b"])
def test_a_model_is_of_both_sides_or_of_its_own(option):
    done = attnviz("compare", *TEXTS, option, "./no-such-model")
    assert done.status != 0
    assert "./no-such-model" in done.err


@pytest.mark.parametrize(
    ("sides", "options", "message"),
    [
        (("a.npz", "b.npz"), ("--model", "x"), "--model is for a model, and A and B are saved"),
        (("a.npz", "b.npz"), ("--device", "cpu"), "--device is for a model, and A and B are saved"),
        (("a.npz", "b.npz"), ("--model-b", "x"), "--model-b names a model, and B is saved"),
        (("a.npz", "the cat"), ("--adapter-a", "x"), "--adapter-a names a model, and A is saved"),
    ],
)
def test_what_is_saved_takes_no_model(saved, sides, options, message):
    given = [str(saved / one) if one.endswith(".npz") else one for one in sides]
    done = attnviz("compare", *given, *options)
    assert (done.status, done.mistake) == (2, f"{message}: leave it out")


def streams(*names):
    maps = [SimpleNamespace(stream=name) for name in names]
    return SimpleNamespace(main=maps[0], maps=maps)


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (("cross", "encoder"), ("encoder", "cross"), 1),
        (("self",), ("encoder", "cross"), 0),
        (("cross", "encoder"), ("self",), 0),
        (("self",), ("causal",), 0),
    ],
)
def test_maps_of_one_stream_or_alone_are_compared(first, second, place):
    a, b = streams(*first), streams(*second)
    assert _pair_maps(a, b) == (a.main, b.maps[place])


def test_streams_that_only_one_side_has_are_refused():
    with pytest.raises(UsageError, match="B has no stream 'cross': it has encoder, decoder;"):
        _pair_maps(streams("cross", "self"), streams("encoder", "decoder"))
