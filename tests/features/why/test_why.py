"""Why a head looks there: a circuit by construction, sums, the command line and its mistakes."""

import json
import re

import numpy as np
import pytest
from matplotlib.collections import LineCollection

import attnviz
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.effects import HeadAt
from attnviz.core.query import Picture, Query
from attnviz.features.lenses.ask import ask_logits
from attnviz.features.lenses.logits import logits
from attnviz.features.pocket_lm.language_model import load_pocket_lm
from attnviz.features.vision.pocket_vit import load_pocket_vit
from attnviz.features.writers.links import (
    explain_head,
    explain_link,
    largest_first,
    score_of,
    weigh,
    without_noise,
)
from attnviz.features.writers.stacked_text import Stack, StackedText
from attnviz.models.light.network import LayerPart, Shape
from attnviz.models.pocket.translator import load_pocket
from tests.invoke import attnviz as run

TEXT = "Tom likes dogs. Mary likes cats. Tom likes"
LM = ("--model", "pocket-lm")
WORDS, PLACES, SIZE = 4, 6, 4 + 6 + 4 + 4
"""Features: a token, its position, the token before it, the token that is copied."""


def induction():
    """A model that looks for what followed the same token before, by construction.

    Head 0.0 copies the token before each; head 1.0 looks where that copy is its own token, and
    writes the token that stands there. The other heads and both feed-forward parts do nothing.
    """
    shape = Shape(
        "l{}",
        LayerPart("a", "q k v o"),
        LayerPart("f", "in out"),
        size=SIZE,
        inner=1,
        heads=2,
        head_size=PLACES,
        layers=2,
        causal=True,
        multiplier=20.0,
    )
    weights = {}
    for layer in range(2):
        for name in "qkv":
            weights[f"l{layer}.a.{name}.weight"] = np.zeros((2 * PLACES, SIZE))
        weights[f"l{layer}.a.o.weight"] = np.zeros((SIZE, 2 * PLACES))
        weights[f"l{layer}.f.in.weight"] = np.zeros((1, SIZE))
        weights[f"l{layer}.f.out.weight"] = np.zeros((SIZE, 1))
    token, place = np.eye(SIZE)[:WORDS], np.eye(SIZE)[WORDS : WORDS + PLACES]
    before, copied = np.eye(SIZE)[10:14], np.eye(SIZE)[14:18]
    weights["l0.a.q.weight"][: PLACES - 1] = place[1:]  # position i asks for i - 1
    weights["l0.a.k.weight"][: PLACES - 1] = place[:-1]
    weights["l0.a.v.weight"][:WORDS] = token
    weights["l0.a.o.weight"][:, :WORDS] = before.T
    weights["l1.a.q.weight"][:WORDS] = token
    weights["l1.a.k.weight"][:WORDS] = before
    weights["l1.a.v.weight"][:WORDS] = token
    weights["l1.a.o.weight"][:, :WORDS] = copied.T
    ids = [3, 0, 1, 2, 0]
    stack = Stack(weights, shape, "causal", {"embedding": token[ids], "position": place[:5]})
    tokens = tuple(Token("abcd"[number]) for number in ids)
    seen = [one.attention for one in stack.run.updates if one.attention]
    item = AttentionMap("causal", tokens, tokens, np.stack([one.weights for one in seen]))
    attention = Attention((item,), Provenance("made", "induction"), "dabca")
    return StackedText(attention, [stack], lambda states: states @ copied.T, "abcd".__getitem__)


def test_a_circuit_by_construction_is_named_exactly():
    report = explain_link(induction(), HeadAt("causal", "1", 0), (4, 2))
    assert report.weight > 0.999
    third = 20 * (1 - 1 / 5)
    assert {one.writer: one.value for one in report.key} == pytest.approx({"0.0": third}, rel=1e-6)
    assert {one.writer: one.value for one in report.query} == pytest.approx(
        {"embedding": third}, rel=1e-6
    )
    assert report.pairs[0] == ("embedding", "0.0", pytest.approx(third))
    assert report.arguments[0].token == "b"
    assert [one.writer for one in report.value] == ["embedding"]
    (key,) = [one for one in report.checks if one.side == "key"]
    assert (key.writer, key.measured) == ("0.0", pytest.approx(0.2))
    assert report.predicted[0] == "b"
    assert report.argument == pytest.approx(report.logit)


def loaded():
    yield load_pocket_lm(dtype="float64").trace_writers(Query(TEXT))
    model = load_pocket(dtype="float64")
    yield model.trace_writers(Query("The red car is fast.", "La voiture rouge.", "cross"))
    yield model.trace_writers(Query("The red car is fast."))
    yield load_pocket(causal=True, dtype="float64").trace_writers(Query("The red car is fast."))
    from PIL import Image

    picture = Image.open("sample_inputs/shapes.png")
    query = Query("", None, "picture", Picture(picture))
    yield load_pocket_vit(dtype="float64").trace_writers(query)


@pytest.mark.slow
@pytest.mark.core
def test_parts_sum_for_every_head_of_the_models_inside():
    for text in loaded():
        for item in text.attention.maps:
            for layer in item.layers:
                for head in range(len(item.heads)):
                    at = HeadAt(item.stream, layer, head)
                    sides = text.sides(at)
                    own = item.weights[item.layers.index(layer), head]
                    np.testing.assert_allclose(weigh(sides, score_of(sides)), own, atol=1e-6)
                    row = len(own) - 1
                    direction = np.eye(len(own))[row][:, None] * sides.query[row]
                    for side in ("query", "key", "value"):
                        whole = getattr(sides, side)
                        given = direction if side == "query" else np.ones_like(whole)
                        parts = text.read(at, side, given)
                        assert parts.sum() == pytest.approx((whole * given).sum(), abs=1e-9)
        row = 0 if text.attention.main.query_side == "picture" else 2
        if text.predicts(text.attention.main.stream, row):
            found = text.logits(row)
            choice = int(found.argmax())
            total = found[choice] - found.mean()
            assert text.logit_parts(row, choice).sum() == pytest.approx(total, abs=1e-9)
            np.testing.assert_allclose(text.layer_logits(row)[-1], found, atol=1e-9)


def test_links_of_the_logits_lens_sum_to_the_logit():
    source = load_pocket_lm(dtype="float64")
    asked = ask_logits(source, Query(TEXT))
    seen = logits(asked)
    for row, choice in asked.choices.items():
        heads = seen.main.weights[:, :, row].sum()
        parts = asked.text.logit_parts(row, choice)
        others = sum(
            part for part, one in zip(parts, asked.text.writers, strict=True) if one.kind != "head"
        )
        whole = asked.text.logits(row)
        assert heads + others == pytest.approx(whole[choice] - whole.mean(), abs=1e-4)


@pytest.mark.slow
def test_the_mean_of_a_head_is_that_of_its_links():
    """Every link above its row's mean, weighted by attention: a slow loop."""
    text, at = load_pocket_lm(dtype="float64").trace_writers(Query(TEXT)), HeadAt("causal", "2", 3)
    report, sides = explain_head(text, at), text.sides(at)
    weights = weigh(sides, score_of(sides))
    sums: dict[str, float] = {}
    rows = range(1, len(weights))
    for row in rows:
        for key in range(row + 1):
            for one in explain_link(text, at, (row, key)).key:
                share = weights[row, key] * one.value / len(rows)
                sums[one.writer] = sums.get(one.writer, 0.0) + share
    assert {one.writer: one.value for one in report.key} == pytest.approx(sums, abs=1e-9)


def test_the_model_inside_is_explained_in_one_screen():
    found = run("why", TEXT, *LM, "--head", "2.3")
    assert found.status == 0
    assert len(found.text.splitlines()) <= 45
    for line in (
        "pocket-lm · causal layer 2 head 3 · likes[10] → dogs",
        "weight .96 · score 21.19, +13.20 above the mean of the 11 visible keys",
        "1.1 previous-token 1.00   +10.59",
        "query × key, the largest: feed-forward 0 × 1.1 +11.49",
        "for dogs +6.87",
        "without 1.1 in the key: weight .96 → .00 (expected .00)",
    ):
        assert line in found.text
    position = run("why", "The king drank water from the", *LM, "--head", "1.1")
    assert "position decides, whatever the words are" in position.text


def test_layers_and_the_effect_of_the_link():
    from attnviz.core.effects import Intervention, LinkAt, log_probabilities

    report = attnviz.why(TEXT, model="pocket-lm", head="2.3", link="likes[10]>dogs").value
    experiment = load_pocket_lm().experiment(Query(TEXT))
    change = Intervention(links=(LinkAt("causal", 10, 3, "2", 3),))
    before, after = log_probabilities(experiment, [Intervention(), change])[:, 0]
    assert report.effect == pytest.approx(before - after, abs=1e-5)
    assert report.output == "dogs (next token)"
    report = attnviz.why(TEXT, model="pocket-lm", layers=True).value
    rows = [one.attention + one.feed_forward for one in report.rows]
    assert sum(rows) + report.other == pytest.approx(report.logit, abs=1e-4)
    assert [one.rank for one in report.rows][-1] == 1
    assert report.rows[-1].likeliest == report.choice == "dogs"
    assert report.heads[0].writer == "2.3"
    other = attnviz.why(TEXT, model="pocket-lm", layers=True, explain="next:cats").value
    assert other.choice == "cats"
    assert other.logit < report.logit


def test_a_link_is_a_square_where_its_two_ends_meet():
    axes = attnviz.why(TEXT, model="pocket-lm", head="2.3").picture("plot").axes[0]
    (square,) = [one for one in axes.collections if one.get_label() == "link"]
    ways = [way for one in axes.findobj(LineCollection) for way in one.get_segments()]
    middle = square.get_paths()[0].vertices[:4].mean(axis=0)
    assert sum(np.isclose(way, middle).all(axis=1).any() for way in ways) == 3


def test_every_form_holds_the_same_numbers(tmp_path):
    found = {
        name: run("why", TEXT, *LM, "--head", "2.3", "-f", name).text
        for name in ("json", "jsonl", "tsv", "csv")
    }
    document = json.loads(found["json"])
    assert json.loads(found["jsonl"]) == document
    keys = [line.split("\t") for line in found["tsv"].splitlines() if line.startswith("key\t")]
    assert [float(row[4]) for row in keys] == [one["value"] for one in document["key"]]
    assert sum(float(row[4]) for row in keys) == pytest.approx(document["contrast"], abs=1e-4)
    assert run("why", TEXT, *LM, "--head", "2.3", "-o", tmp_path / "w.npz").status == 0
    arrays = np.load(tmp_path / "w.npz")
    assert arrays["key/values"].sum() == pytest.approx(document["contrast"], abs=1e-4)
    assert arrays["logits"].shape == (8000,)


def test_many_texts_give_means_with_intervals(tmp_path):
    file = tmp_path / "t.txt"
    file.write_text(f"{TEXT}\nThe king saw the queen. The king saw\n")
    report = attnviz.why(input=str(file), model="pocket-lm", head="2.3", mean=True).value
    single = [
        attnviz.why(line, model="pocket-lm", head="2.3", mean=True).value
        for line in file.read_text().splitlines()
    ]
    assert report.texts == 2
    values = [next(w.value for w in one.key if w.writer == "1.1") for one in single]
    (mean,) = [one for one in report.key if one.writer == "1.1"]
    assert mean.value == pytest.approx(np.mean(values))
    assert mean.interval[0] <= mean.value <= mean.interval[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b c", *LM, "--head", "9.9"), "layer 9 does not exist"),
        (("a b c", *LM, "--head", "2"), "--head '2' names 3 heads: name one, such as 2.3"),
        (("a b c", *LM, "--head", "2.3", "--link", "x>y"), "there is no token 'x'"),
        (("a b c", *LM, "--head", "2.3", "--against", "x"), "--against 'x' is no token"),
        (("a b c", *LM, "--mean"), "--mean explains one head: name it by --head L.H"),
        (
            ("a b c", *LM, "--head", "2.3", "--mean", "--link", "a>b"),
            "--mean and --link contradict each other",
        ),
        (("a b c", *LM, "--layers", "--head", "2.3"), "--layers and --head contradict"),
        (("The red car.", "--layers", "--target", "x"), "--target 'x' is no token"),
        (("The red car.", "--target", "x"), "--target 'x' is no token"),
        (("a b c", *LM, "--head", "2.3", "--mean", "--target", "a"), "--mean and --target"),
    ],
)
def test_mistakes_get_one_line(arguments, says):
    found = run("why", *arguments)
    assert found.status == 2
    assert says in found.mistake


@pytest.mark.slow
def test_texts_of_a_pipe_and_a_picture(tmp_path):
    file = tmp_path / "why.svg"
    found = run("why", TEXT, *LM, "--head", "2.3", "--picture", file)
    assert found.status == 0
    drawn = file.read_text()
    for word in ("1.1 previous-token 1.00", "+10.59", "head 2.3", "weight .96", "argues for"):
        assert word in drawn
    narrow = run("why", TEXT, *LM, "--head", "2.3", "--picture", file, "--style", "width=single")
    assert narrow.status == 0
    assert "weight .96" not in file.read_text()
    lines = f"{TEXT}\nThe king saw the queen. The king saw\n"
    done = run("why", *LM, "--head", "2.3", "-f", "jsonl", stdin=lines.encode())
    assert done.status == 0
    assert [json.loads(line)["links"] for line in done.lines] == [1, 1]
    plot = tmp_path / "w.svg"
    assert run("why", *LM, "--head", "2.3", "--picture", plot, stdin=lines.encode()).status == 0
    assert sorted(one.name for one in tmp_path.glob("w-*")) == ["w-0.svg", "w-1.svg"]


def test_the_lesson_of_the_circuit_takes_each_step_away():
    lesson = attnviz.lesson("circuit").value
    cells = lesson.cells
    assert cells["head"][1:] == ["1.1", "1.1", "2.3", "2.3"]
    assert cells["measured"][2] == pytest.approx(10.591, abs=1e-3)
    assert cells["measured"][4] == pytest.approx(6.869, abs=1e-3)
    whole, *without = cells["probability_without"]
    assert whole == pytest.approx(0.967, abs=1e-3)
    assert max(without) < 0.02


def test_a_page_explains_its_link_and_those_of_the_writers(tmp_path):
    page = tmp_path / "why.html"
    done = run("why", TEXT, *LM, "--head", "2.3", "--html", page, "-f", "json")
    data = re.search(r'id="document">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    reports = {tuple(one["link"]): one["report"] for one in json.loads(data[1])["why"]}
    first, *others = reports
    assert first == ("causal", "2", "3", 10, 3)
    assert reports[first]["contrast"] == done.json()["contrast"]
    assert ("causal", "1", "1", 3, 2) in others, "what the previous-token head looked at"
    text = load_pocket_lm().trace_writers(Query(TEXT))
    for stream, layer, head, query, key in (others[0], others[-1]):
        alone = explain_link(text, HeadAt(stream, layer, int(head)), (query, key))
        shown = reports[stream, layer, head, query, key]
        assert [one["value"] for one in shown["key"]] == [one.value for one in alone.key]
    mean = run("why", TEXT, "--head", "2.3", "--mean", "--html", page)
    assert "--html shows one link" in mean.mistake


def test_rounding_neither_orders_parts_nor_is_one():
    assert largest_first(np.array([0.1, 2.0, 3.0, 2.000001])) == [2, 1, 3, 0]
    assert largest_first(np.array([0.1, 2.0, 3.0, 2.001])) == [2, 3, 1, 0]
    assert largest_first(np.array([])) == []
    assert without_noise(np.array([-2.0, 1e-7, 0.1])).tolist() == [-2.0, 0.0, 0.1]
