"""`attnviz ablate`: what it shows, in which forms, and what it says of what is not there."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from attnviz import ablate
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.features.ablate.parts import each_part, find_parts, head_places
from attnviz.features.ablate.picture import effect_bars
from attnviz.features.experiments.pocket import PocketExperiment
from attnviz.renderers.printable import nats
from attnviz.storage.saved_maps import read_effects
from tests.invoke import Done, attnviz

pytestmark = pytest.mark.usefixtures("coarse")

PAIR = ("The red car is fast.", "La voiture rouge est rapide.")
PAIRS = b"the red car\tla voiture rouge\n\na dog\tun chien\nthe red cat\tle chat rouge\n"
ALL = ("json", "npz", "jsonl", "tsv", "csv", "table")


def ablated(*words: object, stdin: bytes = b"") -> Done:
    done = attnviz("ablate", *words, stdin=stdin)
    assert done.status == 0, done.err
    return done


def arrays(done: Done) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(done.out)) as found:
        return dict(found)


def text_of(*words: str) -> Attention:
    """Words in a text of their own, some of them in pieces: "rap|ide"."""
    text, tokens = "", list[Token]()
    for word in words:
        text += " " * bool(text)
        for place, piece in enumerate(word.split("|")):
            tokens.append(Token("##" * bool(place) + piece, len(text), len(text) + len(piece)))
            text += piece
    item = AttentionMap(
        "encoder",
        tuple(tokens),
        tuple(tokens),
        np.full((1, 1, len(tokens), len(tokens)), 1 / len(tokens), np.float32),
    )
    return Attention((item,), Provenance("own layer", "x"), text=text)


def test_a_layer_stands_alone_or_before_its_heads():
    assert head_places([], "encoder.2") == [("encoder", "2", None)]
    assert head_places(["1, 0-3"], "2") == [(None, "2", "1"), (None, "2", "0-3")]
    assert head_places(["encoder.2.0,1.3"], None) == [("encoder", None, "2.0"), (None, None, "1.3")]


@pytest.mark.slow
@pytest.mark.core
def test_the_issue_s_command_shows_everything_that_changed():
    named = ("--head", "2.0", "--head", "encoder.3.5", "--link", "rouge>red", "--token", "red")
    lines = ablated(*PAIR, *named).text.splitlines()
    assert lines[0] == "pocket · log p of all 6 tokens of the target"
    text = "\n".join(lines)
    assert "heads that are off put out zeros" in " ".join(lines)
    for label in (
        "all of them together",
        "sum of the 4 by themselves",
        "cross layer 2 head 0",
        "encoder layer 3 head 5",
        "rouge → red (cross)",
        "red (source)",
    ):
        assert sum(line.startswith(label) for line in lines) == 1, label
    assert "rouge (3)  log p −" in text
    assert text.count("  before  ") == text.count("  after   ") > 0
    assert lines[-2:] == [
        "it wrote:  La voiture rouge est rapide.",
        "it writes: La voiture est rapide.",
    ]


@pytest.mark.slow
@pytest.mark.core
def test_numbers_are_the_same_in_every_format():
    words = (*PAIR, "--head", "2.0", "--token", "red", "-q", "-f")
    found = {name: ablated(*words, name) for name in ALL}
    document = found["json"].json()
    effects = [*document["effects"], document["together"]]
    assert json.loads(found["jsonl"].text) == document
    for one in effects:
        assert sum(one["of_outputs"]) == pytest.approx(one["effect"], abs=1e-9)
        assert len(one["of_outputs"]) == len(document["explained"]) == 6
    header, *rows = found["tsv"].rows
    assert [float(row[header.index("effect_nats")]) for row in rows] == [
        x["effect"] for x in effects
    ]
    assert found["csv"].text.replace(",", "\t") == found["tsv"].text
    saved = arrays(found["npz"])
    assert saved["effect"].tolist() == [one["effect"] for one in effects]
    assert saved["of_outputs"].tolist() == [one["of_outputs"] for one in effects]
    assert saved["kind"].tolist() == ["head", "token", "together"]
    assert (saved["head"].tolist(), saved["position"].tolist()) == ([0, -1, -1], [-1, 1, -1])
    before, after = (sum(one[when] for one in document["outputs"]) for when in ("before", "after"))
    assert before - after == pytest.approx(document["together"]["effect"], abs=1e-5)
    shown = {nats(one["effect"]) for one in effects}
    assert shown <= set(found["table"].text.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (("--head", "2.0,2.1", "--head", "encoder.3.5"), "cross 2.0,cross 2.1,encoder 3.5"),
        (("--layer", "2"), "cross 2"),
        (("--layer", "0,last"), "cross 0,cross 3"),
        (("--layer", "encoder.1-2"), "encoder 1,encoder 2"),
        (("--layer", "2-3", "--head", "0-1"), "cross 2.0,cross 2.1,cross 3.0,cross 3.1"),
        (("--layer", "encoder.1", "--head", "5,0"), "encoder 1.5,encoder 1.0"),
        (("--head", "3"), "cross 0.3,cross 1.3,cross 2.3,cross 3.3"),
    ],
)
def test_heads_and_layers_are_chosen_as_in_every_command(asked, parts):
    found = ablated(*PAIR, *asked, "-q", "-f", "json").json()["effects"]
    labels = [one["label"].replace(" layer", "").replace(" head ", ".") for one in found]
    assert ",".join(labels) == parts


def test_lines_of_bars_are_the_intervals():
    report = ablate(*PAIR, heads="0.1").value
    (one,) = report.effects
    ends = one.effect - 0.1, one.effect + 0.3
    figure = effect_bars(replace(report, effects=(replace(one, interval=ends),)))
    (lines,) = figure.findobj(LineCollection)
    assert lines.get_segments()[0][:, 0] == pytest.approx(ends)
    texts = [text.get_text() for text in effect_bars(replace(report, effects=(one,) * 7)).texts]
    assert [text.count(",") for text in texts if text.startswith("largest:")] == [4]


@pytest.mark.slow
def test_each_head_and_each_layer_in_an_archive():
    (named,) = ablated(*PAIR, "--layer", "2", "-q", "-f", "json").json()["effects"]
    each = ablated(*PAIR, "--each", "layers", "-q", "-f", "json").json()["effects"]
    assert named["effect"] == pytest.approx(
        next(one["effect"] for one in each if one["label"] == named["label"]), abs=1e-4
    )
    found = arrays(ablated(*PAIR, "--each", "heads", "-q", "-f", "npz"))
    for stream in ("cross", "encoder", "decoder"):
        assert found[f"heads/{stream}"].shape == (4, 6)
    for place, effect in enumerate(found["effect"]):
        stream, layer, head = (found[name][place] for name in ("stream", "layer", "head"))
        assert found[f"heads/{stream}"][int(layer), head] == effect
    assert np.isnan(found["interval"]).all()


@pytest.mark.slow
def test_many_texts_give_means_or_a_line_each(tmp_path):
    rejects, saved = tmp_path / "r.jsonl", tmp_path / "all.jsonl"
    (tmp_path / "p.tsv").write_bytes(PAIRS)
    words = ("--input", tmp_path / "p.tsv", "--token", "red", "--head", "0.0")
    done = attnviz("ablate", *words, "-f", "json", "-o", saved, "--on-error", rejects)
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert "line 3 of " in line
    assert "there is no token 'red' in the source, but a, dog, <eos>" in line
    assert json.loads(rejects.read_bytes())["line"] == 3
    document = done.json()
    assert (document["texts"], [one["texts"] for one in document["effects"]]) == (2, [2, 2])
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    assert [(one["id"], one["source"]) for one in lines] == [
        ("0", "the red car"),
        ("3", "the red cat"),
    ]
    for place, one in enumerate(document["effects"]):
        assert one["effect"] == pytest.approx(
            np.mean([x["effects"][place]["effect"] for x in lines])
        )
    for line in lines:
        alone = ablated(line["source"], line["target"], *words[2:], "-q", "-f", "json").json()
        assert {**alone, "id": line["id"]} == line


def test_heads_that_no_text_has_and_other_references(tmp_path):
    done = attnviz("ablate", "--input", "-", "--head", "9.9", stdin=PAIRS)
    assert (done.status, done.out) == (2, b"")
    assert done.mistake == ("layer 9 does not exist: pocket (cross) has 4 layers, 0 to 3")
    (tmp_path / "t.txt").write_text("the cat\n")
    done = attnviz(
        "ablate", *PAIR, "--head", "0.0", "--by", "mean", "--reference", tmp_path / "t.txt"
    )
    assert (done.status, "have no stream 'cross' to take from" in done.mistake) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--head", "x"),
            "--head 'x' names no head: write 0, 2,5 or 0-3, last or all, or layer and head as 2.3",
        ),
        (
            ("--layer", "2.3"),
            "--layer '2.3' names a head: write --head 2.3",
        ),
        (
            ("--layer", "2", "--head", "2.3"),
            "--head 2.3 names its layer: leave --layer 2 out",
        ),
        (
            ("--head", "crss.0.0"),
            "unknown stream 'crss': choose from cross, encoder, decoder. Did you mean",
        ),
        (
            ("--link", "x>y"),
            "there is no token 'x' in the target, but <fr>, La, voiture, rouge, est",
        ),
        (("--link", "rouge"), "--link 'rouge' is no link: write QUERY>KEY, such as \"rouge>red\""),
        (("--token", "rde"), "there is no token 'rde' in the source, but The, red, car, is, fast"),
        (("--token", "."), "is in the source and the target: write source:. or target:."),
        (("--token", ""), "--token is empty: give a value"),
        (("--token", "red[5]"), "there is no token 'red[5]' in the source"),
        (("--by", "resample"), "draws positions from other texts: add --reference FILE"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(words, told):
    done = attnviz("ablate", *PAIR, *words)
    assert (done.status, done.out, len(done.err.splitlines())) == (2, b"", 1)
    assert told in done.mistake


TWICE = ("Tom has a red car and a red", "--model", "pocket-lm", "--head", "2.3", "-f", "json")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "target", "spellings"),
    [
        (("The dogs bark at the", "--causal"), "dogs", ("dogs[2]", "next:dogs")),
        ((TWICE[0], "--model", "pocket-lm"), "red", ("red[4]", "red[8]", "next:red")),
        (("the red car saw the car",), "car", ("car[2]", "car[5]")),
    ],
)
def test_a_target_of_several_meanings_is_asked_back(words, target, spellings):
    for command in (
        ("ablate", "--head", "2.0"),
        ("self", "--lens", "gradient"),
        ("ablate", "--lenses"),
    ):
        done = attnviz(command[0], *words, *command[1:], "--target", target)
        assert (done.status, done.out, len(done.err.splitlines())) == (2, b"", 1)
        for spelt in spellings:
            assert f"--target '{spelt}'" in done.mistake


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "row", "word", "heading"),
    [
        ("red[4]", 3, "red", "'red' (token 4)"),
        ("8", 7, "red", "'red' (token 8)"),
        ("next:red", 8, "red", "'red' (next token)"),
        ("dog", 8, "dog", "'dog' (next token)"),
        ("next:", 8, "", "(next token)"),
        ("all", None, "", "all 8 tokens of the text"),
        (None, None, "", "all 8 tokens of the text"),
    ],
)
def test_the_heading_names_what_is_measured(target, row, word, heading):
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    from attnviz.features.pocket_lm.language_model import FOLDER

    document = ablated(*TWICE, *([] if target is None else ["--target", target])).json()
    assert document["caption"].startswith("pocket-lm · log p of ")
    assert document["caption"].endswith(heading)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    own = LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    ids = [0, *tokenizer(TWICE[0], add_special_tokens=False)["input_ids"]]
    ids[0] = own.config.bos_token_id or own.config.eos_token_id
    with torch.no_grad():
        scores = own(torch.tensor([ids])).logits[0].log_softmax(-1)
    if row is None:
        expected = [scores[place - 1, ids[place]].item() for place in range(1, len(ids))]
    elif word:
        (number,) = tokenizer(word, add_special_tokens=False)["input_ids"]
        expected = [scores[row, number].item()]
    else:
        expected = [scores[row].max().item()]
    assert [one["before"] for one in document["outputs"]] == pytest.approx(expected, abs=1e-4)


def test_words_of_several_tokens_and_repeated_tokens():
    found = text_of("the", "cat", "saw", "the", "cat")
    with pytest.raises(
        UsageError, match=r"'the' stands 2 times in the text: write the\[0\] or the\[3\]"
    ):
        find_parts(found, tokens=["the"])
    ((part, change),) = find_parts(found, tokens=["the[3]"])
    assert (part.label, [at.position for at in change.tokens]) == ("the[3]", [3])
    labels = [part.label for part, _ in each_part(found, "tokens")]
    assert labels == ["the[0]", "cat[1]", "saw", "the[3]", "cat[4]"]
    found = text_of("la", "rap|id|e", "rap", "rap|id|e", "e|st")
    ((part, change),) = find_parts(found, tokens=["est"])
    assert (part.label, [at.position for at in change.tokens]) == ("est", [8, 9])
    assert [at.position for at in find_parts(found, tokens=["rapide[5]"])[0][1].tokens] == [
        5,
        6,
        7,
    ]
    assert [at.position for at in find_parts(found, tokens=["la rapide"])[0][1].tokens] == [
        0,
        1,
        2,
        3,
    ]
    with pytest.raises(UsageError, match=r"2 times in the text: write rapide\[1\] or rapide\[5\]"):
        find_parts(found, tokens=["rapide"])
    with pytest.raises(UsageError, match="no token 'rapid'"):
        find_parts(text_of("la", "rapide"), tokens=["rapid"])
    ((link, change),) = find_parts(found, links=["la>est"])
    assert [(at.query, at.key) for at in change.links] == [(0, 8), (0, 9)]
    assert link.label == "la → est (encoder)"


@pytest.mark.slow
def test_names_of_tokens_are_shown_and_never_act():
    done = ablated("the reddish car", "la voiture", "--token", "reddish")
    assert "note: 'reddish (source)' is 3 tokens, hidden together: 'red ##d ##ish'" in done.err
    assert done.text.count("reddish (source)") == 1
    texts = ("[red]cat[/red] \x1b[31m", "le chat")
    for words in (
        ("--each", "tokens"),
        ("--token", "[red]cat"),
        ("--token", "\x1b[2J"),
        ("--head", "\x1b.0.0"),
    ):
        done = attnviz("ablate", *texts, *words)
        assert b"\x1b" not in done.out
        assert "\x1b" not in done.err
    for form in ("json", "tsv"):
        assert b"\x1b" not in ablated(*texts, "--each", "tokens", "-f", form).out
    assert "[red]cat (source)" in ablated(*texts, "--token", "[red]cat").text


@pytest.mark.slow
def test_the_table_says_what_heads_put_out(tmp_path, monkeypatch):
    (tmp_path / "p.tsv").write_bytes(PAIRS)
    heads = (*PAIR, "--head", "0.0", "--head", "cross.3.4")
    told = {
        ("--by", "zero"): "put out zeros",
        ("--by", "mean"): "put out their mean over positions of the text",
        (
            "--by",
            "mean",
            "--reference",
            tmp_path / "p.tsv",
        ): "mean over positions of 3 reference texts",
        (
            "--by",
            "resample",
            "--reference",
            tmp_path / "p.tsv",
        ): "drawn by chance of 3 reference texts",
    }
    shown = {how: ablated(*heads, *how).text for how in told}
    for how, text in shown.items():
        assert told[how] in " ".join(text.split())
    assert len({text[text.index("all of them") :] for text in shown.values()}) == 4
    assert "put out" not in ablated(*PAIR, "--token", "red").text
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, ablated(*heads, "--token", "red").lines)) <= 60


@pytest.mark.parametrize(("form", "texts"), [("table", 1), ("jsonl", 3)])
def test_the_model_writes_only_what_somebody_reads(form, texts, monkeypatch):
    written, write = [], PocketExperiment.write
    monkeypatch.setattr(PocketExperiment, "write", lambda *args: written.append(1) or write(*args))
    ablated("--input", "-", "--head", "2.0", "-q", "-f", form, stdin=PAIRS)
    assert len(written) == 2 * texts


@pytest.mark.slow
@pytest.mark.parametrize("each", ["heads", "layers", "links", "tokens"])
def test_each_of_a_kind_is_measured_by_itself(each):
    document = ablated("the cat", "le chat", "--each", each, "-q", "-f", "json").json()
    assert {one["kind"] for one in document["effects"]} == {each.removesuffix("s")}
    labels = [one["label"] for one in document["effects"]]
    assert len(labels) == len(set(labels))
    assert document["together"] is document["wrote"] is None


@pytest.mark.slow
def test_pictures_show_a_bar_a_cell_or_a_word_an_effect(tmp_path):
    places = {name: tmp_path / f"{name}.svg" for name in ("bars", "grid", "highlight")}
    ablated(
        *PAIR,
        "--each",
        "heads",
        "--picture",
        places["bars"],
        "--picture",
        f"grid:{places['grid']}",
        "-q",
    )
    ablated(*PAIR, "--each", "tokens", "--picture", f"highlight:{places['highlight']}", "-q")
    for name, path in places.items():
        assert path.read_text().startswith("<?xml"), name


@pytest.mark.slow
@pytest.mark.core
def test_two_saved_runs_are_compared(tmp_path):
    a, b, c = tmp_path / "a.npz", tmp_path / "b.json", tmp_path / "c.json"
    ablated(*PAIR, "--each", "layers", "-o", a, "-q", "-f", "none")
    ablated(*PAIR, "--each", "layers", "--by", "mean", "-o", b, "-q", "-f", "none")
    ablated(*PAIR, "--head", "0.0", "--token", "red", "-o", c, "-q", "-f", "none")
    found = attnviz("compare", a, b, "-f", "json", "-q").json()
    first, second = (read_effects(path.read_bytes(), "x") for path in (a, b))
    assert first is not None
    assert second is not None
    for row, one, other in zip(found["effects"], first.effects, second.effects, strict=True):
        assert (row["label"], row["a"], row["b"]) == (one.label, one.effect, other.effect)
        assert row["change"] == other.effect - one.effect
    values = np.array([(row["a"], row["b"]) for row in found["effects"]])
    ranks = values.argsort(axis=0).argsort(axis=0)
    assert found["rank_correlation"] == pytest.approx(np.corrcoef(ranks.T)[0, 1])
    table = attnviz("compare", a, b, "--top", 2).text
    assert "their rank correlation is" in " ".join(table.split())
    assert "and 10 more" in table
    header, *rows = attnviz("compare", a, b, "-f", "tsv").rows
    assert (header, len(rows)) == (["kind", "label", "a_nats", "b_nats", "change_nats"], 12)
    over = attnviz("compare", a, b, "--fail-above", 0.1, "-q")
    assert (over.status, "effects differ by more than 0.1 nats: " in over.err) == (1, True)
    assert attnviz("compare", a, b, "--fail-above", 99, "-q").status == 0
    nothing = attnviz("compare", a, c)
    assert (nothing.status, nothing.mistake) == (
        1,
        "the two ablations have no part in common that could be compared",
    )


@pytest.mark.slow
def test_saved_runs_that_do_not_match_are_told(tmp_path):
    for name, words in {
        "a": ("--token", "red", "--head", "0.0"),
        "b": ("--token", "red", "--token", "car"),
    }.items():
        ablated(*PAIR, *words, "-o", tmp_path / f"{name}.json", "-q", "-f", "none")
    two = (tmp_path / "a.json", tmp_path / "b.json")
    found = attnviz("compare", *two, "-f", "json").json()
    assert (found["only_in_a"], found["only_in_b"]) == (["cross layer 0 head 0"], ["car (source)"])
    assert found["rank_correlation"] is None
    text = attnviz("compare", *two).text
    assert "parts only in A: 1, only in B: 1" in " ".join(text.split())
    rows = {row[1]: row[2:] for row in attnviz("compare", *two, "-f", "tsv").rows}
    assert [bool(cell) for cell in rows["car (source)"]] == [False, True, False]
    a, lines = tmp_path / "a.npz", tmp_path / "b.jsonl"
    ablated("the cat", "le chat", "--head", "0.0", "-o", a, "-q", "-f", "none")
    ablated("--input", "-", "--head", "0.0", "-o", lines, "-q", "-f", "none", stdin=PAIRS)
    for path in (a, lines):
        done = attnviz("render", path)
        assert (done.status, len(done.err.splitlines())) == (1, 1)
        assert "holds effects of an ablation, no maps" in done.mistake
    assert "holds the effects of 3 texts" in attnviz("compare", lines, a).mistake
    assert (
        "A holds effects of an ablation, and B does not" in attnviz("compare", a, "the cat").mistake
    )
    asked = attnviz("compare", a, lines.with_name("c.npz"), "--layer", 0)
    assert "there is no file" in asked.mistake
    ablated("the cat", "le chat", "--head", "0.0", "-o", asked_of := tmp_path / "c.npz", "-q")
    asked = attnviz("compare", a, asked_of, "--layer", 0)
    assert (
        "holds effects, which are compared as they were saved: leave --layer out" in asked.mistake
    )
    for own in ("--layer-a", "--layer-b", "--head-b"):
        assert f"leave {own} out" in attnviz("compare", a, asked_of, own, 0).mistake
    document = ablated("the cat", "le chat", "--head", "0.0", "-q", "-f", "json").json()
    broken = tmp_path / "broken.json"
    for field, value, told in (
        ("by", "magic", "by: invalid enum value 'magic'"),
        ("effects", [], "effects: expected 'array' of length >= 1"),
        ("texts", "x", None),
    ):
        broken.write_text(json.dumps({**document, field: value}))
        done = attnviz("compare", broken, a)
        if told is None:
            assert done.status == 0, done.err
        else:
            assert told in done.mistake


@pytest.mark.slow
def test_a_link_that_leaves_nothing_has_no_value(tmp_path):
    words = ("the cat", "le chat", "--link", "decoder:<fr>><fr>", "--head", "0.0")
    saved = tmp_path / "a.npz"
    done = ablated(*words, "-o", saved, "--picture", tmp_path / "b.svg")
    (line,) = [line for line in done.lines if line.startswith("<fr> → <fr> (decoder)")]
    assert line.endswith("–: nothing else was left to see")
    assert "nan" not in done.text
    document = ablated(*words, "-f", "json").json()
    assert [one["effect"] is None for one in document["effects"]] == [False, True]
    (row,) = [row for row in ablated(*words, "-f", "tsv").rows if row[0] == "link"]
    assert row[-4:] == ["", "", "", "1"]
    with np.load(saved) as found:
        assert np.isnan(found["effect"]).tolist() == [False, True, True]
    again = tmp_path / "b.npz"
    ablated(*words, "--by", "mean", "-o", again, "-q", "-f", "none")
    table = attnviz("compare", saved, again, "-q").text
    assert "nan" not in table
    assert [line.split("  ")[0] for line in table.splitlines()[-3:]] == [
        "cross layer 0 head 0",
        "<fr> → <fr> (decoder)",
        "all of them together",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", [("ablate", "--lenses"), ("ablate", "--head", "2.0")])
def test_a_line_that_is_no_text_is_named_once(command):
    done = attnviz(*command, "--input", "-", stdin=b"a dog\tun chien\n\xff\tx\n")
    assert done.err.count("line 2 of stdin") == 1, done.err
