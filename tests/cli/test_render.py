"""A saved map goes through every output as the fresh one did."""

import json

import pytest

from attnviz.renderers.reports import formats_of
from tests.invoke import OWN, attnviz

TEXTS = ("The cat sat.", "A dog ran")


@pytest.mark.parametrize(
    ("saved_as", "name"),
    [
        *(("npz", name) for name in formats_of("maps")),
        *((name, shown) for name in ("parquet", "json", "jsonl") for shown in ("npz", "table")),
    ],
)
@pytest.mark.slow
@pytest.mark.core
def test_a_pipe_gives_what_a_direct_run_gives(saved_as, name):
    for texts in (TEXTS[:1], TEXTS):
        saved = attnviz("self", *texts, *OWN, "-f", saved_as).out
        assert attnviz("render", "-", "-f", name, stdin=saved) == attnviz(
            "self", *texts, *OWN, "-f", name
        )


def test_choices_and_labels_can_come_later():
    saved = attnviz("self", TEXTS[0], *OWN, "-f", "npz").out
    for choice in (("--head", "1,3"), ("--reduce", "mean"), ("--reduce", "max:heads")):
        later = attnviz("render", "-", *choice, "-f", "json", stdin=saved)
        assert later == attnviz("self", TEXTS[0], *OWN, *choice, "-f", "json")
    saved = attnviz("self", "John ran", *OWN, "-f", "json").out
    done = attnviz("render", "-", "--labels", "B-PER O", "-q", stdin=saved)
    assert done.out == attnviz("self", "John ran", *OWN, "--labels", "B-PER O").out


def test_a_picture_of_a_saved_map_is_that_of_the_run(tmp_path):
    saved = attnviz("self", TEXTS[0], *OWN, "-f", "npz", "--grid", tmp_path / "a.svg").out
    attnviz("render", "-", "-f", "none", "--grid", tmp_path / "b.svg", stdin=saved)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_one_of_several_texts_is_found_by_its_id(tmp_path):
    path = tmp_path / "two.npz"
    attnviz("self", *TEXTS, *OWN, "-f", "none", "-o", path)
    done = attnviz("render", path, "--record", "1", "-f", "json")
    assert done.json()["text"] == TEXTS[1]
    done = attnviz("render", path, "--record", "7")
    assert (done.status, done.mistake) == (1, f"'{path}' holds no text '7': it holds 0, 1")


def test_what_cannot_be_shown_is_named(tmp_path):
    saved = attnviz("self", TEXTS[0], *OWN, "--head", "1,3", "-f", "npz").out
    done = attnviz("render", "-", "--head", "2", stdin=saved)
    assert (done.status, done.mistake) == (
        2,
        "head 2 does not exist: multi-head (self) has 2 heads, 1, 3",
    )
    done = attnviz("render", tmp_path / "no.npz")
    assert (done.status, done.mistake) == (1, f"there is no file '{tmp_path / 'no.npz'}'")
    assert "is a folder" in attnviz("render", tmp_path).mistake

    done = attnviz("self", TEXTS[0], *OWN, "--reduce", "mean:layers")
    assert "--" not in done.text
    document = attnviz("self", TEXTS[0], *OWN, "-f", "json").json()
    document["maps"][0]["layers"] = ["mean"]
    shown = attnviz("render", "-", stdin=json.dumps(document).encode()).text
    assert "--layer" not in shown
    assert "layer mean" not in shown


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "stdin is empty"),
        (b"hello", "stdin holds no saved maps: it is neither .npz nor JSON"),
        (b"[]", "stdin holds no maps"),
        (b'{"schema": 1, "maps": []}', "maps: expected 'array' of length >= 1"),
        (b"PK\x03\x04", "is damaged: "),
    ],
)
def test_what_holds_no_map_is_told_in_one_line(data, message):
    done = attnviz("render", "-", stdin=data)
    assert done.status == 1
    assert message in done.mistake


def test_a_table_says_how_to_see_more_rows(tmp_path):
    words, path = [f"w{number}" for number in range(600)], tmp_path / "a.json"
    one = {"stream": "cross", "query_tokens": words, "key_tokens": ["x"]}
    one |= {"weights": [[[[1.0]] * 600]]}
    path.write_text(json.dumps({"schema": 1, "maps": [one]}))
    told = "rows: --max-rows 600 shows all"
    assert "32 of 600 rows: --max-rows 0 shows all" in attnviz("render", path).text
    table = attnviz("render", path, "--max-rows", "500")
    assert f"500 of 600 {told}" in table.text
    assert "w499" in table.text
    assert "w500" not in table.text
    assert f"7 of 600 {told}" in attnviz("render", path, "--max-rows", "7").text
    for every in (("--max-rows", "0"), ("-f", "tsv", "--max-rows", "7")):
        whole = attnviz("render", path, *every).text
        assert "w599" in whole
        assert "max-rows" not in whole
