"""Each command with each mechanism it offers, and what each says."""

import json
import re

import numpy as np
import pytest

import attnviz as attnviz_api
from attnviz.core.registry import MECHANISMS
from tests.invoke import OWN, attnviz

SOURCE, TARGET = "The red car is fast", "La voiture rouge est rapide"
PAIRS = [
    (name, command)
    for name, entry in MECHANISMS.items()
    for command in entry.commands
    if not entry.mutual
]


@pytest.mark.parametrize(("name", "command"), PAIRS)
def test_every_mechanism_runs_in_its_commands(name, command):
    texts = (SOURCE,) if command == "self" else (SOURCE, TARGET)
    document = attnviz(command, *texts, "--mechanism", name, "-f", "json").json()
    (item,) = document["maps"]
    heads = 4 if MECHANISMS[name].many_heads else 1
    assert np.shape(item["weights"]) == (1, heads, 5, 5)
    if MECHANISMS[name].sums == "one":
        assert np.allclose(np.sum(item["weights"], axis=-1), 1, atol=1e-5)
    else:
        assert item["unit"] != "share of a row's attention"
    assert (item["values"] == "signed") == MECHANISMS[name].signed
    assert "untrained" in document["provenance"]["notes"][0]
    table = attnviz(command, *texts, "--mechanism", name)
    assert (table.status, "(untrained)" in table.text) == (0, True)


@pytest.mark.parametrize("name", [name for name, command in PAIRS if command == "self"])
def test_causal_hides_every_later_token(name):
    done = attnviz("self", SOURCE, "--mechanism", name, "--causal", "-f", "json")
    (item,) = done.json()["maps"]
    weights = np.array(item["weights"])
    assert item["stream"] == "causal"
    assert not np.triu(weights, 1).any()
    if MECHANISMS[name].sums == "one":
        assert np.allclose(weights.sum(axis=-1), 1, atol=1e-5)
        assert weights[0, 0, 0, 0] == pytest.approx(1)


def test_sides_labels_and_networks_are_said():
    (item,) = attnviz("cross", "one two three", "un deux", *OWN, "-f", "json").json()["maps"]
    assert [token["text"] for token in item["query_tokens"]] == ["un", "deux"]
    assert [token["text"] for token in item["key_tokens"]] == ["one", "two", "three"]
    shown = attnviz("cross", "one two three", "un deux", *OWN).text
    assert "rows (target) attend to columns (source)" in shown
    for mechanism in ("co-parallel", "co-alternating", "co-two-stream"):
        done = attnviz(
            "cross", "John ran", "a car", "--mechanism", mechanism, "--labels", "B-PER O", "-q"
        )
        assert done.status == 0, done.err
        assert "B-PER" in done.text

    done = attnviz("self", SOURCE, "--causal", "-f", "json")
    said = (
        "another network answers, the decoder of the pocket model, which was trained to translate"
    )
    assert said in done.err
    assert any(said in note for note in done.json()["provenance"]["notes"])
    assert said not in attnviz("self", SOURCE, "-f", "json").err


@pytest.mark.parametrize(
    ("mechanism", "streams"),
    [
        ("co-parallel", ["affinity", "a", "b"]),
        ("co-alternating", ["a-guided-by-b", "b-guided-by-a", "a-alone"]),
        ("co-two-stream", ["a-to-b", "b-to-a"]),
    ],
)
def test_co_shows_both_directions(mechanism, streams):
    done = attnviz("cross", "what is red", "a car", "--mechanism", mechanism, "-f", "json")
    found = {item["stream"]: item for item in done.json()["maps"]}
    assert list(found) == streams
    for item in found.values():
        if item["values"] == "share":
            assert np.allclose(np.sum(item["weights"], axis=-1), 1, atol=1e-5)
    for stream in streams:
        co = ("cross", "what is red", "a car", "--mechanism", mechanism)
        chosen = attnviz(*co, "--stream", stream)
        assert chosen.status == 0
        assert stream in chosen.lines[0]


def test_models_lists_mechanisms_and_an_empty_cache(tmp_path, monkeypatch):
    listed = ("models", "--mechanisms")
    assert [line.split()[0] for line in attnviz(*listed).lines] == list(MECHANISMS)
    assert [row[0] for row in attnviz(*listed, "-f", "tsv").rows[1:]] == list(MECHANISMS)
    found = attnviz(*listed, "-f", "json").json()
    assert [row["summary"] for row in found["rows"]] == [
        item.summary for item in MECHANISMS.values()
    ]
    assert attnviz("models", "-f", "tsv").lines[1].split("\t")[:2] == ["pocket", "shipped"]
    card = attnviz("models", "pocket").text
    assert "CC BY 2.0" in card
    assert "the head trained to align" in card
    wrong = attnviz("models", "poket")
    assert (wrong.status, "Did you mean 'pocket'" in wrong.err) == (2, True)
    monkeypatch.setattr("attnviz.models.hugging_face.load.locate.list_cached_models", lambda *_: [])
    for form in ("table", "tsv", "json"):
        done = attnviz("models", "-f", form)
        assert (done.status, "Traceback" in done.err) == (0, False)


def test_a_selection_keeps_its_numbers():
    whole = np.array(attnviz("self", SOURCE, *OWN, "-f", "json").json()["maps"][0]["weights"])
    for selection, heads in (("2", [2]), ("0,3", [0, 3]), ("1-2", [1, 2]), ("last", [3])):
        (item,) = attnviz("self", SOURCE, *OWN, "--head", selection, "-f", "json").json()["maps"]
        assert item["heads"] == heads
        assert np.array_equal(item["weights"], whole[:, heads])
    assert attnviz("self", SOURCE, *OWN, "--head", "all", "--layer", "0,last").status == 0


def test_saved_weights_are_shown_whatever_their_size(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"weights": [[0.25, 0.75], [1, 0]], "tokens": ["x", "y"]}))
    for texts, words in (((), ["x", "y"]), (("maps here",), ["maps", "here"])):
        document = attnviz("self", *texts, "--weights", path, "-f", "json").json()
        (item,) = document["maps"]
        assert [token["text"] for token in item["query_tokens"]] == words
        assert item["weights"] == [[[[0.25, 0.75], [1.0, 0.0]]]]
        assert document["provenance"]["model"] == "mine.json"
    done = attnviz("cross", "--weights", path, "-f", "json")
    assert done.json()["maps"][0]["stream"] == "cross"
    path = tmp_path / "saved.npz"
    text = " ".join(map(str, range(60)))
    expected = attnviz("self", text, *OWN, "-f", "tsv", "-o", path).out
    assert attnviz("self", "--weights", path, "-f", "tsv").out == expected
    assert attnviz("self", text, "--weights", path, "-f", "tsv").out == expected
    assert "other texts" in attnviz("self", "else", "--weights", path).mistake
    path = tmp_path / "two.npz"
    attnviz("self", "one two", "three four", *OWN, "-f", "none", "-o", path)
    shown = attnviz("self", "three four", "--weights", path, "-f", "json").json()
    assert shown["text"] == "three four"
    done = attnviz("self", "--weights", path)
    assert (done.status, "holds the attention of 2 texts" in done.mistake) == (1, True)


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("--head", "3"), ["0.3", "1.3", "2.3", "3.3"]),
        (("--head", "3", "--layer", "1"), ["1.3"]),
        (("--head", "3", "--layer", "1-2"), ["1.3", "2.3"]),
        (("--head", "2.3"), ["2.3"]),
    ],
)
@pytest.mark.parametrize("command", ["self", "cross"])
def test_a_head_without_a_layer_is_that_of_every_layer(command, words, places):
    texts = (SOURCE,) if command == "self" else ("red car", "voiture rouge")
    shown = attnviz(command, *texts, *words, "-q").text
    captions = re.findall(r"^layer (\d) head (\d) (?:\(.*\) )?· rows", shown, re.MULTILINE)
    assert [".".join(one) for one in captions] == places
    item = attnviz(command, *texts, *words, "-f", "json", "-q").json()["maps"][0]
    own = [f"{layer}.{head}" for layer in item["layers"] for head in item["heads"]]
    assert own == places
    how = {name.removeprefix("--"): one for name, one in zip(words[::2], words[1::2], strict=True)}
    if how["head"] == "3":
        how["head"] = 3
    main = attnviz_api.attend(*texts, **how).main
    assert [f"{layer}.{head}" for layer in main.layers for head in main.heads] == places


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("a b c",), 1, "has weights for 2 query tokens, but there are 3: a b c"),
        (("a b", "--causal"), 2, "--causal changes nothing in"),
        (("a b", "--labels", "X"), 1, "1 labels for 2 tokens"),
        (("--labels", "X"), 1, "1 labels for 2 tokens"),
    ],
)
def test_weights_that_do_not_fit_are_told(arguments, status, message, tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, weights=np.eye(2), tokens=np.array(["x", "y"]))
    done = attnviz("self", *arguments, "--weights", path)
    assert done.status == status
    assert message in done.mistake
